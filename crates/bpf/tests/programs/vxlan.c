/* A VXLAN tunnel endpoint (RFC 7348): encapsulates frames by destination MAC address and decapsulates what comes from
 * the underlay. */
#include "packet.h"

#define VXLAN_PORT 4789
#define VXLAN_FLAGS 0x08

struct vxlan {
    __u8 flags;
    __u8 reserved[3];
    __u8 vni[3];
    __u8 reserved2;
};

struct outer {
    struct ethernet ethernet;
    struct ipv4 ip;
    struct udp udp;
    struct vxlan vxlan;
} __attribute__((packed));

struct station {
    __u8 address[6];
};

struct tunnel {
    __be32 source;
    __be32 destination;
    __u32 vni;
    __u32 port;
    __u8 next_hop[6];
    __u8 own[6];
};

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 1024);
    __type(key, struct station);
    __type(value, struct tunnel);
} stations SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 64);
    __type(key, __u32);
    __type(value, __u32);
} networks SEC(".maps");

static const char unknown[] = "no port for VNI %u";

SEC("xdp/encap")
int encap(struct xdp_md *ctx)
{
    struct ethernet *inner = DATA(ctx);
    if ((void *)(inner + 1) > DATA_END(ctx))
        return XDP_DROP;
    struct station key;
    __builtin_memcpy(key.address, inner->destination, 6);
    /* Spreads flows of the tunnel over paths. */
    __u32 hash = inner->source[5] * 31 + inner->destination[5];
    struct tunnel *tunnel = bpf_map_lookup_elem(&stations, &key);
    if (!tunnel)
        return XDP_PASS;
    __u64 length = DATA_END(ctx) - DATA(ctx);
    /* Keeps the subtraction in front of the helper that moves the packet. */
    asm volatile("" : "+r"(length));
    if (bpf_xdp_adjust_head(ctx, -(int)sizeof(struct outer)))
        return XDP_ABORTED;
    struct outer *outer = DATA(ctx);
    if ((void *)(outer + 1) > DATA_END(ctx))
        return XDP_ABORTED;
    __builtin_memcpy(outer->ethernet.destination, tunnel->next_hop, 6);
    __builtin_memcpy(outer->ethernet.source, tunnel->own, 6);
    outer->ethernet.type = bpf_htons(ETH_IPV4);
    outer->ip.version_ihl = 0x45;
    outer->ip.length = bpf_htons(length + sizeof(struct outer) - sizeof(struct ethernet));
    outer->ip.ttl = 64;
    outer->ip.protocol = UDP;
    outer->ip.source = tunnel->source;
    outer->ip.destination = tunnel->destination;
    __be32 *header = (void *)outer + sizeof(struct ethernet);
    outer->ip.checksum = fold(bpf_csum_diff(0, 0, header, sizeof(struct ipv4), 0));
    outer->udp.source = bpf_htons(49152 + (hash & 0x3fff));
    outer->udp.destination = bpf_htons(VXLAN_PORT);
    outer->udp.length = bpf_htons(length + sizeof(struct udp) + sizeof(struct vxlan));
    outer->vxlan.flags = VXLAN_FLAGS;
    outer->vxlan.vni[0] = tunnel->vni >> 16;
    outer->vxlan.vni[1] = tunnel->vni >> 8;
    outer->vxlan.vni[2] = tunnel->vni;
    return bpf_redirect(tunnel->port, 0);
}

SEC("xdp/decap")
int decap(struct xdp_md *ctx)
{
    struct outer *outer = DATA(ctx);
    if ((void *)(outer + 1) > DATA_END(ctx))
        return XDP_PASS;
    if (outer->ethernet.type != bpf_htons(ETH_IPV4) || outer->ip.version_ihl != 0x45 || outer->ip.protocol != UDP)
        return XDP_PASS;
    if (outer->udp.destination != bpf_htons(VXLAN_PORT) || outer->vxlan.flags != VXLAN_FLAGS)
        return XDP_PASS;
    __u32 vni = outer->vxlan.vni[0] << 16 | outer->vxlan.vni[1] << 8 | outer->vxlan.vni[2];
    __u32 *port = bpf_map_lookup_elem(&networks, &vni);
    if (!port) {
        bpf_trace_printk(unknown, sizeof(unknown), vni);
        return XDP_DROP;
    }
    if (bpf_xdp_adjust_head(ctx, sizeof(struct outer)))
        return XDP_DROP;
    return bpf_redirect(*port, 0);
}
