/* Ports to the kernel: existing interfaces through AF_PACKET sockets, and TAP interfaces.
 *
 * DPDK has drivers for both. These are our own because the kernel leaves checksums and segmentation to its devices, and on
 * veth pairs and TAP interfaces that is us: only a socket with virtio headers (PACKET_VNET_HDR, IFF_VNET_HDR) says so and
 * lets us leave the same to the kernel. Besides, DPDK's af_packet cuts long frames without a word and forgets the type of
 * VLAN tags.
 *
 * AF_PACKET, packet(7): frames arrive in a ring shared with the kernel, without a call; what is longer than a place of the
 * ring waits beside it (PACKET_COPY_THRESH) and is read with a call. Several queues are a fanout group, in which the kernel
 * spreads flows by a hash that is the same for both directions. Bursts are sent with one call. The port does not see what
 * the kernel itself sends.
 *
 * TAP, Documentation/networking/tuntap.rst: one call per frame. The interface lives as long as the port.
 *
 * Threads: each queue belongs to a worker; control calls as in shim.h. Tests: tests/ports.rs, tests/offload.rs. */
#define _GNU_SOURCE
#include "offload.h"
#include "shim.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <rte_ether.h>
#include <rte_mbuf.h>
#include <rte_memcpy.h>
#include <rte_prefetch.h>

#define BURST_MAX 64
#define QUEUES_MAX 64

/* The ring: places of at least PLACE_BYTES_MIN, more when the MTU asks for it. */
#define RING_BYTES (4u << 20)
#define PLACE_BYTES_MIN 2048u
#define BLOCK_BYTES (64u << 10)

/* What the kernel puts before a frame in its place: its own headers, room for a link layer, the virtio header. */
#define PLACE_HEADER_BYTES 128

/* Frames that may wait in the kernel on their way in beside the ring, and out, in bytes. */
#define SOCKET_BUFFER_BYTES (4 << 20)

/* Newer than the headers of Debian 12. */
#ifndef PACKET_FANOUT_FLAG_IGNORE_OUTGOING
#define PACKET_FANOUT_FLAG_IGNORE_OUTGOING 0x4000
#endif

struct queue {
	int in;  /* the ring's socket; the TAP's file */
	int out; /* the socket to send on; the same file */
	uint8_t *ring;
	uint32_t next; /* the place that the kernel fills next */
	struct rte_mbuf *spare; /* TAP: where a long frame ends up */
	const void *refused;	/* the frame that the kernel refused for want of buffers, and how often */
	int refusals;
} __rte_cache_aligned;

struct shim_kernel {
	struct shim_port base;
	struct queue queue[QUEUES_MAX];
	struct rte_mempool *pool;
	uint64_t missed;
	uint32_t place_bytes;
	uint32_t places;
	uint16_t queues;
	int is_tap;
};

/* ---- Opening and closing ---- */

static int set(int fd, int option, int value)
{
	return setsockopt(fd, SOL_PACKET, option, &value, sizeof(value)) == 0 ? 0 : -errno;
}

/* A packet socket for an interface; `protocol` 0 receives nothing. */
static int packet_socket(int interface, uint16_t protocol, struct shim_kernel *port, struct queue *queue)
{
	int fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	int result = set(fd, PACKET_VNET_HDR, 1);
	int bytes = SOCKET_BUFFER_BYTES;
	/* More than the system's limit only with CAP_NET_ADMIN: less will do. */
	if (setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &bytes, sizeof(bytes)) != 0)
		setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
	if (setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof(bytes)) != 0)
		setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes));
	if (result == 0 && protocol != 0) {
		struct tpacket_req ring = {
			.tp_block_size = BLOCK_BYTES,
			.tp_block_nr = RING_BYTES / BLOCK_BYTES,
			.tp_frame_size = port->place_bytes,
			.tp_frame_nr = port->places,
		};
		result = set(fd, PACKET_VERSION, TPACKET_V2);
		if (result == 0)
			result = set(fd, PACKET_COPY_THRESH, 1);
		/* Kernels before 4.20 show us what they send. */
		set(fd, PACKET_IGNORE_OUTGOING, 1);
		if (result == 0 && setsockopt(fd, SOL_PACKET, PACKET_RX_RING, &ring, sizeof(ring)) != 0)
			result = -errno;
		if (result == 0) {
			void *at = mmap(NULL, RING_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
			if (at == MAP_FAILED)
				result = -errno;
			else
				queue->ring = at;
		}
	}
	struct sockaddr_ll address = {
		.sll_family = AF_PACKET, .sll_protocol = htons(protocol), .sll_ifindex = interface,
	};
	if (result == 0 && bind(fd, (struct sockaddr *)&address, sizeof(address)) != 0)
		result = -errno;
	if (result == 0 && protocol != 0) {
		/* A switch wants every packet. */
		struct packet_mreq all = { .mr_ifindex = interface, .mr_type = PACKET_MR_PROMISC };
		setsockopt(fd, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &all, sizeof(all));
	}
	if (result != 0) {
		close(fd);
		return result;
	}
	return fd;
}

static int open_packet(struct shim_kernel *port, int interface)
{
	int group = 0;
	for (uint16_t i = 0; i < port->queues; i++) {
		struct queue *queue = &port->queue[i];
		queue->in = packet_socket(interface, ETH_P_ALL, port, queue);
		if (queue->in < 0)
			return queue->in;
		queue->out = packet_socket(interface, 0, port, queue);
		if (queue->out < 0)
			return queue->out;
		if (port->queues == 1)
			break;
		int flags = PACKET_FANOUT_HASH | PACKET_FANOUT_FLAG_IGNORE_OUTGOING;
		/* The kernel finds the first member a number that nobody has; the others join it. */
		if (i == 0)
			flags |= PACKET_FANOUT_FLAG_UNIQUEID;
		int result = set(queue->in, PACKET_FANOUT, group | flags << 16);
		if (result != 0)
			return result;
		socklen_t size = sizeof(group);
		if (i == 0 && getsockopt(queue->in, SOL_PACKET, PACKET_FANOUT, &group, &size) != 0)
			return -errno;
		group &= 0xffff;
	}
	return 0;
}

static int open_tap(struct shim_kernel *port, const char *interface)
{
	for (uint16_t i = 0; i < port->queues; i++) {
		struct queue *queue = &port->queue[i];
		struct ifreq request = { .ifr_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR };
		int header_bytes = sizeof(struct virtio_net_hdr);
		if (port->queues > 1)
			request.ifr_flags |= IFF_MULTI_QUEUE;
		strncpy(request.ifr_name, interface, sizeof(request.ifr_name) - 1);
		queue->in = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
		if (queue->in < 0)
			return -errno;
		if (ioctl(queue->in, TUNSETIFF, &request) != 0 || ioctl(queue->in, TUNSETVNETHDRSZ, &header_bytes) != 0 ||
		    ioctl(queue->in, TUNSETOFFLOAD, TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6) != 0)
			return -errno;
	}
	return 0;
}

struct shim_kernel *shim_kernel_open(const char *interface, int is_tap, uint16_t queues, uint16_t mtu, void *pool, int *error)
{
	struct shim_kernel *port;
	*error = -EINVAL;
	if (queues == 0 || queues > QUEUES_MAX)
		return NULL;
	*error = -ENOMEM;
	if (posix_memalign((void **)&port, RTE_CACHE_LINE_SIZE, sizeof(*port)) != 0)
		return NULL;
	memset(port, 0, sizeof(*port));
	port->pool = pool;
	port->queues = queues;
	port->is_tap = is_tap;
	for (uint16_t i = 0; i < QUEUES_MAX; i++)
		port->queue[i].in = port->queue[i].out = -1;
	*error = is_tap ? open_tap(port, interface) : 0;
	if (*error == 0 && mtu != 0)
		*error = shim_interface_set_mtu(interface, mtu);
	/* Before sockets are bound: one that is bound while the interface is down fails its first call. */
	if (*error == 0)
		*error = shim_interface_up(interface);
	if (*error == 0 && !is_tap) {
		int carries = shim_interface_mtu(interface);
		uint32_t wanted = RTE_MAX(carries, 0) + sizeof(struct rte_ether_hdr) + 2 * sizeof(struct rte_vlan_hdr);
		port->place_bytes = PLACE_BYTES_MIN;
		while (port->place_bytes < wanted + PLACE_HEADER_BYTES && port->place_bytes < BLOCK_BYTES)
			port->place_bytes *= 2;
		port->places = RING_BYTES / port->place_bytes;
		*error = open_packet(port, if_nametoindex(interface));
	}
	if (*error == 0)
		return port;
	shim_kernel_close(port);
	return NULL;
}

void shim_kernel_close(struct shim_kernel *port)
{
	for (uint16_t i = 0; i < port->queues; i++) {
		struct queue *queue = &port->queue[i];
		if (queue->ring != NULL)
			munmap(queue->ring, RING_BYTES);
		if (queue->in >= 0)
			close(queue->in);
		if (queue->out >= 0)
			close(queue->out);
		rte_pktmbuf_free(queue->spare);
	}
	free(port);
}

int shim_kernel_file(const struct shim_kernel *port, uint16_t queue)
{
	return port->queue[queue].in;
}

uint64_t shim_kernel_missed(struct shim_kernel *port)
{
	for (uint16_t i = 0; i < port->queues && !port->is_tap; i++) {
		struct tpacket_stats stats;
		socklen_t size = sizeof(stats);
		/* Since the last call. */
		if (getsockopt(port->queue[i].in, SOL_PACKET, PACKET_STATISTICS, &stats, &size) == 0)
			port->missed += stats.tp_drops;
	}
	return port->missed;
}

/* ---- Receiving ---- */

/* Takes a received frame over; false, and freed, when its header lies. */
static inline int deliver(struct rte_mbuf *m, const struct virtio_net_hdr *header, const void *vtable,
			  struct shim_packet *out, struct shim_burst *burst)
{
	uint16_t segment = 0;
	if (unlikely((header->flags & VIRTIO_NET_HDR_F_NEEDS_CSUM) || header->gso_type != VIRTIO_NET_HDR_GSO_NONE) &&
	    !offload_received(rte_pktmbuf_mtod(m, uint8_t *), m->data_len, header, &segment)) {
		rte_pktmbuf_free(m);
		burst->dropped++;
		return 0;
	}
	burst->bytes += m->data_len;
	*out = (struct shim_packet){ m->buf_addr, m, vtable, m->buf_len, m->data_off, m->data_len, segment };
	return 1;
}

/* Puts back the VLAN tag that the kernel has taken off. There are four bytes of headroom more than everybody counts on. */
static void put_tag(struct rte_mbuf *m, const struct tpacket2_hdr *place, struct virtio_net_hdr *header)
{
	uint8_t *data = (uint8_t *)rte_pktmbuf_prepend(m, sizeof(struct rte_vlan_hdr));
	if (data == NULL)
		return;
	uint16_t type = place->tp_status & TP_STATUS_VLAN_TPID_VALID ? place->tp_vlan_tpid : RTE_ETHER_TYPE_VLAN;
	uint16_t tag[2] = { htons(type), htons(place->tp_vlan_tci) };
	memmove(data, data + sizeof(tag), 2 * RTE_ETHER_ADDR_LEN);
	memcpy(data + 2 * RTE_ETHER_ADDR_LEN, tag, sizeof(tag));
	header->csum_start += sizeof(tag);
}

/* The frame that waits beside the ring; NULL when it cannot be taken. */
static struct rte_mbuf *read_long(int fd, struct virtio_net_hdr *header)
{
	struct rte_mbuf *m = offload_large_buffer();
	/* Without a buffer it is read all the same, since the next call must give the next frame. */
	uint8_t nothing[1];
	struct iovec parts[2] = {
		{ header, sizeof(*header) },
		{ m != NULL ? rte_pktmbuf_mtod(m, void *) : nothing, m != NULL ? rte_pktmbuf_tailroom(m) : sizeof(nothing) },
	};
	struct msghdr message = { .msg_iov = parts, .msg_iovlen = 2 };
	ssize_t n = recvmsg(fd, &message, MSG_DONTWAIT);
	if (m == NULL)
		return NULL;
	if (n <= (ssize_t)sizeof(*header) || (message.msg_flags & MSG_TRUNC)) {
		rte_pktmbuf_free(m);
		return NULL;
	}
	m->data_len = m->pkt_len = n - sizeof(*header);
	return m;
}

static uint16_t receive_packets(struct shim_kernel *port, struct queue *queue, const void *vtable, struct shim_packet *out,
				uint16_t max, struct shim_burst *burst)
{
	uint16_t done = 0;
	for (uint16_t tries = 0; tries < max; tries++) {
		struct tpacket2_hdr *place = (struct tpacket2_hdr *)(queue->ring + (size_t)queue->next * port->place_bytes);
		uint32_t status = __atomic_load_n(&place->tp_status, __ATOMIC_ACQUIRE);
		if (!(status & TP_STATUS_USER))
			break;
		uint32_t next = queue->next + 1 == port->places ? 0 : queue->next + 1;
		rte_prefetch0(queue->ring + (size_t)next * port->place_bytes);
		struct virtio_net_hdr header;
		struct rte_mbuf *m = NULL;
		const uint8_t *from = (const uint8_t *)place + place->tp_mac;
		if (unlikely(status & TP_STATUS_COPY)) {
			m = read_long(queue->in, &header);
		} else if (place->tp_snaplen == place->tp_len) {
			memcpy(&header, from - sizeof(header), sizeof(header));
			m = rte_pktmbuf_alloc(port->pool);
			if (m != NULL && unlikely(place->tp_snaplen > rte_pktmbuf_tailroom(m))) {
				rte_pktmbuf_free(m);
				m = offload_large_buffer();
			}
			if (likely(m != NULL)) {
				rte_memcpy(rte_pktmbuf_mtod(m, uint8_t *), from, place->tp_snaplen);
				m->data_len = m->pkt_len = place->tp_snaplen;
			}
		}
		if (likely(m != NULL) && (status & TP_STATUS_VLAN_VALID) && m->data_len >= 2 * RTE_ETHER_ADDR_LEN)
			put_tag(m, place, &header);
		__atomic_store_n(&place->tp_status, TP_STATUS_KERNEL, __ATOMIC_RELEASE);
		queue->next = next;
		if (unlikely(m == NULL))
			burst->dropped++;
		else
			done += deliver(m, &header, vtable, &out[done], burst);
	}
	return done;
}

static uint16_t receive_tap(struct shim_kernel *port, struct queue *queue, const void *vtable, struct shim_packet *out,
			    uint16_t max, struct shim_burst *burst)
{
	uint16_t done = 0;
	for (uint16_t tries = 0; tries < max; tries++) {
		if (queue->spare == NULL)
			queue->spare = offload_large_buffer();
		struct rte_mbuf *m = rte_pktmbuf_alloc(port->pool);
		if (m == NULL)
			break;
		struct virtio_net_hdr header;
		uint32_t room = rte_pktmbuf_tailroom(m);
		struct iovec parts[3] = { { &header, sizeof(header) }, { rte_pktmbuf_mtod(m, void *), room } };
		int count = 2;
		if (likely(queue->spare != NULL))
			parts[count++] = (struct iovec){ rte_pktmbuf_mtod_offset(queue->spare, void *, room),
							 rte_pktmbuf_tailroom(queue->spare) - room };
		ssize_t n = readv(queue->in, parts, count);
		if (n <= (ssize_t)sizeof(header)) {
			rte_pktmbuf_free(m);
			break;
		}
		n -= sizeof(header);
		if (unlikely(n > room)) {
			struct rte_mbuf *large = queue->spare;
			queue->spare = NULL;
			rte_memcpy(rte_pktmbuf_mtod(large, uint8_t *), rte_pktmbuf_mtod(m, uint8_t *), room);
			rte_pktmbuf_free(m);
			m = large;
		}
		m->data_len = m->pkt_len = n;
		done += deliver(m, &header, vtable, &out[done], burst);
	}
	return done;
}

uint16_t shim_kernel_rx(struct shim_kernel *port, uint16_t index, const void *vtable, struct shim_packet *out, uint16_t max,
			struct shim_burst *burst)
{
	struct queue *queue = &port->queue[index];
	return port->is_tap ? receive_tap(port, queue, vtable, out, max, burst) :
			      receive_packets(port, queue, vtable, out, max, burst);
}

/* ---- Sending ---- */

/* What a device does not take is refused with ENOBUFS, whether its queue is full or the frame longer than what is at the other end of a
 * veth pair takes. So often a frame waits; then it is dropped, with those behind it that are as long, and the others get their turn. */
#define REFUSALS_MAX 2

/* Whether the kernel will have room again, so that the packet can wait. `too_long` is the length of the shortest frame that could not. */
static int is_full(struct queue *queue, const struct shim_packet *packet, uint32_t *too_long, int error)
{
	if (error != ENOBUFS)
		return error == EAGAIN || error == EINTR;
	if (packet->len >= *too_long)
		return 0;
	queue->refusals = queue->refused == packet->handle ? queue->refusals + 1 : 1;
	queue->refused = packet->handle;
	if (queue->refusals < REFUSALS_MAX)
		return 1;
	queue->refused = NULL;
	*too_long = packet->len;
	return 0;
}

/* Hands `count` frames to the kernel; returns how many it took or refused for good. */
static uint16_t hand_over(const struct shim_kernel *port, struct queue *queue, struct mmsghdr *messages,
			  const struct shim_packet *packets, uint16_t count, struct shim_burst *burst)
{
	uint16_t done = 0;
	uint32_t too_long = UINT32_MAX;
	while (done < count) {
		int n;
		if (port->is_tap)
			n = writev(queue->in, messages[done].msg_hdr.msg_iov, 2) < 0 ? -1 : 1;
		else
			n = sendmmsg(queue->out, messages + done, count - done, MSG_DONTWAIT);
		if (n <= 0) {
			if (is_full(queue, &packets[done], &too_long, errno))
				break;
			/* Too short or too long, the interface is down or gone: this frame never leaves. */
			burst->dropped++;
			done++;
			continue;
		}
		queue->refused = NULL;
		for (int i = 0; i < n; i++)
			burst->bytes += packets[done++].len;
	}
	return done;
}

uint16_t shim_kernel_tx(struct shim_kernel *port, uint16_t index, const void *vtable, const struct shim_packet *packets,
			uint16_t count, struct shim_burst *burst)
{
	static const struct virtio_net_hdr none;
	struct queue *queue = &port->queue[index];
	struct virtio_net_hdr headers[BURST_MAX];
	struct mmsghdr messages[BURST_MAX];
	struct iovec parts[BURST_MAX][2];
	struct rte_mbuf *mbufs[BURST_MAX];
	uint32_t frame_max = __atomic_load_n(&port->base.frame_max, __ATOMIC_RELAXED);
	uint16_t ready = 0;

	count = RTE_MIN(count, (uint16_t)BURST_MAX);
	for (; ready < count; ready++) {
		const struct shim_packet *packet = &packets[ready];
		uint8_t *data = packet->base + packet->offset;
		const struct virtio_net_hdr *header = &none;
		if (unlikely(packet->segment != 0)) {
			struct virtio_net_hdr *large = &headers[ready];
			if (packet->vtable != vtable || !offload_for_peer(data, packet->len, packet->segment, large) ||
			    (packet->segment & SEGMENT_UDP) || large->hdr_len + (uint32_t)large->gso_size > frame_max) {
				burst->stopped = 1;
				break;
			}
			header = large;
		} else if (unlikely(packet->vtable != vtable || packet->len - 1u >= frame_max)) {
			burst->stopped = 1;
			break;
		}
		mbufs[ready] = packet->handle;
		parts[ready][0] = (struct iovec){ (void *)header, sizeof(*header) };
		parts[ready][1] = (struct iovec){ data, packet->len };
		messages[ready] = (struct mmsghdr){ .msg_hdr = { .msg_iov = parts[ready], .msg_iovlen = 2 } };
	}
	uint16_t done = hand_over(port, queue, messages, packets, ready, burst);
	if (done != 0)
		rte_pktmbuf_free_bulk(mbufs, done);
	return done;
}
