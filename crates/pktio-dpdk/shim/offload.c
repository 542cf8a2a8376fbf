/* See offload.h for the rule. */
#include "offload.h"

#include <errno.h>
#include <string.h>

#include <rte_byteorder.h>
#include <rte_ether.h>
#include <rte_ip.h>
#include <rte_memcpy.h>
#include <rte_tcp.h>
#include <rte_udp.h>

/* Network layers in a frame: one, or two with a tunnel. */
#define LAYERS_MAX 2

#define VXLAN_PORT 4789
#define VXLAN_BYTES 8
#define ETHERTYPE_QINQ_OLD 0x9100

/* Newer than the headers of Debian 12. */
#ifndef VIRTIO_NET_HDR_GSO_UDP_L4
#define VIRTIO_NET_HDR_GSO_UDP_L4 5
#endif

/* An IP header, and the UDP header of a tunnel behind it. */
struct layer {
	uint16_t ip;
	uint16_t udp; /* 0: none */
	uint8_t is_v6;
};

/* Where the parts of a large frame are. */
struct place {
	struct layer layer[LAYERS_MAX];
	uint8_t layers;
	uint8_t is_udp;
	uint16_t transport;
	uint16_t payload;
};

static struct rte_mempool *large_pool;

int shim_large_pool_create(const char *name, uint32_t count)
{
	large_pool = rte_pktmbuf_pool_create(name, count, 32, 0, RTE_PKTMBUF_HEADROOM + LARGE_DATA_BYTES, SOCKET_ID_ANY);
	return large_pool == NULL ? -ENOMEM : 0;
}

struct rte_mbuf *offload_large_buffer(void)
{
	return rte_pktmbuf_alloc(large_pool);
}

static inline uint16_t load16(const uint8_t *at)
{
	return (uint16_t)(at[0] << 8 | at[1]);
}

static inline void store16(uint8_t *at, uint16_t value)
{
	at[0] = value >> 8;
	at[1] = value & 0xff;
}

static inline uint32_t load32(const uint8_t *at)
{
	return (uint32_t)load16(at) << 16 | load16(at + 2);
}

static inline void store32(uint8_t *at, uint32_t value)
{
	store16(at, value >> 16);
	store16(at + 2, value & 0xffff);
}

/* In UDP zero means that there is no checksum; elsewhere both zeros are equal. */
static inline uint16_t never_zero(uint16_t sum)
{
	return sum == 0 ? 0xffff : sum;
}

int offload_received(uint8_t *data, uint32_t length, const struct virtio_net_hdr *header, uint16_t *segment)
{
	*segment = 0;
	if (header->flags & VIRTIO_NET_HDR_F_NEEDS_CSUM) {
		uint32_t start = header->csum_start, at = start + header->csum_offset;
		if (start >= length || at + 2 > length)
			return 0;
		/* The sender has put the pseudo header's sum in its place. */
		uint16_t sum = never_zero(~rte_raw_cksum(data + start, length - start));
		memcpy(data + at, &sum, sizeof(sum));
	}
	switch (header->gso_type & ~VIRTIO_NET_HDR_GSO_ECN) {
	case VIRTIO_NET_HDR_GSO_NONE:
		return 1;
	case VIRTIO_NET_HDR_GSO_TCPV4:
	case VIRTIO_NET_HDR_GSO_TCPV6:
		*segment = header->gso_size;
		break;
	case VIRTIO_NET_HDR_GSO_UDP_L4:
		*segment = header->gso_size | SEGMENT_UDP;
		break;
	default:
		return 0;
	}
	return header->gso_size != 0 && header->gso_size < SEGMENT_UDP;
}

/* Finds the layers of a TCP frame, or of a UDP one; 0 when it has none that we know. */
static int find(const uint8_t *data, uint32_t length, int is_udp, struct place *place)
{
	uint32_t at = 2 * RTE_ETHER_ADDR_LEN;
	uint16_t type;

	memset(place, 0, sizeof(*place));
	place->is_udp = is_udp;
	for (;;) {
		if (at + 2 > length)
			return 0;
		type = load16(data + at);
		at += 2;
		if (type != RTE_ETHER_TYPE_VLAN && type != RTE_ETHER_TYPE_QINQ && type != ETHERTYPE_QINQ_OLD)
			break;
		at += 2;
	}
	while (place->layers < LAYERS_MAX) {
		struct layer *layer = &place->layer[place->layers++];
		uint8_t protocol;
		layer->ip = at;
		layer->is_v6 = type == RTE_ETHER_TYPE_IPV6;
		if (type == RTE_ETHER_TYPE_IPV4) {
			if (at + sizeof(struct rte_ipv4_hdr) > length || data[at] >> 4 != 4 || (data[at] & 0xf) < 5)
				return 0;
			protocol = data[at + 9];
			/* A fragment is no frame of its own. */
			if (load16(data + at + 6) & 0x3fff)
				return 0;
			at += 4 * (data[at] & 0xf);
		} else if (type == RTE_ETHER_TYPE_IPV6) {
			if (at + sizeof(struct rte_ipv6_hdr) > length || data[at] >> 4 != 6)
				return 0;
			protocol = data[at + 6];
			at += sizeof(struct rte_ipv6_hdr);
		} else {
			return 0;
		}
		if (protocol == IPPROTO_IPIP || protocol == IPPROTO_IPV6) {
			type = protocol == IPPROTO_IPIP ? RTE_ETHER_TYPE_IPV4 : RTE_ETHER_TYPE_IPV6;
			continue;
		}
		place->transport = at;
		if (protocol == IPPROTO_TCP && !is_udp) {
			if (at + sizeof(struct rte_tcp_hdr) > length || data[at + 12] >> 4 < 5)
				return 0;
			at += 4 * (data[at + 12] >> 4);
			place->payload = at;
			return at < length;
		}
		if (protocol != IPPROTO_UDP || at + sizeof(struct rte_udp_hdr) > length)
			return 0;
		if (load16(data + at + 2) == VXLAN_PORT && place->layers < LAYERS_MAX) {
			layer->udp = at;
			at += sizeof(struct rte_udp_hdr) + VXLAN_BYTES + 2 * RTE_ETHER_ADDR_LEN;
			if (at + 2 > length)
				return 0;
			type = load16(data + at);
			at += 2;
			continue;
		}
		place->payload = at + sizeof(struct rte_udp_hdr);
		return is_udp && place->payload < length;
	}
	return 0;
}

/* The sum over addresses, protocol and length that TCP and UDP have before their header; not complemented. */
static uint16_t pseudo_sum(const uint8_t *ip, int is_v6, uint8_t protocol, uint32_t length)
{
	uint8_t tail[8];
	store32(tail, length);
	store32(tail + 4, protocol);
	uint32_t sum = is_v6 ? rte_raw_cksum(ip + 8, 32) : rte_raw_cksum(ip + 12, 8);
	sum += rte_raw_cksum(tail, sizeof(tail));
	sum = (sum & 0xffff) + (sum >> 16);
	return (uint16_t)((sum & 0xffff) + (sum >> 16));
}

/* The whole transport checksum of the bytes from `at` to `end`; its place holds zero. */
static uint16_t transport_sum(const uint8_t *data, const struct layer *layer, uint8_t protocol, uint32_t at, uint32_t end)
{
	uint32_t sum = pseudo_sum(data + layer->ip, layer->is_v6, protocol, end - at);
	sum += rte_raw_cksum(data + at, end - at);
	sum = (sum & 0xffff) + (sum >> 16);
	return never_zero(~((sum & 0xffff) + (sum >> 16)));
}

/* Lengths and checksums of an IP header, and of the UDP header behind it, in a frame that ends at `end`. */
static void finish_layer(uint8_t *data, const struct layer *layer, uint32_t end, uint32_t number)
{
	uint8_t *ip = data + layer->ip;
	if (layer->is_v6) {
		store16(ip + 4, end - layer->ip - sizeof(struct rte_ipv6_hdr));
	} else {
		store16(ip + 2, end - layer->ip);
		store16(ip + 4, load16(ip + 4) + number);
		memset(ip + 10, 0, 2);
		uint16_t sum = ~rte_raw_cksum(ip, 4 * (ip[0] & 0xf));
		memcpy(ip + 10, &sum, sizeof(sum));
	}
	if (layer->udp != 0) {
		uint8_t *udp = data + layer->udp;
		store16(udp + 4, end - layer->udp);
		if (load16(udp + 6) != 0) {
			memset(udp + 6, 0, 2);
			uint16_t sum = transport_sum(data, layer, IPPROTO_UDP, layer->udp, end);
			memcpy(udp + 6, &sum, sizeof(sum));
		}
	}
}

/* Makes segment `number`, whose payload is in place behind copies of the headers, a frame of its own. */
static void finish_segment(uint8_t *data, const struct place *place, uint32_t end, uint32_t number, uint32_t skipped,
			   int is_last)
{
	const struct layer *inner = &place->layer[place->layers - 1];
	uint8_t *transport = data + place->transport;
	uint32_t at;

	if (place->is_udp) {
		store16(transport + 4, end - place->transport);
		at = 6;
	} else {
		store32(transport + 4, load32(transport + 4) + skipped);
		if (!is_last)
			transport[13] &= ~(RTE_TCP_FIN_FLAG | RTE_TCP_PSH_FLAG);
		if (number != 0)
			transport[13] &= ~RTE_TCP_CWR_FLAG;
		at = 16;
	}
	memset(transport + at, 0, 2);
	uint16_t sum =
		transport_sum(data, inner, place->is_udp ? IPPROTO_UDP : IPPROTO_TCP, place->transport, end);
	memcpy(transport + at, &sum, sizeof(sum));
	/* From the inside out: an outer checksum is over the inner headers. */
	for (int i = place->layers - 1; i >= 0; i--)
		finish_layer(data, &place->layer[i], end, number);
}

int shim_segment(const struct shim_packet *packet, void *pool, uint32_t frame_max, struct shim_packet *out, uint32_t max)
{
	const uint8_t *from = packet->base + packet->offset;
	uint32_t each = packet->segment & ~SEGMENT_UDP;
	struct place place;

	if (!find(from, packet->len, (packet->segment & SEGMENT_UDP) != 0, &place))
		return -EPROTONOSUPPORT;
	uint32_t headers = place.payload, payload = packet->len - headers;
	uint32_t count = (payload + each - 1) / each;
	if (count > RTE_MIN(max, (uint32_t)SEGMENTS_MAX))
		return -E2BIG;
	if (headers + RTE_MIN(each, payload) > frame_max)
		return -EMSGSIZE;
	for (uint32_t i = 0; i < count; i++) {
		uint32_t n = RTE_MIN(each, payload - i * each);
		struct rte_mbuf *m = rte_pktmbuf_alloc(pool);
		if (m != NULL && rte_pktmbuf_tailroom(m) < headers + n) {
			rte_pktmbuf_free(m);
			m = offload_large_buffer();
		}
		if (m == NULL) {
			for (uint32_t k = 0; k < i; k++)
				rte_pktmbuf_free(out[k].handle);
			return -ENOMEM;
		}
		uint8_t *to = rte_pktmbuf_mtod(m, uint8_t *);
		rte_memcpy(to, from, headers);
		rte_memcpy(to + headers, from + headers + i * each, n);
		finish_segment(to, &place, headers + n, i, i * each, i + 1 == count);
		out[i] = (struct shim_packet){
			m->buf_addr, m, packet->vtable, m->buf_len, m->data_off, headers + n, 0,
		};
	}
	return (int)count;
}

int offload_for_peer(uint8_t *data, uint32_t length, uint16_t segment, struct virtio_net_hdr *header)
{
	struct place place;
	int is_udp = (segment & SEGMENT_UDP) != 0;

	if (!find(data, length, is_udp, &place) || place.layers != 1)
		return 0;
	/* Only the first segment says that the window was reduced: a flag that peers negotiate apart. */
	if (!is_udp && (data[place.transport + 13] & RTE_TCP_CWR_FLAG))
		return 0;
	const struct layer *layer = &place.layer[0];
	uint16_t offset = is_udp ? 6 : 16;
	uint16_t sum = pseudo_sum(data + layer->ip, layer->is_v6, is_udp ? IPPROTO_UDP : IPPROTO_TCP,
				  length - place.transport);
	memcpy(data + place.transport + offset, &sum, sizeof(sum));
	*header = (struct virtio_net_hdr){
		.flags = VIRTIO_NET_HDR_F_NEEDS_CSUM,
		.gso_type = is_udp ? VIRTIO_NET_HDR_GSO_UDP_L4 :
			    layer->is_v6 ? VIRTIO_NET_HDR_GSO_TCPV6 :
					   VIRTIO_NET_HDR_GSO_TCPV4,
		.hdr_len = place.payload,
		.gso_size = segment & ~SEGMENT_UDP,
		.csum_start = place.transport,
		.csum_offset = offset,
	};
	return 1;
}
