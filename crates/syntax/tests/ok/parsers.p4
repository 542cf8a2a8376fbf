// Parsers, states, select expressions, value sets.
header h_t { bit<8> kind; bit<16> length; }
struct headers_t { h_t first; h_t[3] more; }
extern packet_in { void extract<T>(out T h); T lookahead<T>(); bit<32> length(); }
extern void verify(in bool check, in error what);
parser type_only<H>(packet_in p, out H h);
parser P(packet_in packet, out headers_t hdr)(bit<8> limit) {
    bit<8> counter;
    const bit<8> LAST = 7;
    value_set<bit<8>>(4) kinds;
    @name("pairs") value_set<tuple<bit<8>, bit<16>>>(LAST) pairs;
    state start {
        packet.extract(hdr.first);
        counter = packet.lookahead<bit<8>>();
        bit<8> local = counter + 1;
        const bool on = true;
        if (local > LAST) { verify(false, error.NoMatch); } else transition_free();
        { counter = 0; }
        transition select(hdr.first.kind, hdr.first.length) {
            (0, 1): accept;
            (1 &&& 0xF, 3 .. 9): next;
            (_, default): reject;
            (kinds, _): next;
            default: other;
        }
    }
    @tag state next {
        transition select(hdr.first.kind) {
            0: accept;
            1 &&& 3: accept;
            (2 &&& 3): accept;
            3 .. 5: accept;
            (3 + 4): accept;
            (bit<8>) 9: accept;
            kinds: accept;
            _: reject;
        }
    }
    state other { transition accept; }
    state silent { }
}
