#include <core.p4>

header h_t {
    bit<8> a;
    bit<16> b;
}
header bad_t {
    error e; // ERROR E0450
    h_t nested; // ERROR E0450
}
struct s_t {
    int any; // ERROR E0450
    h_t h;
}
header_union u_t {
    bit<8> x; // ERROR E0450
}
type error E; // ERROR E0451
type bit<8> New;
enum bool Flag { Yes = 1 } // ERROR E0451
enum bit<2> Small { Fits = 3, Wide = 4 } // ERROR E0503
struct Gen<T> {
    T x;
}
typedef Gen<bit<8>, bit<8>> Two; // ERROR E0406

bit<8> missing(in bit<8> x) { // ERROR E0410
    if (x == 1) {
        return 2;
    }
}
void nothing() {
    return 1; // ERROR E0411
}
bit<8> something() {
    return; // ERROR E0411
}
extern void take<T>(in T value);
extern T give<T>();
extern void change(inout bit<8> x);

control C(inout h_t h, in bit<8> ro, inout bool flag, inout New n, inout int<8> s) {
    int any; // ERROR E0409
    action act(bit<8> data, in bit<8> late) { // ERROR E0412
    }
    apply {
        h.a = h.b; // ERROR E0401
        h.a = flag; // ERROR E0401
        if (h.a) {} // ERROR E0401
        h.b = h.a ++ 3; // ERROR E0402
        h.a = h.a + h.b; // ERROR E0402
        h.a = h.a + (h.b + flag); // ERROR E0402
        flag = flag & flag; // ERROR E0402
        h.a = ~5; // ERROR E0402
        s = s / 2; // ERROR E0402
        s = (int<8>)h.b; // ERROR E0403
        n = h.a; // ERROR E0401
        n = 3;
        flag = n == 3; // ERROR E0402
        n = (New)h.a;
        ro = 1; // ERROR E0405
        h.a + 1 = 3; // ERROR E0405
        change(ro); // ERROR E0405
        change(h.b); // ERROR E0441
        change(3); // ERROR E0405
        take(); // ERROR E0404
        take(1); // ERROR E0414
        take(1w1, 1w1); // ERROR E0404
        h.a = give<bit<8>, bit<8>>(); // ERROR E0406
        give(); // ERROR E0407
        h = { 1 }; // ERROR E0440
        h = { a = 1 }; // ERROR E0415
        h = { a = 1, b = 2, c = 3 }; // ERROR E0305
        h = { a = 1, a = 2, b = 1 }; // ERROR E0471
        h.a[3:4] = 1; // ERROR E0460
        h.a[9:2] = 1; // ERROR E0460
        h.a = 300; // WARN W0503
        h.a = 1 << h.a; // ERROR E0414
        h.a = h.a << s; // ERROR E0402
        flag = h == 3; // ERROR E0402
        break; // ERROR E0462
        bit<8> z = h.a / 0; // ERROR E0502
        change(_); // ERROR E0457
    }
}
