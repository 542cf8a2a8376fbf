// What becomes of a packet in ubpf_model: by output_action, mark_to_drop and clone; registers, the hash and the time.

#include <ubpf_model.p4>

header h_t { bit<8> what; bit<8> port; bit<32> value; }
header more_t { bit<240> data; }
struct headers_t {
    h_t    h;
    more_t more;
}
struct meta_t { bit<32> copy; }
struct pair_t { bit<16> a; bit<16> b; }

parser prs(packet_in packet, out headers_t headers, inout meta_t meta, inout standard_metadata std) {
    state start {
        packet.extract(headers.h);
        transition select(headers.h.what) {
            0x40: more;
            0xff: reject;
            default: accept;
        }
    }
    state more {
        packet.extract(headers.more);
        transition accept;
    }
}

control pipe(inout headers_t headers, inout meta_t meta, inout standard_metadata std) {
    Register<bit<32>, bit<32>>(8) cells;
    Register<pair_t, bit<8>>(4) pairs;
    Register<bool, tuple<bit<48>, bit<48>>>(1) flags;

    action abort() { std.output_action = ubpf_action.ABORT; }
    action drop() { std.output_action = ubpf_action.DROP; }
    action redirect() {
        std.output_action = ubpf_action.REDIRECT;
        std.output_port = (bit<32>) headers.h.port;
    }
    table t {
        key = { headers.h.what: exact; }
        actions = { abort; drop; redirect; NoAction; }
        size = 16;
    }

    apply {
        t.apply();
        if (headers.h.what == 0x10) {
            mark_to_drop();
        } else if (headers.h.what == 0x11) {
            mark_to_drop();
            mark_to_pass();
        } else if (headers.h.what == 0x20) {
            std.clone = true;
            std.clone_port = (bit<32>) headers.h.port;
            headers.h.port = (bit<8>) std.input_port;
            headers.h.value = std.packet_length;
        } else if (headers.h.what == 0x21) {
            std.clone = true;
            std.clone_port = 12;
            mark_to_drop();
        } else if (headers.h.what == 0x30) {
            bit<32> old = cells.read(headers.h.value);
            cells.write(headers.h.value, old + 1);
            headers.h.value = old;
        } else if (headers.h.what == 0x31) {
            pairs.write(headers.h.port, { headers.h.value[31:16], headers.h.value[15:0] });
        } else if (headers.h.what == 0x32) {
            pair_t found = pairs.read(headers.h.port);
            headers.h.value = found.b ++ found.a;
        } else if (headers.h.what == 0x33) {
            bool before = flags.read({ 1, 2 });
            flags.write({ 1, 2 }, true);
            headers.h.value = before ? 32w1 : 0;
        } else if (headers.h.what == 0x40) {
            hash(headers.h.value, HashAlgorithm.lookup3, { headers.more.data });
            headers.more.setInvalid();
        } else if (headers.h.what == 0x41) {
            hash(headers.h.value, HashAlgorithm.lookup3, { headers.h.value[31:24], headers.h.value[23:15] });
        } else if (headers.h.what == 0x50) {
            headers.h.value = (bit<32>) ubpf_time_get_ns();
        } else if (headers.h.what == 0x60) {
            headers.h.value[15:0] = csum_replace2(headers.h.value[15:0], 0x1234, 0x4321);
        } else if (headers.h.what == 0x61) {
            headers.h.value[15:0] = csum_replace4(headers.h.value[15:0], 0x0a000001, 0xc0a80101);
        }
    }
}

control dprs(packet_out packet, in headers_t headers) {
    apply {
        packet.emit(headers.h);
        packet.emit(headers.more);
    }
}

ubpf(prs(), pipe(), dprs()) main;
