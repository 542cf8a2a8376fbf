// CoDel, an active queue management (RFC 8289), as a program of egress: what a packet has waited for in its queue decides
// whether it is dropped, or marked if its sender knows ECN (RFC 3168).
//
// The pseudocode of RFC 8289, section 5, drops packets in a loop and looks at the next one in between. Here each packet does
// its part: `due` is what the last one dropped has left for the next one to do. A queue's state is one register cell. The RFC
// does not drop if no more than a packet of the greatest size is left in the queue; here that is counted in packets:
// `backlog` of them at least have to wait. Target and interval are set by port, 5 ms and 100 ms otherwise (sections 4.2, 4.3).
//
// Forwarding is by MAC address, the queue by the DSCP's upper three bits (class selectors, RFC 2474).

#include <core.p4>
#include <v1model.p4>
#include <p4lib/headers.p4>

// ECN, RFC 3168, section 5.
const bit<2> NOT_ECT = 0;
const bit<2> CE = 3;

// Microseconds since the switch started. Of two times the later one may be the smaller one's number only after nine years.
typedef bit<48> time_t;

struct codel_t {
    // When packets have waited for longer than the target for an interval; 0 if the last one has not.
    time_t  first_above;
    time_t  drop_next;
    // Drops since dropping began; and what it was last time when it began.
    bit<16> count;
    bit<16> last_count;
    bit<1>  dropping;
    // drop_next is to be advanced.
    bit<1>  due;
}

struct metadata_t {
    bit<32> target;
    bit<32> interval;
    bit<19> backlog;
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

// interval / sqrt(count), rounded. 1 / sqrt(count), with 30 bits behind the point, is found by Newton's method:
// y <- y (3 - count y^2) / 2. It begins within 19 %, by the leading bit 2^k of `count`, with 2^30 / sqrt(sqrt(2) 2^k). Four
// steps make that less than 1e-6: for an interval of 100 ms the result is the nearest microsecond, for all counts.
control ControlLaw(in bit<32> interval, in bit<16> count, out time_t step) {
    bit<64> y = 0;

    action begin(bit<64> inverse) {
        y = inverse;
    }

    table leading_bit {
        key = { count: lpm; }
        actions = { begin; }
        const default_action = begin(902905651);
        const entries = {
            16w32768 &&& 16w0x8000: begin(4987896);
            16w16384 &&& 16w0xc000: begin(7053950);
            16w8192 &&& 16w0xe000: begin(9975792);
            16w4096 &&& 16w0xf000: begin(14107901);
            16w2048 &&& 16w0xf800: begin(19951585);
            16w1024 &&& 16w0xfc00: begin(28215802);
            16w512 &&& 16w0xfe00: begin(39903169);
            16w256 &&& 16w0xff00: begin(56431603);
            16w128 &&& 16w0xff80: begin(79806339);
            16w64 &&& 16w0xffc0: begin(112863206);
            16w32 &&& 16w0xffe0: begin(159612677);
            16w16 &&& 16w0xfff0: begin(225726413);
            16w8 &&& 16w0xfff8: begin(319225354);
            16w4 &&& 16w0xfffc: begin(451452825);
            16w2 &&& 16w0xfffe: begin(638450708);
            16w1 &&& 16w0xffff: begin(902905651);
        }
    }

    action newton() {
        y = (y * (((64w3 << 60) - (bit<64>)count * y * y) >> 30)) >> 31;
    }

    apply {
        leading_bit.apply();
        newton();
        newton();
        newton();
        newton();
        step = (time_t)(((bit<64>)interval * y + (64w1 << 29)) >> 30);
    }
}

control MyEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    // By port and queue.
    register<codel_t>(4096) queues;
    // Packets that were dropped, and that were marked.
    counter(4096, CounterType.packets_and_bytes) dropped;
    counter(4096, CounterType.packets_and_bytes) marked;
    ControlLaw() control_law;

    action codel(bit<32> target, bit<32> interval, bit<19> backlog) {
        meta.target = target;
        meta.interval = interval;
        meta.backlog = backlog;
    }

    table port {
        key = { std.egress_port: exact @name("port"); }
        actions = { codel; }
        default_action = codel(5000, 100000, 2);
        size = 512;
    }

    apply {
        port.apply();
        bit<32> queue = (bit<32>)(std.egress_port ++ std.priority);
        time_t now = std.egress_global_timestamp;
        bool drop = false;
        @atomic {
            codel_t state;
            queues.read(state, queue);

            // dodequeue() of the RFC.
            bool ok_to_drop = false;
            if (std.deq_timedelta < meta.target || std.deq_qdepth < meta.backlog) {
                state.first_above = 0;
            } else if (state.first_above == 0) {
                state.first_above = now + (time_t)meta.interval;
            } else {
                ok_to_drop = now >= state.first_above;
            }

            // dequeue() of the RFC.
            bool begins = false;
            if (!ok_to_drop) {
                state.dropping = 0;
                state.due = 0;
            } else if (state.dropping == 0) {
                begins = true;
                state.dropping = 1;
                // Where dropping has ended not long ago, it goes on at the rate it had.
                bit<16> drops = state.count - state.last_count;
                bool lately = (int<48>)(now - state.drop_next) < (int<48>)((bit<48>)meta.interval << 4);
                state.count = drops > 1 && lately ? drops : 1;
                state.last_count = state.count;
                state.drop_next = now;
                state.due = 1;
            }
            if (state.due == 1) {
                time_t step;
                control_law.apply(meta.interval, state.count, step);
                state.drop_next = state.drop_next + step;
                state.due = 0;
            }
            drop = begins || (ok_to_drop && now >= state.drop_next);
            if (drop && !begins) {
                state.count = state.count |+| 1;
                state.due = 1;
            }
            queues.write(queue, state);
        }

        if (drop) {
            if (hdr.ipv4.isValid() && hdr.ipv4.diffserv[1:0] != NOT_ECT) {
                // RFC 1624: what the header has more, the checksum has less, with the borrow.
                bit<16> more = (bit<16>)(CE - hdr.ipv4.diffserv[1:0]);
                hdr.ipv4.hdrChecksum = hdr.ipv4.hdrChecksum - more - (hdr.ipv4.hdrChecksum < more ? 16w1 : 0);
                hdr.ipv4.diffserv[1:0] = CE;
                marked.count(queue);
            } else if (hdr.ipv6.isValid() && hdr.ipv6.trafficClass[1:0] != NOT_ECT) {
                hdr.ipv6.trafficClass[1:0] = CE;
                marked.count(queue);
            } else {
                mark_to_drop(std);
                dropped.count(queue);
            }
        }
    }
}

V1Switch(MyParser(), EmptyVerifyChecksum(), MyIngress(), MyEgress(), EmptyComputeChecksum(), EmitHeaders()) main;
