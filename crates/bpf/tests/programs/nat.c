/* Dynamic source NAT of UDP (RFC 4787, endpoint-independent mapping): packets from inside get the public address and a
 * free port; packets from outside go to the host that has the port.
 *
 * The map `config` holds the public address. `argument` is 1 for packets from inside. */
#include "packet.h"

#define FIRST_PORT 20000
#define PORTS 256

struct endpoint {
    __be32 address;
    __be16 port;
    __u16 zero;
};

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, __be32);
} config SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, PORTS);
    __type(key, struct endpoint);
    __type(value, __u16);
} outgoing SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, PORTS);
    __type(key, __u16);
    __type(value, struct endpoint);
} incoming SEC(".maps");

/* Where the search for a free port begins. */
__u32 next_port;

/* Replaces an address and a port, and corrects both checksums. */
static __noinline int translate(struct xdp_md *ctx, __be32 address, __be16 port, int inside)
{
    void *end = DATA_END(ctx);
    struct ipv4 *ip = find_ipv4(DATA(ctx), end);
    if (!ip)
        return -1;
    struct udp *udp = (void *)(ip + 1);
    if ((void *)(udp + 1) > end)
        return -1;
    __be32 old_address[2] = { inside ? ip->source : ip->destination, inside ? udp->source : udp->destination };
    __be32 new_address[2] = { address, port };
    __u64 header = bpf_csum_diff(old_address, 4, new_address, 4, (__u16)~ip->checksum);
    ip->checksum = fold(header);
    if (udp->checksum) {
        __u64 datagram = bpf_csum_diff(old_address, 8, new_address, 8, (__u16)~udp->checksum);
        __u16 checksum = fold(datagram);
        udp->checksum = checksum ? checksum : 0xffff;
    }
    if (inside) {
        ip->source = address;
        udp->source = port;
    } else {
        ip->destination = address;
        udp->destination = port;
    }
    return 0;
}

/* A port for a host that has none; 0 if all are in use. */
static __noinline int assign(__be32 address, __be16 port)
{
    struct endpoint host = { address, port, 0 };
    __u32 start = next_port++;
    for (int i = 0; i < PORTS; i++) {
        __u16 candidate = FIRST_PORT + (start + i) % PORTS;
        if (bpf_map_update_elem(&incoming, &candidate, &host, BPF_NOEXIST) == 0) {
            if (bpf_map_update_elem(&outgoing, &host, &candidate, BPF_ANY)) {
                bpf_map_delete_elem(&incoming, &candidate);
                return 0;
            }
            return candidate;
        }
    }
    return 0;
}

SEC("xdp")
int nat(struct xdp_md *ctx)
{
    void *end = DATA_END(ctx);
    struct ipv4 *ip = find_ipv4(DATA(ctx), end);
    if (!ip || ip->protocol != UDP)
        return XDP_PASS;
    struct udp *udp = (void *)(ip + 1);
    if ((void *)(udp + 1) > end)
        return XDP_DROP;
    __u32 zero = 0;
    __be32 *public = bpf_map_lookup_elem(&config, &zero);
    if (!public || !*public)
        return XDP_DROP;
    if (ctx->argument == 1) {
        struct endpoint host = { ip->source, udp->source, 0 };
        __u16 *known = bpf_map_lookup_elem(&outgoing, &host);
        int port = known ? *known : assign(host.address, host.port);
        if (!port || translate(ctx, *public, bpf_htons(port), 1))
            return XDP_DROP;
        return XDP_PASS;
    }
    if (ip->destination != *public)
        return XDP_PASS;
    __u16 port = bpf_ntohs(udp->destination);
    struct endpoint *host = bpf_map_lookup_elem(&incoming, &port);
    if (!host || translate(ctx, host->address, host->port, 0))
        return XDP_DROP;
    return XDP_PASS;
}
