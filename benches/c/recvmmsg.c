// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * What a careful user would write by hand in the place of the udp provider: one socket bound to one group, recvmmsg in batches of
 * 64, every datagram's source, its control messages and its truncation looked at, losses counted.
 *
 * Promises: does per datagram what the provider and the loop over its batches do, and no more. Does not do: waiting.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <linux/net_tstamp.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#ifndef SO_RXQ_OVFL
#define SO_RXQ_OVFL 40
#endif

#define BATCH 64
#define BUFFER 2048
#define CONTROL 160

struct c_totals {
	uint64_t packets;
	uint64_t bytes;
	uint64_t truncated;
	uint64_t drops;
	/* Something that depends on every datagram, so that no work can be left out. */
	uint64_t digest;
};

struct c_receiver {
	int fd;
	struct mmsghdr headers[BATCH];
	struct iovec vectors[BATCH];
	struct sockaddr_in names[BATCH];
	_Alignas(16) char controls[BATCH][CONTROL];
	_Alignas(64) unsigned char buffers[BATCH][BUFFER];
};

/* Opens a receiver for a group and a port, both in network order, on an interface. Negative errno on failure. */
int c_receiver_open(uint32_t group, uint16_t port, int interface,
		    int buffer_bytes, int stamps, struct c_receiver **out)
{
	const int one = 1, zero = 0;
	struct c_receiver *self;
	struct sockaddr_in address = {
		.sin_family = AF_INET,
		.sin_port = port,
		.sin_addr.s_addr = group,
	};
	struct ip_mreqn membership = {
		.imr_multiaddr.s_addr = group,
		.imr_ifindex = interface,
	};
	int flags = SOF_TIMESTAMPING_RX_SOFTWARE | SOF_TIMESTAMPING_SOFTWARE;
	int result;

	self = aligned_alloc(_Alignof(struct c_receiver), sizeof(*self));
	if (!self)
		return -ENOMEM;
	/* Touches every page before the first datagram. */
	memset(self, 0, sizeof(*self));
	self->fd = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (self->fd < 0)
		goto free_self;
	if (setsockopt(self->fd, IPPROTO_IP, IP_MULTICAST_ALL, &zero, sizeof(zero)) ||
	    setsockopt(self->fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) ||
	    setsockopt(self->fd, SOL_SOCKET, SO_RXQ_OVFL, &one, sizeof(one)))
		goto close_fd;
	if (setsockopt(self->fd, SOL_SOCKET, SO_RCVBUFFORCE, &buffer_bytes,
		       sizeof(buffer_bytes)) &&
	    setsockopt(self->fd, SOL_SOCKET, SO_RCVBUF, &buffer_bytes,
		       sizeof(buffer_bytes)))
		goto close_fd;
	if (stamps && setsockopt(self->fd, SOL_SOCKET, SO_TIMESTAMPING, &flags,
				 sizeof(flags)))
		goto close_fd;
	if (bind(self->fd, (struct sockaddr *)&address, sizeof(address)) ||
	    setsockopt(self->fd, IPPROTO_IP, IP_ADD_MEMBERSHIP, &membership,
		       sizeof(membership)))
		goto close_fd;
	for (int i = 0; i < BATCH; i++) {
		struct msghdr *header = &self->headers[i].msg_hdr;

		self->vectors[i].iov_base = self->buffers[i];
		self->vectors[i].iov_len = BUFFER;
		header->msg_iov = &self->vectors[i];
		header->msg_iovlen = 1;
		header->msg_name = &self->names[i];
		header->msg_namelen = sizeof(self->names[i]);
		header->msg_control = self->controls[i];
		header->msg_controllen = CONTROL;
	}
	*out = self;
	return 0;

close_fd:
	result = -errno;
	close(self->fd);
	free(self);
	return result;
free_self:
	result = -errno;
	free(self);
	return result;
}

/* Takes datagrams until `want` have come or none is queued. Returns 0, or a negative errno. */
int c_receiver_drain(struct c_receiver *self, uint64_t want,
		     struct c_totals *totals)
{
	while (totals->packets < want) {
		int got = recvmmsg(self->fd, self->headers, BATCH, MSG_DONTWAIT, NULL);

		if (got < 0) {
			if (errno == EINTR)
				continue;
			return errno == EAGAIN ? 0 : -errno;
		}
		for (int i = 0; i < got; i++) {
			struct msghdr *header = &self->headers[i].msg_hdr;
			unsigned int len = self->headers[i].msg_len;
			uint64_t stamp = 0, first = 0;
			struct cmsghdr *control;

			for (control = CMSG_FIRSTHDR(header); control;
			     control = CMSG_NXTHDR(header, control)) {
				if (control->cmsg_level != SOL_SOCKET)
					continue;
				if (control->cmsg_type == SO_TIMESTAMPING) {
					struct timespec time[3];

					memcpy(time, CMSG_DATA(control), sizeof(time));
					stamp = (uint64_t)time[0].tv_sec * 1000000000u +
						(uint64_t)time[0].tv_nsec;
				} else if (control->cmsg_type == SO_RXQ_OVFL) {
					uint32_t drops;

					memcpy(&drops, CMSG_DATA(control), sizeof(drops));
					totals->drops = drops;
				}
			}
			if (header->msg_flags & MSG_TRUNC) {
				totals->truncated++;
			} else {
				memcpy(&first, self->buffers[i], sizeof(first));
				totals->packets++;
				totals->bytes += len;
				totals->digest += first ^ stamp ^
						  self->names[i].sin_addr.s_addr ^
						  ntohs(self->names[i].sin_port);
			}
			header->msg_namelen = sizeof(self->names[i]);
			header->msg_controllen = CONTROL;
		}
	}
	return 0;
}

void c_receiver_close(struct c_receiver *self)
{
	close(self->fd);
	free(self);
}
