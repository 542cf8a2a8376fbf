// Precedence, casts against parentheses, generic calls against comparisons, literals, slices, lists.
typedef bit<8> byte_t;
struct point_t { byte_t x; byte_t y; }
extern T twice<T>(in T value);
extern bit<8> f(in bit<8> a, in bit<8> b);

bit<8> test(in bit<8> a, in bit<8> b, in bit<8> c, in point_t p) {
    a = a + b * c - a % b / c;
    a = a << 1 + 2 >> b;
    a = a | b ^ c & a;
    a = a |+| b |-| c ++ a;
    a = -a + ~b - +c;
    bool d = a < b && b >= c || !(a == c) && a != b;
    bool e = a > b == b < c;
    a = d ? b : e ? c : a;
    a = (byte_t) a + b;
    a = (byte_t)(a + b);
    a = (a) + b;
    a = (a) - b;
    a = (byte_t) - b;
    a = (bit<8>)(int<8>) ~a;
    p = (point_t) { 1, 2 };
    p = (point_t) { x = 1, y = 2 };
    a = (unknown_type) b;
    a = twice<byte_t>(a);
    a = twice<bit<8>>(twice<_>(a));
    d = a < b;
    d = (a < b) == (c > (a));
    d = a < b == c > (a);
    a = a[7:4] ++ b[3 + 1 : 0];
    a = a[b +: 4];
    a = a[a > b ? 3 : 2 : 0];
    a[3:0] = 4w0xF;
    a = f(b = c, a = _) + f(_, 1);
    a = 8w255 + 0xff + 0b1010_0101 + 0o17 + 0d10 + 8w0b1 + 4s7 + 1_000;
    p = { ... };
    p = { 1, ... };
    p = { x = 1, ... };
    p = { 1, 2, };
    p = { x = 1, y = 2, };
    d = error.NoError == error.Broken;
    a = .global_constant + .f(1, 2);
    a = p.x.y.z[3].w[1:0];
    return a;
}
const string TEXT = "one \" two \\" ++ "three
four";
