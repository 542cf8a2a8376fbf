// `NoAction` stands in where a table has no default action.
const bit<1> NoAction = 1; // ERROR E0560

control C() {
    table t {
        actions = {}
    }
    apply {
        t.apply();
    }
}
