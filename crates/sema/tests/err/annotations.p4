// Bodies that known and structured annotations cannot have.
#include <core.p4>

@pkginfo const bit<8> a = 1; // ERROR E0540
@number(3)
@number[] // ERROR E0567
const bit<8> b = 1;
@odd[key = { 2, 3 }] const bit<8> c = 1; // ERROR E0540
@odd[key = 1, other = "x", third = true] const bit<8> d = 1;
@deprecated("a" | "b") void old() {} // ERROR E0540
@noWarn(unused) void quiet() {} // ERROR E0540
@p4runtime_translation("uri", bool) type bit<9> Port1; // ERROR E0540
@p4runtime_translation("uri", bit<5 + 3>) type bit<9> Port2; // ERROR E0540
@p4runtime_translation("uri", bit<32>) type bit<9> Port3;
@p4runtime_translation("uri", string) type bit<9> Port4;
@p4runtime_translation("uri", 32) type bit<9> Port5;
@anything(not an = expression +) typedef bit<9> Port6;

struct Keys {
    @match(ternary) bit<8> t;
    @match(1 + 1) bit<8> wrong; // ERROR E0540
}

extern Thing {
    Thing();
}
Thing() one;
Thing() two;
@same[one == two] typedef bit<8> Byte; // ERROR E0416
@deprecated("use fresh") bit<8> stale(in bit<8> x) { return x; }
control UsesStale(inout bit<8> x) {
    @deprecated("assign it") action put() { x = 1; }
    apply {
        x = stale(x); // WARN W0302
        put(); // WARN W0302
    }
}
