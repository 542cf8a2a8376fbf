//! openflow_model.

mod common;

use common::lower;

#[test]
fn probe() {
    let program = lower(include_str!("../../bridge/p4/openflow.p4"));
    std::fs::write("/tmp/E-openflow.ir", ir::print(&program)).unwrap();
}
