// The ebpf_model architecture: a packet filter in front of a port, with tables and counters as maps.
//
// The parser takes the packet apart, the filter decides. A packet that it accepts goes on as it came, byte for byte; one
// that it does not accept, or that the parser rejects, is dropped.

#ifndef _EBPF_MODEL_P4_
#define _EBPF_MODEL_P4_

#include <core.p4>

// By which port a packet that passes leaves: an expression of `port`, the port that it came in by. `port ^ 1` makes a
// wire of each two ports, 0 and 1, 2 and 3, and so on.
#ifndef PASS_PORT
#define PASS_PORT port
#endif
#ifndef _PASS_PORT_
#define _PASS_PORT_
bit<32> __pass_port(in bit<32> port) { return PASS_PORT; }
#endif

// Counters with the indices 0 to max_index. For controllers the calls are packets, and what they add is bytes.
extern CounterArray {
    CounterArray(bit<32> max_index, bool sparse);
    void increment(in bit<32> index);
    void add(in bit<32> index, in bit<32> value);
}

// Values of a table's property `implementation`; `size` is the number of entries.
extern array_table {
    array_table(bit<32> size);
}

extern hash_table {
    hash_table(bit<32> size);
}

parser parse<H>(packet_in packet, out H headers);

control filter<H>(inout H headers, out bool accept);

package ebpfFilter<H>(parse<H> prs, filter<H> filt);

#endif
