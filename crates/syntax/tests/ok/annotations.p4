// Annotations: plain, unstructured, structured, pragmas.
@plain
@empty()
@name("a.b") @id(0x10)
@free(any [ text ; goes (even this) "str" 8w3 it's #1 ? ])
@exprs[1, "two", 3 + 4, X,]
@pairs[a = 1, b = "two"]
@nothing[]
@pragma note

struct s_t {
    @bits(8) @hidden bit<8> x;
}
@pragma pa_container "egress" 3 x.y
@control @table("keyword names") header h_t {}
enum e_t { @deprecated A, @since("2") B }
control c(@optional inout bit<8> x, @a @b in bool y) {
    @id(1) action a() {}
    @pragma ternary 1
    table t { actions = { @defaultonly a; } @tag size = 3; }
    apply { @atomic { } }
}
