action b() { }
control c(inout bit<8> x) {
    action b() { x = 1; }
    table t { actions = { b; } default_action = .b; }
    apply { t.apply(); }
}
