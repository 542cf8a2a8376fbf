// Statements and what may stand in a control's body.
extern E { E(); E(bit<8> size); void m<T>(in T x); bit<8> get(); }
control inner(inout bit<8> x) { apply { } }
control generic_t<T>(inout T x);
control C(inout bit<8> x)(bit<8> size, E shared) {
    const bit<8> LIMIT = 10;
    bit<8> y;
    bit<8> z = LIMIT;
    E() e;
    E(size) e2;
    inner() i;
    action a(in bit<8> p, bit<8> data) { x = p; return; }
    table t { actions = { a(x); } }
    apply {
        ;
        bit<8> local = 3;
        E(4) local_instance;
        const bool yes = true;
        x = 1;
        x += 1; x -= 1; x *= 2; x /= 2; x %= 2; x &= 2; x |= 2; x ^= 2;
        x <<= 2; x >>= 2; x |+|= 2; x |-|= 2;
        x[3:0] = 1;
        e.m(x);
        e.m<bit<8>>(x);
        inner.apply(x);
        generic_t<bit<8>>.apply(x);
        i.apply(x);
        if (t.apply().hit) x = 1; else if (x > 3) { x = 2; } else x = 3;
        if (x == 1) if (y == 2) x = 1; else x = 2;
        switch (t.apply().action_run) {
            a: { x = 1; }
            default: { exit; }
        }
        switch (x) {
            1:
            LIMIT:
            (2 + 3): { x = 1; }
            -1: @likely { x = 2; }
        }
        @atomic { x = 1; { y = 2; } }
        for (bit<8> j = 0, bit<8> k = 1; j < 10; j += 1, k = k + 1) { x += j; break; }
        for (; x < 3;) { continue; }
        for (x = 0; x < 3; x += 1) y = x;
        @unroll for (bit<8> j in 0 .. LIMIT - 1) x += j;
        for (@tag bit<8> j in (list<bit<8>>) { 1, 2, 3 }) { x += j; }
        exit;
        return;
    }
}
control D()() { @name("x") bit<8> v; apply @noWarn("x") { } }
