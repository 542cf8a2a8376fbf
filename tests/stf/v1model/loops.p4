// What loops may cost: a packet that spends more steps than it may is dropped, after the same round on every engine.
#include <core.p4>
#include <v1model.p4>

header ask_t {
    bit<8> what;
    bit<24> times;
}

header byte_t {
    bit<8> value;
}

struct headers_t {
    ask_t ask;
    byte_t last;
}

struct meta_t {
    bit<16384> wide;
    bit<2048> less_wide;
    bit<32> hash;
    bit<16> more;
}

parser p(packet_in packet, out headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    state start {
        packet.extract(hdr.ask);
        transition select(hdr.ask.what) {
            1: bytes;
            default: accept;
        }
    }
    // Until a byte is 0; each costs a wide product.
    state bytes {
        packet.extract(hdr.last);
        meta.less_wide = ~meta.less_wide;
        meta.less_wide = meta.less_wide * meta.less_wide;
        transition select(hdr.last.value) {
            0: accept;
            default: bytes;
        }
    }
}

control verify_sums(inout headers_t hdr, inout meta_t meta) {
    apply { }
}

control ingress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    counter(4, CounterType.packets) rounds;

    action multiply(bit<24> times) {
        for (bit<24> i = 0; i < times; i = i + 1) {
            meta.wide = ~meta.wide;
            meta.wide = meta.wide * meta.wide;
            rounds.count(0);
        }
    }

    action add(bit<24> times) {
        bit<24> sum = 0;
        for (bit<24> i = 0; i < times; i = i + 1) {
            sum = sum + i;
        }
        hdr.ask.times = sum;
    }

    // The inner loop is short or long; the outer one's round is dear.
    action nested(bit<24> times) {
        for (bit<24> i = 0; i < times; i = i + 1) {
            meta.less_wide = ~meta.less_wide;
            meta.less_wide = meta.less_wide / 2047;
            for (bit<24> j = i; j < times; j = j + 1) {
                rounds.count(1);
            }
        }
    }

    apply {
        std.egress_spec = 1;
        if (hdr.ask.what == 2) {
            multiply(hdr.ask.times);
        } else if (hdr.ask.what == 3) {
            add(hdr.ask.times);
        } else if (hdr.ask.what == 4) {
            nested(hdr.ask.times);
        } else if (hdr.ask.what == 5) {
            for (bit<24> i = 0; i < hdr.ask.times; i = i + 1) {
                hash(meta.hash, HashAlgorithm.crc32, 32w0, { meta.less_wide, i }, 32w0xffff);
                rounds.count(2);
            }
        } else if (hdr.ask.what == 6) {
            std.mcast_grp = 1;
        }
    }
}

control egress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    counter(1, CounterType.packets) rounds;

    apply {
        if (hdr.ask.what == 6) {
            for (bit<24> i = 0; i < hdr.ask.times; i = i + 1) {
                meta.less_wide = ~meta.less_wide;
                meta.less_wide = meta.less_wide * meta.less_wide;
                rounds.count(0);
            }
        }
    }
}

control compute_sums(inout headers_t hdr, inout meta_t meta) {
    apply { }
}

control deparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr);
    }
}

V1Switch(p(), verify_sums(), ingress(), egress(), compute_sums(), deparser()) main;
