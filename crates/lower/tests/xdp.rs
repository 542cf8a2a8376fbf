//! xdp_model's glue as IR text, and errors in programs. `UPDATE_EXPECT=1` blesses.

mod common;

use common::{entries_text, lower, stage_text, unloadable};
use expect_test::expect;

fn switch(body: &str) -> String {
    format!(
        "#include <xdp_model.p4>
header A {{ bit<32> x; }}
struct H {{ A a; }}
parser P(packet_in b, out H h) {{ state start {{ b.extract(h.a); transition accept; }} }}
control S(inout H h, in xdp_input i, out xdp_output o) {{ apply {{ {body} }} }}
control D(in H h, packet_out b) {{ apply {{ b.emit(h.a); }} }}
xdp(P(), S(), D()) main;\n"
    )
}

#[test]
fn each_action_has_its_end() {
    let program = lower(&switch("o.output_action = xdp_action.XDP_PASS;"));
    expect![[r#"
        entry ingress (P, parsed, S, verdict, D, end)
    "#]]
    .assert_eq(&entries_text(&program));
    expect![[r#"
        stage control verdict {
        b0:
          switch o.output_action, 32w0x1 -> b2, 32w0x2 -> b3, 32w0x3 -> b4, 32w0x4 -> b5, default -> b1
        b1 XDP_ABORTED:
          drop "filter abort"
        b2 XDP_DROP:
          drop "filter drop"
        b3 XDP_PASS:
          $to = mov i.input_port
          next
        b4 XDP_TX:
          $to = mov i.input_port
          next
        b5 XDP_REDIRECT:
          $to = mov o.output_port
          next
        }
    "#]]
    .assert_eq(&stage_text(&program, "verdict"));
}

#[test]
fn events_go_nowhere() {
    let reasons = unloadable(&switch("h.a.x = BPF_PERF_EVENT_OUTPUT();"));
    expect![[r#"
        test.p4:5: extern function `BPF_PERF_EVENT_OUTPUT` has no implementation in this switch
    "#]]
    .assert_eq(&reasons);
}

#[test]
fn the_file_has_filters_too() {
    let program = lower(
        "#include <xdp_model.p4>
struct H {}
parser P(packet_in b, out H h) { state start { transition accept; } }
control F(inout H h, out bool pass) { apply { pass = csum_replace2(1, 2, 3) == 4; } }
ebpfFilter(P(), F()) main;",
    );
    expect![[r#"
        entry ingress (P, parsed, F, verdict)
    "#]]
    .assert_eq(&entries_text(&program));
}
