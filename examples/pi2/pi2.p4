// PI2, an active queue management, as a program of egress (De Schepper, Bondarenko, Tsang, Briscoe: "PI2: A Linearized AQM
// for both Classic and Scalable TCP", CoNEXT 2016).
//
// A proportional-integral controller changes a queue's p' once in each period T, by what a packet has waited for:
//
//     p' <- p' + alpha (delay - target) + beta (delay - delay before)
//
// Scalable congestion controls, which the paper tells by ECT(1), have packets marked with the probability k p', k = 2. What
// classic ones do goes with the square root of a probability, so theirs is p'^2: each of two random numbers has to be less
// than p'. Their packets are marked if they know ECN (RFC 3168), and dropped otherwise. p' is at most 1/2, where all
// scalable packets are marked and a quarter of the classic ones.
//
// T is 2^15 microseconds (the paper: 32 ms), and the first packet of a period does its update. In a period without packets
// nobody waited: that is made up for. p' has 40 bits behind the point; alpha and beta are 2^-40 for each microsecond. The
// paper's 0.3125 and 3.125 Hz and its target of 20 ms hold for ports for which nothing else is set.
//
// Forwarding is by MAC address, the queue by the DSCP's upper three bits (class selectors, RFC 2474).

#include <core.p4>
#include <v1model.p4>
#include <p4lib/headers.p4>

// ECN, RFC 3168, section 5. A packet that is marked already may be of either kind.
const bit<2> NOT_ECT = 0;
const bit<2> ECT_1 = 1;
const bit<2> CE = 3;

typedef bit<33> period_t;
// 96 bits are enough for a gain, a delay and the number of a period together.
const int<96> P_MAX = 1 << 39;

struct pi2_t {
    // Of the last update: when, and what the packet had waited for.
    period_t period;
    bit<32>  delay;
    bit<40>  p;
}

struct metadata_t {
    int<96> target;
    int<96> alpha;
    int<96> beta;
}

struct headers_t {
    ethernet_t ethernet;
    ipv4_t     ipv4;
    ipv6_t     ipv6;
}

#include <p4lib/v1model.p4>

parser MyParser(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.etherType) {
            ETHERTYPE_IPV4: ipv4;
            ETHERTYPE_IPV6: ipv6;
            default: accept;
        }
    }
    state ipv4 {
        packet.extract(hdr.ipv4);
        std.priority = hdr.ipv4.diffserv[7:5];
        transition accept;
    }
    state ipv6 {
        packet.extract(hdr.ipv6);
        std.priority = hdr.ipv6.trafficClass[7:5];
        transition accept;
    }
}

control MyIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    action drop() {
        mark_to_drop(std);
    }

    action to_port(bit<9> port) {
        std.egress_spec = port;
    }

    table forward {
        key = { hdr.ethernet.dstAddr: exact; }
        actions = { to_port; drop; }
        default_action = drop();
        size = 65536;
    }

    apply {
        forward.apply();
        if (std.parser_error != error.NoError) {
            drop();
        }
    }
}

int<96> limited(in int<96> p) {
    return p < 0 ? 0 : p > P_MAX ? P_MAX : p;
}

control MyEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    // By port and queue.
    register<pi2_t>(4096) queues;
    // Packets that were dropped, and that were marked.
    counter(4096, CounterType.packets_and_bytes) dropped;
    counter(4096, CounterType.packets_and_bytes) marked;

    // The target is signed: a negative one stands for a delay where there is none, for tests.
    action pi2(bit<32> target, bit<32> alpha, bit<32> beta) {
        meta.target = (int<96>)(int<32>)target;
        meta.alpha = (int<96>)(bit<96>)alpha;
        meta.beta = (int<96>)(bit<96>)beta;
    }

    table port {
        key = { std.egress_port: exact @name("port"); }
        actions = { pi2; }
        default_action = pi2(20000, 343597, 3435974);
        size = 512;
    }

    apply {
        port.apply();
        bit<32> queue = (bit<32>)(std.egress_port ++ std.priority);
        bit<40> p;
        @atomic {
            pi2_t state;
            queues.read(state, queue);
            period_t period = std.egress_global_timestamp[47:15];
            if (state.period != period) {
                int<96> empty = (int<96>)(bit<96>)(period - state.period - 1);
                int<96> before = (int<96>)(bit<96>)state.delay;
                int<96> delay = (int<96>)(bit<96>)std.deq_timedelta;
                int<96> next = (int<96>)(bit<96>)state.p;
                if (empty != 0) {
                    next = limited(next - meta.alpha * meta.target * empty - meta.beta * before);
                    before = 0;
                }
                next = limited(next + meta.alpha * (delay - meta.target) + meta.beta * (delay - before));
                state = { period, std.deq_timedelta, (bit<40>)(bit<96>)next };
                queues.write(queue, state);
            }
            p = state.p;
        }

        bit<2> ecn = hdr.ipv4.isValid() ? hdr.ipv4.diffserv[1:0] : hdr.ipv6.isValid() ? hdr.ipv6.trafficClass[1:0] : NOT_ECT;
        bit<40> one;
        bit<40> two;
        random(one, 0, 0xffffffffff);
        random(two, 0, 0xffffffffff);
        bool hit = ecn == ECT_1 || ecn == CE ? one < p |+| p : one < p && two < p;
        if (hit && ecn != CE) {
            if (ecn == NOT_ECT) {
                mark_to_drop(std);
                dropped.count(queue);
            } else {
                marked.count(queue);
                if (hdr.ipv4.isValid()) {
                    // RFC 1624: what the header has more, the checksum has less, with the borrow.
                    bit<16> more = (bit<16>)(CE - ecn);
                    hdr.ipv4.hdrChecksum = hdr.ipv4.hdrChecksum - more - (hdr.ipv4.hdrChecksum < more ? 16w1 : 0);
                    hdr.ipv4.diffserv[1:0] = CE;
                } else {
                    hdr.ipv6.trafficClass[1:0] = CE;
                }
            }
        }
    }
}

V1Switch(MyParser(), EmptyVerifyChecksum(), MyIngress(), MyEgress(), EmptyComputeChecksum(), EmitHeaders()) main;
