/* A stateful firewall: TCP connections may be opened from inside ports only.
 *
 * A segment from an inside port with SYN makes an entry; RST or FIN from either side removes it. Segments from outside
 * pass if there is an entry. */
#include "packet.h"

#define FIN 1
#define SYN 2
#define RST 4

struct connection {
    __be32 inside_address;
    __be32 outside_address;
    __be16 inside_port;
    __be16 outside_port;
};

struct bpf_map_def SEC("maps") inside_ports = {
    .type = BPF_MAP_TYPE_HASH,
    .key_size = sizeof(__u32),
    .value_size = sizeof(__u32),
    .max_entries = 64,
};

struct bpf_map_def SEC("maps") connections = {
    .type = BPF_MAP_TYPE_HASH,
    .key_size = sizeof(struct connection),
    .value_size = sizeof(__u64),
    .max_entries = 4096,
};

SEC("xdp")
int firewall(struct xdp_md *ctx)
{
    void *end = DATA_END(ctx);
    struct ipv4 *ip = find_ipv4(DATA(ctx), end);
    if (!ip || ip->protocol != TCP)
        return XDP_PASS;
    struct tcp *tcp = (void *)(ip + 1);
    if ((void *)(tcp + 1) > end)
        return XDP_DROP;
    __u32 port = ctx->ingress_ifindex;
    int inside = bpf_map_lookup_elem(&inside_ports, &port) != 0;
    struct connection key = {};
    key.inside_address = inside ? ip->source : ip->destination;
    key.outside_address = inside ? ip->destination : ip->source;
    key.inside_port = inside ? tcp->source : tcp->destination;
    key.outside_port = inside ? tcp->destination : tcp->source;
    __u64 *segments = bpf_map_lookup_elem(&connections, &key);
    if (!segments) {
        if (!inside)
            return XDP_DROP;
        if (tcp->flags & SYN) {
            __u64 first = 1;
            if (bpf_map_update_elem(&connections, &key, &first, BPF_NOEXIST))
                return XDP_DROP;
        }
        return XDP_PASS;
    }
    __sync_fetch_and_add(segments, 1);
    if (tcp->flags & (FIN | RST))
        bpf_map_delete_elem(&connections, &key);
    return XDP_PASS;
}
