// What an ebpfFilter does with packets: those that the parser rejects and those that are not accepted are dropped, the
// others leave by the port that they came in by, as they came, whatever the filter made of the headers.

#include <core.p4>
#include <ebpf_model.p4>

header first_t { bit<8> kind; bit<8> key; bit<16> amount; }
header next_t { bit<16> value; }

struct headers_t {
    first_t first;
    next_t  next;
}

parser prs(packet_in packet, out headers_t headers) {
    state start {
        packet.extract(headers.first);
        transition select(headers.first.kind) {
            1: with_next;
            0xff: reject;
            default: accept;
        }
    }
    state with_next {
        packet.extract(headers.next);
        verify(headers.next.value != 0, error.NoMatch);
        transition accept;
    }
}

control filt(inout headers_t headers, out bool accept) {
    CounterArray(7, false) packets;
    CounterArray(7, true) amounts;

    action let_in(bit<16> value) {
        accept = true;
        headers.first.amount = value;
        headers.next.setInvalid();
    }
    action keep_out() {
        accept = false;
    }
    table by_key {
        key = { headers.first.key: exact; }
        actions = { let_in; keep_out; }
        default_action = keep_out;
        implementation = hash_table(2);
    }
    table by_place {
        key = { (bit<32>) headers.first.key: exact @name("place"); }
        actions = { let_in; NoAction; }
        default_action = NoAction;
        implementation = array_table(4);
    }

    apply {
        packets.increment((bit<32>) headers.first.key);
        amounts.add((bit<32>) headers.first.key, (bit<32>) headers.first.amount);
        if (headers.first.kind == 2) {
            by_place.apply();
            return;
        }
        if (!by_key.apply().hit && headers.first.kind == 3) {
            accept = true;
            exit;
        }
    }
}

ebpfFilter(prs(), filt()) main;
