// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Prints the rate of the time-stamp counter in kHz.
 *
 * The emulator hands the host's counter to the guest, so this is the guest's rate too. The interval with the tightest
 * pair of clock reads around the counter reads wins.
 */
#include <stdint.h>
#include <stdio.h>
#include <time.h>
#include <x86intrin.h>

static double now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC_RAW, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

int main(void)
{
	double best_khz = 0, best_slack = 1e18;

	for (int round = 0; round < 3; round++) {
		double a0 = now_ns();
		uint64_t from = __rdtsc();
		double a1 = now_ns();
		double b0, b1, slack;
		uint64_t to;

		while (now_ns() - a1 < 8e6)
			;
		b0 = now_ns();
		to = __rdtsc();
		b1 = now_ns();
		slack = (a1 - a0) + (b1 - b0);
		if (slack < best_slack) {
			best_slack = slack;
			best_khz = (double)(to - from) / ((b0 + b1 - a0 - a1) / 2) * 1e6;
		}
	}
	printf("%.0f\n", best_khz);
	return 0;
}
