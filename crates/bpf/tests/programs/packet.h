/* Headers of the protocols that the programs of this folder know. */
#ifndef PACKET_H
#define PACKET_H

#include "sluice_bpf.h"

#define ETH_IPV4 0x0800
#define ETH_MPLS 0x8847
#define TCP 6
#define UDP 17

struct ethernet {
    __u8 destination[6];
    __u8 source[6];
    __be16 type;
};

struct ipv4 {
    __u8 version_ihl;
    __u8 tos;
    __be16 length;
    __be16 id;
    __be16 fragment;
    __u8 ttl;
    __u8 protocol;
    __be16 checksum;
    __be32 source;
    __be32 destination;
};

struct udp {
    __be16 source;
    __be16 destination;
    __be16 length;
    __be16 checksum;
};

struct tcp {
    __be16 source;
    __be16 destination;
    __be32 sequence;
    __be32 acknowledgement;
    __u8 offset;
    __u8 flags;
    __be16 window;
    __be16 checksum;
    __be16 urgent;
};

#define DATA(ctx) ((void *)(long)(ctx)->data)
#define DATA_END(ctx) ((void *)(long)(ctx)->data_end)

/* The IPv4 header of a packet without options and fragments; null if there is none. */
static __always_inline struct ipv4 *find_ipv4(void *data, void *end)
{
    struct ethernet *ethernet = data;
    struct ipv4 *ip = (void *)(ethernet + 1);
    if ((void *)(ip + 1) > end)
        return 0;
    if (ethernet->type != bpf_htons(ETH_IPV4) || ip->version_ihl != 0x45)
        return 0;
    if (ip->fragment & bpf_htons(0x3fff))
        return 0;
    return ip;
}

static __always_inline __u16 fold(__u64 sum)
{
    sum = (sum & 0xffffffff) + (sum >> 32);
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    return ~sum;
}

#endif
