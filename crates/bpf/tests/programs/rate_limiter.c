/* Limits the packets per second of each source address by a token bucket. Passes what is not IPv4.
 *
 * The map `limits` holds the rate and burst of all buckets; `argument` is the class that is looked up there. */
#include "packet.h"

struct limit {
    __u64 packets_per_second;
    __u64 burst;
};

struct bucket {
    __u64 tokens;
    __u64 updated_ns;
};

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 16);
    __type(key, __u32);
    __type(value, struct limit);
} limits SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, 1024);
    __type(key, __be32);
    __type(value, struct bucket);
} buckets SEC(".maps");

__u64 dropped;

SEC("xdp")
int rate_limiter(struct xdp_md *ctx)
{
    struct ipv4 *ip = find_ipv4(DATA(ctx), DATA_END(ctx));
    if (!ip)
        return XDP_PASS;
    __u32 class = ctx->argument;
    struct limit *limit = bpf_map_lookup_elem(&limits, &class);
    if (!limit || !limit->packets_per_second)
        return XDP_PASS;
    __u64 now = bpf_ktime_get_ns();
    __be32 source = ip->source;
    struct bucket *bucket = bpf_map_lookup_elem(&buckets, &source);
    if (!bucket) {
        struct bucket full = { limit->burst - 1, now };
        bpf_map_update_elem(&buckets, &source, &full, BPF_ANY);
        return XDP_PASS;
    }
    __u64 earned = (now - bucket->updated_ns) * limit->packets_per_second / 1000000000;
    if (earned) {
        __u64 tokens = bucket->tokens + earned;
        bucket->tokens = tokens < limit->burst ? tokens : limit->burst;
        bucket->updated_ns = now;
    }
    if (!bucket->tokens) {
        __sync_fetch_and_add(&dropped, 1);
        return XDP_DROP;
    }
    bucket->tokens--;
    return XDP_PASS;
}

char _license[] SEC("license") = "Apache-2.0";
