// What a program without core.p4 has to say itself.
match_kind {
    exact
}

control C(inout bit<8> x) {
    error e; // ERROR E0302
    action drop() {}
    table without { // ERROR E0560
        key = {
            x: exact;
        }
        actions = {
            drop;
        }
    }
    table with_default {
        actions = {
            drop;
        }
        default_action = drop;
    }
    apply {
        without.apply();
        with_default.apply();
    }
}
