// Every way a parser ends, and what ingress is told: the packet goes on with what was extracted so far.

#include <core.p4>
#include <v1model.p4>

error { Refused }

header ask_t { bit<8> what; }

header item_t { bit<8> value; }

header option_t {
    bit<8>     length;      // bits
    varbit<16> bytes;
}

header result_t {
    bit<8> error_;
    bit<8> items;           // valid elements of the stack
}

struct headers_t {
    result_t  result;
    ask_t     ask;
    item_t[2] items;
    option_t  option;
}

struct meta_t {}

parser Parse(packet_in pkt, out headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    state start {
        pkt.extract(hdr.ask);
        transition select(hdr.ask.what) {
            0: accept;
            1: items;
            2: refuse;
            3: option;
            4: odd;
            5: reject;
            6: look;
            7: skip;
        }
    }
    state items {
        pkt.extract(hdr.items.next);
        transition items;
    }
    state refuse {
        pkt.extract(hdr.items.next);
        verify(hdr.items[0].value != 1, error.Refused);
        pkt.extract(hdr.items.next);
        transition accept;
    }
    state option {
        bit<8> length = pkt.lookahead<bit<8>>();
        pkt.extract(hdr.option, (bit<32>) length);
        transition accept;
    }
    state odd {
        bit<8> length = pkt.lookahead<bit<8>>();
        pkt.advance((bit<32>) length);
        transition accept;
    }
    state look {
        hdr.ask.what = pkt.lookahead<bit<16>>()[7:0];
        transition accept;
    }
    state skip {
        pkt.advance(16);
        transition accept;
    }
}

control Verify(inout headers_t hdr, inout meta_t meta) { apply {} }

control MyIngress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    apply {
        hdr.result.setValid();
        hdr.result.items = 0;
        if (hdr.items[0].isValid()) { hdr.result.items = 1; }
        if (hdr.items[1].isValid()) { hdr.result.items = 2; }
        if (std.parser_error == error.NoError) {
            hdr.result.error_ = 0;
        } else if (std.parser_error == error.PacketTooShort) {
            hdr.result.error_ = 1;
        } else if (std.parser_error == error.NoMatch) {
            hdr.result.error_ = 2;
        } else if (std.parser_error == error.StackOutOfBounds) {
            hdr.result.error_ = 3;
        } else if (std.parser_error == error.HeaderTooShort) {
            hdr.result.error_ = 4;
        } else if (std.parser_error == error.ParserInvalidArgument) {
            hdr.result.error_ = 5;
        } else if (std.parser_error == error.Refused) {
            hdr.result.error_ = 6;
        } else {
            hdr.result.error_ = 0xff;
        }
    }
}

control MyEgress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    apply {
        // It is still there.
        if (std.parser_error == error.Refused) { std.egress_port = 0; hdr.result.error_ = hdr.result.error_ | 0x80; }
    }
}

control Compute(inout headers_t hdr, inout meta_t meta) { apply {} }

control Deparse(packet_out pkt, in headers_t hdr) { apply { pkt.emit(hdr); } }

V1Switch(Parse(), Verify(), MyIngress(), MyEgress(), Compute(), Deparse()) main;
