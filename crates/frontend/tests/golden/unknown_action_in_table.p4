control c(inout bit<8> x) {
    action drop() { x = 1; }
    table t { actions = { drpo; } default_action = drop(); }
    apply { t.apply(); }
}
