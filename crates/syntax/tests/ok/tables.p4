// Table properties, entries, priorities.
match_kind { exact, ternary, lpm, range, optional }
control C(inout bit<8> x, inout bit<16> y) {
    action none() {}
    action set(bit<8> v) { x = v; }
    table t {
        key = {
            x : exact @name("key.x");
            x & 0xF : ternary;
            y[7:0] : lpm @p4runtime_translation("uri", 32) @id(3);
            y : optional @p4runtime_translation("", bit<32>) @p4runtime_translation("", string);
            x == 1 ? y : 0 : range;
        }
        actions = {
            none;
            @defaultonly set;
            .none();
            @tableonly set(3);
        }
        const default_action = set(4);
        size = 1024;
        @tag implementation = make_profile(10);
        support_timeout = true;
        const entries = {
            (1, 2 &&& 3, _, _, 4 .. 5) : none();
            (0x10, default, 8w3, _, _) : set(1) @name("second");
        }
    }
    table u {
        key = { x : ternary; }
        actions = { none; set; }
        largest_priority_wins = false;
        priority_delta = 10;
        entries = {
            const priority = 10 : 1 : none;
            priority = (5 + 6) : 2 &&& 6 : set(2);
            const _ : none();
            (1 .. 2) : none;
        }
    }
    table v { actions = {} default_action = none; }
    apply { t.apply(); }
}
