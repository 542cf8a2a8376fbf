//! Externs that v1model does not have: the program compiles, and reports why it cannot be loaded.

mod common;

use common::{V1, unloadable};

#[test]
fn functions_and_methods_that_nobody_has_are_named_with_their_place() {
    let program = V1 {
        top: "extern bit<8> f(in bit<8> x);\nextern Box { Box(); void put(in bit<8> x); }",
        ingress_locals: "Box() box;",
        ingress: "h.a.x = f(h.a.y);\nbox.put(h.a.x);",
        ..V1::default()
    };
    let calls: Vec<String> = program.lower().unresolved().map(str::to_string).collect();
    assert_eq!(calls, ["f", "Box(I.box).put"]);
    let expected = "test.p4:10: extern function `f` has no implementation in this switch
test.p4:11: extern `Box` (here its method `put`) has no implementation in this switch\n";
    assert_eq!(unloadable(&program.text()), expected);
}

#[test]
fn programs_for_v1model_can_be_loaded() {
    assert_eq!(unloadable(&V1::default().text()), "");
}

#[test]
fn a_switch_of_ones_own_with_the_name_of_v1models_is_another() {
    let text = "#include <core.p4>
control c() { apply { } }
control C();
package V1Switch(C c);
V1Switch(c()) main;";
    let expected = "test.p4:5: the package `V1Switch` is of no architecture that this switch runs: \
                    it can be checked, not loaded\n";
    assert_eq!(unloadable(text), expected);
}
