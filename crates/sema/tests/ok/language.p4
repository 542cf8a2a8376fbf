// Corners of the language, without an architecture.
#include <core.p4>

// Names, constants, types.
const int BIG = 1 << 100;
const bit<8> LOW = (bit<8>)(BIG + 0x1ff);
const bool CHECKED = static_assert(LOW == 0xff, "folding");
const bool ALSO = static_assert(BIG / 3 * 3 + BIG % 3 == BIG);
const int<8> NEGATIVE = -5;
const bool SIGNED = static_assert(NEGATIVE >> 1 == -3 && (bit<8>)NEGATIVE == 251 && 8w250 |+| 10 == 255);
const tuple<bit<4>, bool> PAIR = { 3, true };
const bit<4> FIRST = PAIR[0];
const bool SLICED = static_assert(16w0xabcd[11:4] == 0xbc && 4w0xa ++ 4w0xb == 0xab);

type bit<9> Port;
typedef Port PortAlias;
const Port CPU = 510;
const bool TYPED = static_assert((bit<9>)CPU == 510);
enum Color { Red, Green }
enum int<4> Step { Down = -1, Up = 1 }

struct Pair<T, U> {
    T first;
    U second;
}
typedef Pair<bit<8>, bool> P8;

header H<T> {
    T value;
}
header V {
    bit<8> length;
    varbit<64> data;
}
header_union U {
    H<bit<8>> a;
    H<bit<16>> b;
}
struct Nested {
    P8 pair;
    U[2] unions;
    H<bit<8>>[4] stack;
    Color color;
    Port port;
}

const P8 DEFAULTED = { second = true, ... };
const bool FIELD = static_assert(DEFAULTED.first == 0 && DEFAULTED.second);
const bool SIZES = static_assert(V.minSizeInBits() == 8 && V.maxSizeInBytes() == 9 && Port.minSizeInBits() == 9);

// Functions.
T pick<T>(in bool first, in T a, in T b) {
    if (first) {
        return a;
    } else {
        return b;
    }
}
bit<8> over(in bit<8> a) {
    return pick(a > 3, a, 3);
}
bit<8> over(in bit<8> a, in bit<8> b) {
    return over(a) + over(a = b);
}
bit<16> with_default(in bit<16> a, in bit<16> b = 5) {
    return a + b;
}

// Externs with overloads, optional and generic parameters, abstract methods.
extern Box<T> {
    Box(T initial);
    Box(T initial, int size);
    T get(@optional in bit<8> index);
    void put<U>(in T value, in U tag);
}
extern Reducer {
    Reducer();
    abstract bit<8> reduce(in bit<8> a, in bit<8> b);
    bit<8> run();
}
extern void observe<T>(in T value);
extern Color chosen(bool first);
extern Painter {
    Painter(Color color);
    void at(int place);
}
control Paint() {
    Painter(chosen(true)) painter;
    action dot(bit<8> place) {
        painter.at(place);
        painter.at(3);
    }
    table t {
        actions = { dot; NoAction; }
    }
    apply {
        t.apply();
    }
}

parser Sub(packet_in packet, out Nested n)(bit<8> limit) {
    value_set<bit<8>>(4) known;
    value_set<tuple<bit<8>, bool>>(4) pairs;
    state start {
        packet.extract(n.stack.next);
        transition select(n.stack.last.value, n.stack.lastIndex) {
            (0, _): start;
            (known, 0 .. 3): known_state;
            (1 &&& 3, default): accept;
            default: reject;
        }
    }
    state known_state {
        bit<8> ahead = packet.lookahead<bit<8>>();
        transition select(ahead, ahead > limit) {
            pairs: accept;
        }
    }
}

parser Tail(packet_in packet) {
    state start {
        packet.advance(8);
        transition accept;
    }
}

parser Main(packet_in packet, out Nested n) {
    Sub(8w7) sub;
    V v;
    state start {
        sub.apply(packet, n);
        packet.extract(v, (bit<32>)(8 * packet.lookahead<bit<8>>()));
        Tail.apply(packet);
        transition accept;
    }
}

control Leaf(inout bit<8> x)(bit<8> by, Box<bit<8>> box) {
    apply {
        x = x + by + box.get();
    }
}

control Work(inout Nested n, out bit<8> result) {
    Box(8w1) box;
    Box<bit<16>>(1, 20) wide;
    Leaf(by = 2, box = box) leaf;
    Reducer() reducer = {
        bit<8> reduce(in bit<8> a, in bit<8> b) {
            return a + this.run() + b;
        }
    };
    bit<8> local = 4;

    action set(inout bit<8> where, bit<8> what) {
        where = what;
    }
    action nothing() {}
    table t {
        key = { n.color: exact; n.port: exact; n.stack[1].value[3:0]: ternary; }
        actions = { set(local); nothing; }
        default_action = set(local, 3);
        entries = {
            const priority = 3: (Color.Red, (Port)1, 2 &&& 3): set(7);
            (Color.Green, 2, _): nothing;
        }
    }

    apply {
        result = LOW;
        Nested other = n;
        bool same = other == n && n.pair == { 1, true } && n.unions[0].isValid();
        n.pair = { first = 3, second = same };
        n.pair = { 4, ... };
        n.unions[1].a = { 5 };
        n.unions[0] = (U){#};
        n.stack.push_front(1);
        n.stack[(int<8>)Step.Up == 1 ? 8w1 : 0] = n.stack[2];
        n.stack[3].setValid();
        tuple<bit<8>, bit<16>> both = { 1, 2 };
        both[0] = over(local, 2) + (bit<8>)with_default(1);
        result[5:2] = 0xf;
        result[local[2:0] +: 2] = 1;
        local <<= 2;
        local |= n.stack.size[7:0];
        set(result, 3);
        leaf.apply(result);
        wide.put(box.get(index = 1) ++ 8w0, { 1w1, same });
        observe((P8){ first = local, second = true });
        observe(reducer.run());
        n.port = (PortAlias)(bit<9>)local;
        n.port = same ? CPU : 3;
        n.port = 3;
        if (t.apply().hit) {
            switch (n.color) {
                Color.Red: { result = 1; }
                Color.Green: {}
            }
        }
        switch (local) {
            1:
            2: { result = 2; }
            default: { result = 3; }
        }
        for (bit<8> i = 0, bit<8> j = 9; i < j; i = i + 1) {
            if (i == 3) { continue; }
            if (i == 5) { break; }
            result = result + i;
        }
        for (bit<8> k in 1 .. 3) { result = result ^ k; }
        for (H<bit<8>> h in n.stack) { result = result & h.value; }
        error e = error.NoMatch;
        if (e != error.NoError) { exit; }
        .observe(same ? 8w1 : result);
    }
}

parser Parse(packet_in packet, out Nested n);
control Apply<T, R>(inout T n, out R result);
package Both<T, R>(Parse p, Apply<T, R> first, @optional Apply<T, R> second);
package Top(Both<Nested, _> both);

control Whatever<H>() {
    apply {}
}
control NoParams();
control Empty(inout Nested n) {
    apply {}
}
control Takes<H>(inout H h);
package Default<H>(Takes<H> takes = Empty());
package Unnamed(NoParams none);
Default<_>() found_in_the_default;
Unnamed(Whatever<_>()) anything;
Both(Main(), Work()) pipe;
Top(pipe) main;
