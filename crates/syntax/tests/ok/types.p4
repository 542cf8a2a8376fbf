// Every form of type and type declaration.
const int WIDTH = 9;
typedef bit<48> mac_t;
typedef bit<WIDTH> narrow_t;
typedef bit<(2 > 1 ? 8 : 16)> chosen_t;
typedef bit<WIDTH * 2 + 1> computed_t;
type bit<32> address_t;
typedef tuple<> nothing_t;
typedef tuple<bit<8>, tuple<bool, int<4>>> nested_t;
typedef list<tuple<bit<8>, list<bit<16>>>> lists_t;
typedef struct inner_t { bit flag; } renamed_t;

header ethernet_t { mac_t dst; mac_t src; bit<16> kind; }
header options_t<T> { T first; varbit<(40 * 8)> rest; }
header_union l3_t { ethernet_t a; options_t<bit<8>> b; }
struct pair_t<A, B> { A first; B second; }
struct headers_t {
    ethernet_t[2] stack;
    pair_t<bit<8>, pair_t<bool, error>> pair;
    l3_t[4] unions;
    .mac_t global;
}
enum plain_t { A, B, }
enum bit<8> numbered_t { ONE = 1, TWO = 8w2, THREE = 1 + 2 }
enum mac_t by_name_t { ZERO = 0 }
error { Broken, Odd }
match_kind { fuzzy, nearest, }
struct empty_t {}
