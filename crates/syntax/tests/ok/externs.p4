// Externs, functions, packages, instantiations, optional and named arguments, abstract methods.
extern forward;
extern Register<T, I> {
    Register(bit<32> size);
    Register(bit<32> size, T initial);
    @pure T read(in I index);
    void write(in I index, in T value);
    tuple<T, I> both<U>(in U u, @optional in bit<8> hint);
    abstract T combine(in T a, in T b = 3);
    Register<T, I> self();
}
extern void log_msg(string message);
extern void log_msg<T>(string message, in T data);
extern Register<T, bit<8>> make<T>(int count);
@pure extern bit<8> hash<D>(in D data);
bit<8> add(in bit<8> a, bit<8> b = 1) { return a + b; }
T identity<T>(in T value) { return (T) value; }
void nothing() {}
control ctl<H>(inout H h);
control impl(inout bit<8> h)(forward f) { apply { log_msg("x = {}", { h }); } }
package Switch<H>(ctl<H> first, @optional ctl<_> second, list<bit<8>> ports = { 1, 2 });
package Top(Switch<bit<8>> sw);
const bool CHECKED = static_assert(1 < 2, "arithmetic works");
@tag Register<bit<32>, bit<8>>(1024) counters = {
    bit<32> combine(in bit<32> a, in bit<32> b) {
        return this.read(0) + a;
    }
    Register<bit<32>, bit<8>>(1) helper;
};
Switch(impl(), second = impl(f = make<bit<8>>(3))) sw;
Top(sw = sw) main;
