//! PNA's glue and extern functions as IR text, and errors in programs. `UPDATE_EXPECT=1` blesses.

mod common;

use common::{entries_text, lower, stage_text, try_lower, unloadable};
use expect_test::expect;

/// A program with these statements in its pre control, main control and deparser.
fn program(pre: &str, main: &str, deparser: &str) -> String {
    format!(
        "#include <pna.p4>
header A {{ bit<8> x; bit<8> y; }}
struct H {{ A a; }}
struct M {{ bit<32> sum; }}
parser P(packet_in b, out H h, inout M m, in pna_main_parser_input_metadata_t i) {{
    state start {{ b.extract(h.a); transition accept; }}
}}
control R(in H h, inout M m, in pna_pre_input_metadata_t i, inout pna_pre_output_metadata_t o) {{ apply {{ {pre} }} }}
control C(inout H h, inout M m, in pna_main_input_metadata_t i, inout pna_main_output_metadata_t o) {{
    apply {{ {main} }}
}}
control D(packet_out b, in H h, in M m, in pna_main_output_metadata_t o) {{ apply {{ {deparser} b.emit(h.a); }} }}
PNA_NIC(P(), R(), C(), D()) main;\n"
    )
}

#[test]
fn packets_of_a_program_that_chooses_a_class_wait_as_deparsed() {
    let main = "send_to_port(i.input_port); o.class_of_service = (ClassOfService_t) 2;";
    let queued = lower(&program("", main, ""));
    assert!(queued.queues);
    expect![[r#"
        entry ingress (start, P, begin, R, C, verdict, D, D.emit, end)
        entry egress (leave)
        entry deparse (rest)
    "#]]
    .assert_eq(&entries_text(&queued));
    let zero = "send_to_port(i.input_port); o.class_of_service = (ClassOfService_t) 0;";
    assert!(!lower(&program("", zero, "")).queues);
}

#[test]
fn what_a_program_does_not_use_has_no_entry() {
    let plain = lower(&program("", "send_to_port(i.input_port);", ""));
    expect![[r#"
        entry ingress (start, P, begin, R, C, verdict, D, D.emit, end)
    "#]]
    .assert_eq(&entries_text(&plain));
    let main = "send_to_port(i.input_port); recirculate(); mirror_packet((MirrorSlotId_t) 1, (MirrorSessionId_t) 2);";
    let all = lower(&program("", main, ""));
    expect![[r#"
        entry ingress (start, P, begin, R, C, verdict, D, D.emit, end)
        entry reingress (again, start, P, begin, R, C, verdict, D, D.emit, end)
        entry clone_ingress (copy)
        entry deparse (end)
    "#]]
    .assert_eq(&entries_text(&all));
    expect![[r#"
        stage control end {
        b0:
          branch $mirror1, b1, b2
        b1:
          $mirror1 = mov 1w0x0
          $clone_flag = mov 1w0x1
          %7 = zext $mirror1.session
          $clone_session = mov %7
          replicate frame_end
        b2:
          branch $recirculate, b3, b4
        b3:
          $recirculate_list = mov 16w0x1
          replicate deparse_end
        b4:
          branch $drop, b5, b6
        b5:
          drop "main drop"
        b6:
          send $to
        }
    "#]]
    .assert_eq(&stage_text(&all, "end"));
}

#[test]
fn where_packets_go_is_said_in_the_main_control() {
    let pre = "drop_packet(); recirculate();"; // The latter is allowed here.
    let deparser = "send_to_port((PortId_t) 1); mirror_packet((MirrorSlotId_t) 1, (MirrorSessionId_t) 2);";
    expect![[r#"
        test.p4:8: E0604 PNA has `drop_packet` in the main control only
        test.p4:12: E0604 PNA has `send_to_port` in the main control only
        test.p4:12: E0604 PNA has `mirror_packet` in the main control only
    "#]]
    .assert_eq(&try_lower(&program(pre, "", deparser)).unwrap_err());
}

#[test]
fn there_are_no_accelerators() {
    let never = unloadable(&program("o.decrypt = false;", "drop_packet();", ""));
    assert_eq!(never, "");
    expect![[r#"
        test.p4:8: the pre control asks for decryption, and PNA's accelerators are not in this switch
    "#]]
    .assert_eq(&unloadable(&program("o.decrypt = h.a.x == 1;", "drop_packet();", "")));
}

#[test]
fn mirror_slots_have_a_bound() {
    let call = |slot: usize| format!("mirror_packet((MirrorSlotId_t) {slot}, (MirrorSessionId_t) 2);");
    let calls: String = (0..17).map(call).collect();
    expect![[r#"
        test.p4:10: E0604 the program uses more than 16 mirror slots of PNA
    "#]]
    .assert_eq(&try_lower(&program("", &calls, "")).unwrap_err());
}
