// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * What a careful user would write by hand in the place of the packet and xdp providers: rings read in place, every frame parsed with
 * its lengths checked, the IPv4 header's sum verified, UDP's where nobody has vouched for it, group and port compared.
 *
 * Promises: does per packet what the provider and the loop over its batches do, and no more. Does not do: waiting, IPv6, VLAN tags,
 * checking what the kernel writes into the rings.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <linux/bpf.h>
#include <linux/filter.h>
#include <linux/if_ether.h>
#include <linux/if_link.h>
#include <linux/if_packet.h>
#include <linux/if_xdp.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>
#ifdef WITH_PCAP
#include <stdio.h>
/* Both have a structure of this name. */
#define bpf_insn pcap_bpf_insn
#include <pcap/pcap.h>
#undef bpf_insn
#endif

struct c_totals {
	uint64_t packets;
	uint64_t bytes;
	uint64_t truncated;
	uint64_t drops;
	/* Something that depends on every packet, so that no work can be left out. */
	uint64_t digest;
};

enum mechanism { TPACKET2 = 0, TPACKET3 = 1, XSK = 2, PCAP = 3 };

struct c_raw {
	enum mechanism mechanism;
	uint32_t group;
	uint16_t port;
	int fd, program, map, link;
	uint8_t *ring;
	size_t ring_bytes;
	uint32_t block_bytes, blocks, slot_bytes, slots, next;
	uint8_t *rx_map, *fill_map, *frames;
	size_t rx_bytes, fill_bytes, frames_bytes;
	uint32_t *rx_producer, *rx_consumer, *fill_producer;
	struct xdp_desc *rx;
	uint64_t *fill;
	uint32_t rx_mask, fill_mask;
#ifdef WITH_PCAP
	pcap_t *pcap;
#endif
};

static uint64_t sum_bytes(const uint8_t *at, size_t len, uint64_t sum)
{
	uint32_t word;
	uint16_t half;

	for (; len >= 4; at += 4, len -= 4) {
		memcpy(&word, at, 4);
		sum += word;
	}
	if (len >= 2) {
		memcpy(&half, at, 2);
		sum += half;
		at += 2;
		len -= 2;
	}
	if (len)
		sum += *at;
	return sum;
}

static uint16_t fold(uint64_t sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return (uint16_t)sum;
}

static inline void on_frame(const struct c_raw *self, const uint8_t *frame,
			    uint32_t len, int vouched, struct c_totals *totals)
{
	const uint8_t *ip = frame + 14, *udp;
	uint32_t head, total, datagram, address;
	uint16_t port, field;
	uint64_t first = 0;

	if (len < 14 + 20 || frame[12] != 8 || frame[13] != 0 || ip[0] >> 4 != 4)
		return;
	head = (ip[0] & 15) * 4;
	total = (uint32_t)ip[2] << 8 | ip[3];
	if (head < 20 || total < head + 8 || 14 + total > len || ip[9] != 17)
		return;
	if (fold(sum_bytes(ip, head, 0)) != 0xffff)
		return;
	if ((ip[6] & 0x3f) || ip[7])
		return;
	memcpy(&address, ip + 16, 4);
	udp = ip + head;
	memcpy(&port, udp + 2, 2);
	if (address != self->group || port != self->port)
		return;
	datagram = (uint32_t)udp[4] << 8 | udp[5];
	if (datagram < 8 || datagram > total - head)
		return;
	memcpy(&field, udp + 6, 2);
	if (field && !vouched) {
		uint64_t sum = sum_bytes(ip + 12, 8, 0) + htons(17) + htons((uint16_t)datagram);

		if (fold(sum_bytes(udp, datagram, sum)) != 0xffff)
			return;
	}
	memcpy(&address, ip + 12, 4);
	memcpy(&port, udp, 2);
	if (datagram >= 16)
		memcpy(&first, udp + 8, 8);
	totals->packets++;
	totals->bytes += datagram - 8;
	totals->digest += first ^ address ^ ntohs(port);
}

static int open_packet(struct c_raw *self, int interface)
{
	const int version = self->mechanism == TPACKET2 ? TPACKET_V2 : TPACKET_V3, one = 1;
	uint16_t port = ntohs(self->port);
	uint32_t group = ntohl(self->group);
	struct sock_filter filter[] = {
		{ 0x28, 0, 0, 12 }, { 0x15, 0, 9, 0x0800 },
		{ 0x30, 0, 0, 23 }, { 0x15, 0, 7, 17 },
		{ 0x20, 0, 0, 30 }, { 0x15, 0, 5, group },
		{ 0xb1, 0, 0, 14 }, { 0x48, 0, 0, 16 },
		{ 0x15, 0, 2, port }, { 6, 0, 0, 0xffff }, { 6, 0, 0, 0 }, { 6, 0, 0, 0 },
	};
	struct sock_fprog program = { sizeof(filter) / sizeof(*filter), filter };
	struct sockaddr_ll address = {
		.sll_family = AF_PACKET,
		.sll_protocol = htons(ETH_P_ALL),
		.sll_ifindex = interface,
	};
	struct tpacket_req3 request = {
		.tp_block_size = self->block_bytes,
		.tp_block_nr = self->blocks,
		.tp_frame_size = self->slot_bytes,
		.tp_frame_nr = self->block_bytes / self->slot_bytes * self->blocks,
		.tp_retire_blk_tov = 1,
	};
	size_t len = self->mechanism == TPACKET2 ? sizeof(struct tpacket_req) : sizeof(request);

	self->slots = request.tp_frame_nr;
	self->fd = socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (self->fd < 0)
		return -errno;
	if (setsockopt(self->fd, SOL_PACKET, PACKET_VERSION, &version, sizeof(version)) ||
	    setsockopt(self->fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &one, sizeof(one)) ||
	    setsockopt(self->fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program)) ||
	    setsockopt(self->fd, SOL_PACKET, PACKET_RX_RING, &request, (socklen_t)len))
		return -errno;
	self->ring_bytes = (size_t)self->block_bytes * self->blocks;
	self->ring = mmap(NULL, self->ring_bytes, PROT_READ | PROT_WRITE,
			  MAP_SHARED | MAP_POPULATE, self->fd, 0);
	if (self->ring == MAP_FAILED)
		return -errno;
	if (bind(self->fd, (struct sockaddr *)&address, sizeof(address)))
		return -errno;
	return 0;
}

static uint64_t drain2(struct c_raw *self, uint64_t want, struct c_totals *totals)
{
	uint32_t per_block = self->block_bytes / self->slot_bytes;

	while (totals->packets < want) {
		struct tpacket2_hdr *head = (void *)(self->ring +
			(size_t)(self->next / per_block) * self->block_bytes +
			(size_t)(self->next % per_block) * self->slot_bytes);
		uint32_t status = __atomic_load_n(&head->tp_status, __ATOMIC_ACQUIRE);

		if (!(status & TP_STATUS_USER))
			break;
		if (head->tp_snaplen != head->tp_len)
			totals->truncated++;
		else
			on_frame(self, (uint8_t *)head + head->tp_mac, head->tp_snaplen,
				 status & (TP_STATUS_CSUMNOTREADY | TP_STATUS_CSUM_VALID), totals);
		__atomic_store_n(&head->tp_status, TP_STATUS_KERNEL, __ATOMIC_RELEASE);
		self->next = self->next + 1 == self->slots ? 0 : self->next + 1;
	}
	return totals->packets;
}

static uint64_t drain3(struct c_raw *self, uint64_t want, struct c_totals *totals)
{
	while (totals->packets < want) {
		struct tpacket_block_desc *block =
			(void *)(self->ring + (size_t)self->next * self->block_bytes);
		struct tpacket3_hdr *head;

		if (!(__atomic_load_n(&block->hdr.bh1.block_status, __ATOMIC_ACQUIRE) & TP_STATUS_USER))
			break;
		head = (void *)((uint8_t *)block + block->hdr.bh1.offset_to_first_pkt);
		for (uint32_t left = block->hdr.bh1.num_pkts; left; left--) {
			if (head->tp_snaplen != head->tp_len)
				totals->truncated++;
			else
				on_frame(self, (uint8_t *)head + head->tp_mac, head->tp_snaplen,
					 head->tp_status & (TP_STATUS_CSUMNOTREADY | TP_STATUS_CSUM_VALID),
					 totals);
			head = (void *)((uint8_t *)head + head->tp_next_offset);
		}
		__atomic_store_n(&block->hdr.bh1.block_status, TP_STATUS_KERNEL, __ATOMIC_RELEASE);
		self->next = self->next + 1 == self->blocks ? 0 : self->next + 1;
	}
	return totals->packets;
}

static int bpf(int command, union bpf_attr *attributes)
{
	return (int)syscall(SYS_bpf, command, attributes, sizeof(*attributes));
}

static int open_xsk(struct c_raw *self, int interface, int native)
{
	union bpf_attr map = { .map_type = BPF_MAP_TYPE_XSKMAP, .key_size = 4, .value_size = 4, .max_entries = 1 };
	uint32_t key = 0, frames = self->slots, rx = self->slots, fill = self->slots * 2, completion = 2;
	struct xdp_umem_reg memory = { .chunk_size = 2048, .len = (uint64_t)frames * 2048 };
	struct xdp_mmap_offsets offsets;
	socklen_t len = sizeof(offsets);
	struct sockaddr_xdp address = {
		.sxdp_family = AF_XDP,
		.sxdp_ifindex = (uint32_t)interface,
		.sxdp_flags = XDP_COPY | XDP_USE_NEED_WAKEUP,
	};

	self->map = bpf(BPF_MAP_CREATE, &map);
	if (self->map < 0)
		return -errno;
	{
		/* Every frame of the queue: if (redirect_map(map, queue, PASS)). */
		struct bpf_insn code[] = {
			{ 0x61, 2, 1, 16, 0 }, { 0x18, 1, 1, 0, self->map }, { 0, 0, 0, 0, 0 },
			{ 0xb7, 3, 0, 0, 2 }, { 0x85, 0, 0, 0, 51 }, { 0x95, 0, 0, 0, 0 },
		};
		union bpf_attr load = {
			.prog_type = BPF_PROG_TYPE_XDP,
			.insn_cnt = sizeof(code) / sizeof(*code),
			.insns = (uintptr_t)code,
			.license = (uintptr_t) "GPL",
		};
		union bpf_attr link = { 0 };

		self->program = bpf(BPF_PROG_LOAD, &load);
		if (self->program < 0)
			return -errno;
		self->frames_bytes = memory.len;
		self->frames = mmap(NULL, memory.len, PROT_READ | PROT_WRITE,
				    MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
		self->fd = socket(AF_XDP, SOCK_RAW | SOCK_CLOEXEC, 0);
		if (self->frames == MAP_FAILED || self->fd < 0)
			return -errno;
		memory.addr = (uintptr_t)self->frames;
		if (setsockopt(self->fd, SOL_XDP, XDP_UMEM_REG, &memory, sizeof(memory)) ||
		    setsockopt(self->fd, SOL_XDP, XDP_UMEM_FILL_RING, &fill, 4) ||
		    setsockopt(self->fd, SOL_XDP, XDP_UMEM_COMPLETION_RING, &completion, 4) ||
		    setsockopt(self->fd, SOL_XDP, XDP_RX_RING, &rx, 4) ||
		    getsockopt(self->fd, SOL_XDP, XDP_MMAP_OFFSETS, &offsets, &len))
			return -errno;
		self->rx_bytes = offsets.rx.desc + rx * sizeof(struct xdp_desc);
		self->fill_bytes = offsets.fr.desc + fill * sizeof(uint64_t);
		self->rx_map = mmap(NULL, self->rx_bytes, PROT_READ | PROT_WRITE,
				    MAP_SHARED | MAP_POPULATE, self->fd, XDP_PGOFF_RX_RING);
		self->fill_map = mmap(NULL, self->fill_bytes, PROT_READ | PROT_WRITE,
				      MAP_SHARED | MAP_POPULATE, self->fd, (off_t)XDP_UMEM_PGOFF_FILL_RING);
		if (self->rx_map == MAP_FAILED || self->fill_map == MAP_FAILED)
			return -errno;
		self->rx_producer = (void *)(self->rx_map + offsets.rx.producer);
		self->rx_consumer = (void *)(self->rx_map + offsets.rx.consumer);
		self->rx = (void *)(self->rx_map + offsets.rx.desc);
		self->fill_producer = (void *)(self->fill_map + offsets.fr.producer);
		self->fill = (void *)(self->fill_map + offsets.fr.desc);
		self->rx_mask = rx - 1;
		self->fill_mask = fill - 1;
		for (uint32_t frame = 0; frame < frames; frame++)
			self->fill[frame] = (uint64_t)frame * 2048;
		__atomic_store_n(self->fill_producer, frames, __ATOMIC_RELEASE);
		for (int tries = 0; bind(self->fd, (struct sockaddr *)&address, sizeof(address)); tries++) {
			if (errno != EBUSY || tries == 1000)
				return -errno;
			usleep(1000);
		}
		{
			union bpf_attr put = {
				.map_fd = (uint32_t)self->map,
				.key = (uintptr_t)&key,
				.value = (uintptr_t)&self->fd,
			};

			if (bpf(BPF_MAP_UPDATE_ELEM, &put))
				return -errno;
		}
		link.link_create.prog_fd = (uint32_t)self->program;
		link.link_create.target_ifindex = (uint32_t)interface;
		link.link_create.attach_type = BPF_XDP;
		link.link_create.flags = native ? XDP_FLAGS_DRV_MODE : XDP_FLAGS_SKB_MODE;
		self->link = bpf(BPF_LINK_CREATE, &link);
		return self->link < 0 ? -errno : 0;
	}
}

static uint64_t drain_xsk(struct c_raw *self, uint64_t want, struct c_totals *totals)
{
	uint32_t consumer = *self->rx_consumer, fill = *self->fill_producer;

	while (totals->packets < want) {
		uint32_t there = __atomic_load_n(self->rx_producer, __ATOMIC_ACQUIRE) - consumer;

		if (!there)
			break;
		if (there > 64)
			there = 64;
		for (; there; there--, consumer++) {
			struct xdp_desc *entry = &self->rx[consumer & self->rx_mask];

			on_frame(self, self->frames + entry->addr, entry->len, 0, totals);
			self->fill[fill++ & self->fill_mask] = entry->addr & ~2047ull;
		}
		__atomic_store_n(self->rx_consumer, consumer, __ATOMIC_RELEASE);
		__atomic_store_n(self->fill_producer, fill, __ATOMIC_RELEASE);
	}
	return totals->packets;
}

#ifdef WITH_PCAP
static int open_pcap(struct c_raw *self, const char *name)
{
	char text[PCAP_ERRBUF_SIZE], expression[64];
	struct bpf_program program;
	struct in_addr group = { .s_addr = self->group };

	self->pcap = pcap_create(name, text);
	if (!self->pcap)
		return -EIO;
	/* The length of a slot of its ring. */
	pcap_set_snaplen(self->pcap, 2048);
	pcap_set_buffer_size(self->pcap, 64 << 20);
	pcap_set_immediate_mode(self->pcap, 1);
	if (pcap_activate(self->pcap) < 0)
		return -EIO;
	snprintf(expression, sizeof(expression), "udp and dst host %s and dst port %d",
		 inet_ntoa(group), ntohs(self->port));
	if (pcap_compile(self->pcap, &program, expression, 1, PCAP_NETMASK_UNKNOWN) ||
	    pcap_setfilter(self->pcap, &program) || pcap_setdirection(self->pcap, PCAP_D_IN) ||
	    pcap_setnonblock(self->pcap, 1, text))
		return -EIO;
	pcap_freecode(&program);
	return 0;
}

struct context {
	struct c_raw *self;
	struct c_totals *totals;
};

static void on_pcap(u_char *user, const struct pcap_pkthdr *head, const u_char *frame)
{
	struct context *context = (void *)user;

	if (head->caplen != head->len)
		context->totals->truncated++;
	else
		on_frame(context->self, frame, head->caplen, 0, context->totals);
}
#endif

/* Opens a receiver of a mechanism for a group and a port, both in network order. Negative errno on failure. */
int c_raw_open(int mechanism, uint32_t group, uint16_t port, int interface, const char *name,
	       uint32_t block_bytes, uint32_t blocks, uint32_t slot_bytes, int native, struct c_raw **out)
{
	struct c_raw *self = calloc(1, sizeof(*self));
	int result = -ENOSYS;

	if (!self)
		return -ENOMEM;
	self->mechanism = mechanism;
	self->group = group;
	self->port = port;
	self->block_bytes = block_bytes;
	self->blocks = blocks;
	self->slot_bytes = slot_bytes;
	self->fd = self->program = self->map = self->link = -1;
	switch (self->mechanism) {
	case TPACKET2:
	case TPACKET3:
		result = open_packet(self, interface);
		break;
	case XSK:
		self->slots = blocks;
		result = open_xsk(self, interface, native);
		break;
	case PCAP:
#ifdef WITH_PCAP
		result = open_pcap(self, name);
#else
		(void)name;
#endif
		break;
	}
	/* The benchmark ends when an open fails; what is open goes with the process. */
	if (result == 0)
		*out = self;
	return result;
}

/* Takes packets until `want` have come or nothing is there. */
int c_raw_drain(struct c_raw *self, uint64_t want, struct c_totals *totals)
{
	switch (self->mechanism) {
	case TPACKET2:
		drain2(self, want, totals);
		return 0;
	case TPACKET3:
		drain3(self, want, totals);
		return 0;
	case XSK:
		drain_xsk(self, want, totals);
		return 0;
	case PCAP:
#ifdef WITH_PCAP
		while (totals->packets < want) {
			struct context context = { self, totals };
			int got = pcap_dispatch(self->pcap, 64, on_pcap, (u_char *)&context);

			if (got < 0)
				return -EIO;
			if (got == 0)
				break;
		}
		return 0;
#endif
		break;
	}
	return -ENOSYS;
}

void c_raw_close(struct c_raw *self)
{
#ifdef WITH_PCAP
	if (self->pcap)
		pcap_close(self->pcap);
#endif
	if (self->link >= 0)
		close(self->link);
	if (self->fd >= 0)
		close(self->fd);
	if (self->program >= 0)
		close(self->program);
	if (self->map >= 0)
		close(self->map);
	if (self->ring)
		munmap(self->ring, self->ring_bytes);
	if (self->frames)
		munmap(self->frames, self->frames_bytes);
	if (self->rx_map)
		munmap(self->rx_map, self->rx_bytes);
	if (self->fill_map)
		munmap(self->fill_map, self->fill_bytes);
	free(self);
}
