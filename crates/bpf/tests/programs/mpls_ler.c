/* An MPLS label edge router (RFC 3032): pushes a label on IPv4 packets by ingress port and longest prefix of the
 * destination, and pops the label of packets that come from the core. */
#include "packet.h"

struct prefix {
    __u32 length;
    __be32 address;
};

struct forwarding {
    __u32 label;
    __u32 port;
};

struct {
    __uint(type, BPF_MAP_TYPE_LPM_TRIE);
    __uint(max_entries, 256);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __type(key, struct prefix);
    __type(value, struct forwarding);
} routes SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 256);
    __uint(key_size, 4);
    __uint(value_size, 4);
} labels SEC(".maps");

#define BOTTOM_OF_STACK (1 << 8)

SEC("xdp/push")
int push(struct xdp_md *ctx)
{
    struct ipv4 *ip = find_ipv4(DATA(ctx), DATA_END(ctx));
    if (!ip)
        return XDP_PASS;
    struct prefix key = { 32, ip->destination };
    struct forwarding *route = bpf_map_lookup_elem(&routes, &key);
    if (!route || ip->ttl <= 1)
        return XDP_DROP;
    __u32 entry = route->label << 12 | BOTTOM_OF_STACK | (ip->ttl - 1);
    if (bpf_xdp_adjust_head(ctx, -4))
        return XDP_ABORTED;
    __u8 *data = DATA(ctx);
    if (data + sizeof(struct ethernet) + 4 > (__u8 *)DATA_END(ctx))
        return XDP_ABORTED;
    __builtin_memmove(data, data + 4, 12);
    *(__be16 *)(data + 12) = bpf_htons(ETH_MPLS);
    *(__be16 *)(data + 14) = bpf_htons(entry >> 16);
    *(__be16 *)(data + 16) = bpf_htons(entry & 0xffff);
    return bpf_redirect(route->port, 0);
}

SEC("xdp/pop")
int pop(struct xdp_md *ctx)
{
    __u8 *data = DATA(ctx);
    if (data + sizeof(struct ethernet) + 4 + sizeof(struct ipv4) > (__u8 *)DATA_END(ctx))
        return XDP_PASS;
    if (*(__be16 *)(data + 12) != bpf_htons(ETH_MPLS))
        return XDP_PASS;
    __u32 entry = bpf_ntohs(*(__be16 *)(data + 14)) << 16 | bpf_ntohs(*(__be16 *)(data + 16));
    if (!(entry & BOTTOM_OF_STACK) || (data[18] >> 4) != 4)
        return XDP_DROP;
    __u32 label = entry >> 12;
    __u32 *port = bpf_map_lookup_elem(&labels, &label);
    if (!port)
        return XDP_DROP;
    __builtin_memmove(data + 4, data, 12);
    *(__be16 *)(data + 16) = bpf_htons(ETH_IPV4);
    if (bpf_xdp_adjust_head(ctx, 4))
        return XDP_ABORTED;
    return bpf_redirect(*port, 0);
}
