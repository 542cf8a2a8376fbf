// The ubpf_model architecture: a program in front of a port that filters, rewrites and redirects packets.
//
// A packet that the parser rejects passes as it came. Before UBPF_MODEL_VERSION 20200515 there is no standard_metadata.

#ifndef _UBPF_MODEL_P4_
#define _UBPF_MODEL_P4_

#include <core.p4>

#ifndef UBPF_MODEL_VERSION
#define UBPF_MODEL_VERSION 20200515
#endif

const bit<32> __ubpf_model_version = UBPF_MODEL_VERSION;

// By which port a packet that passes leaves: an expression of `port`, the port that it came in by. `port ^ 1` makes a
// wire of each two ports, 0 and 1, 2 and 3, and so on.
#ifndef PASS_PORT
#define PASS_PORT port
#endif
#ifndef _PASS_PORT_
#define _PASS_PORT_
bit<32> __pass_port(in bit<32> port) { return PASS_PORT; }
#endif

#if UBPF_MODEL_VERSION >= 20200515
enum ubpf_action {
    ABORT,      // dropped and counted as an error
    DROP,       // dropped
    PASS,       // goes on; the value at first
    REDIRECT    // leaves by output_port
}

struct standard_metadata {
    bit<32>     input_port;
    bit<32>     packet_length;  // bytes, as received
    ubpf_action output_action;
    bit<32>     output_port;
    bool        clone;          // whether a copy leaves by clone_port, also of a packet that is dropped
    bit<32>     clone_port;
}
#endif

// Whether the packet is dropped whatever output_action says; the last call counts. In the pipeline only.
extern void mark_to_drop();
extern void mark_to_pass();

// Cells of type T with the indices 0 to size - 1, 0 at first; reads out of range give 0, writes are lost.
extern Register<T, S> {
    Register(bit<32> size);
    T    read(in S index);
    void write(in S index, in T value);
}

// Nanoseconds since the switch started.
extern bit<48> ubpf_time_get_ns();

// Cuts the packet that leaves to this many bytes; the last call counts, and 0 cuts nothing. In the pipeline only.
extern void truncate(in bit<32> len);

enum HashAlgorithm { lookup3 }

extern void hash<D>(out bit<32> result, in HashAlgorithm algo, in D data);

// The checksum after a field has changed (RFC 1624).
extern bit<16> csum_replace2(in bit<16> csum, in bit<16> old, in bit<16> new);
extern bit<16> csum_replace4(in bit<16> csum, in bit<32> old, in bit<32> new);

#if UBPF_MODEL_VERSION >= 20200515
parser parse<H, M>(packet_in packet, out H headers, inout M meta, inout standard_metadata std);
#else
parser parse<H, M>(packet_in packet, out H headers, inout M meta);
#endif

#if UBPF_MODEL_VERSION >= 20200515
control pipeline<H, M>(inout H headers, inout M meta, inout standard_metadata std);
#else
control pipeline<H, M>(inout H headers, inout M meta);
#endif

@deparser
control deparser<H>(packet_out b, in H headers);

package ubpf<H, M>(parse<H, M> prs, pipeline<H, M> p, deparser<H> dprs);

#endif
