// Contextual keywords as names; values that shadow types; types known by scope.
header state { bit<8> key; bit<8> actions; bit<8> entries; bit<8> type; bit<8> priority; bit<8> apply; bit<8> list; }
struct T { bit<8> x; }
const bit<8> type = 3;
type bit<8> key;
bit<8> shadows(in bit<8> T, in bit<8> y) {
    bit<8> r = (T) + y;
    bool b = T < y;
    r = (T) - y;
    return (T)[3:0] ++ (y)[3:0];
}
bit<8> casts(in bit<8> y) {
    state state;
    state.key = (bit<8>) +y;
    state.type = state.list + state.priority;
    state.apply = state.entries;
    T t = (T) { +y };
    t = (T) { x = type };
    return (key) -y;
}
U generic<U>(in U u) { return (U) +u; }
control key_control(in bit<8> key) {
    action apply() {}
    table entries { key = { key : exact; } actions = { apply; } }
    apply { entries.apply(); }
}
