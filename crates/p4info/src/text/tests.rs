//! The printed form of each message, in full.

use super::*;
use expect_test::expect;

fn preamble(kind: ObjectKind, name: &str) -> Preamble {
    Preamble { id: u32::from(kind.prefix()) << 24 | 5, name: name.into(), alias: name.into(), ..Preamble::default() }
}

fn body(info: &P4Info) -> String {
    let text = print(info);
    text.split_once("\n\n").expect("a blank line after the header").1.to_string()
}

#[test]
fn an_empty_program_prints_its_frame() {
    expect![[r#"
        # proto-file: p4/config/v1/p4info.proto
        # proto-message: p4.config.v1.P4Info

        pkg_info {
          arch: "v1model"
        }
        type_info {
        }
    "#]]
    .assert_eq(&print(&P4Info {
        pkg_info: PkgInfo { arch: "v1model".into(), ..PkgInfo::default() },
        ..P4Info::default()
    }));
}

#[test]
fn tables_and_actions() {
    let table = Table {
        preamble: Preamble {
            annotations: Annotations {
                plain: vec!["@hidden_from(\"x\")".into()],
                plain_at: vec![SourceLocation { file: "a.p4".into(), line: 7, column: 0 }],
                structured: vec![StructuredAnnotation {
                    name: "limits".into(),
                    body: StructuredBody::KeyValues(vec![("max".into(), Expression::Int64(0))]),
                    at: SourceLocation::default(),
                }],
            },
            doc: Some(Documentation { brief: "Routes".into(), description: "two\nlines".into() }),
            ..preamble(ObjectKind::Table, "c.t")
        },
        match_fields: vec![
            MatchField {
                id: 1,
                name: "hdr.a".into(),
                annotations: Annotations::default(),
                doc: None,
                bitwidth: 9,
                match_type: MatchType::Known(MatchKind::Lpm),
                type_name: Some("port_t".into()),
            },
            MatchField {
                id: 2,
                name: "hdr.b".into(),
                annotations: Annotations::default(),
                doc: None,
                bitwidth: 8,
                match_type: MatchType::Other("fuzzy".into()),
                type_name: None,
            },
        ],
        action_refs: vec![
            ActionRef { id: 16777221, scope: ActionScope::TableAndDefault, annotations: Annotations::default() },
            ActionRef {
                id: 16777222,
                scope: ActionScope::DefaultOnly,
                annotations: Annotations { plain: vec!["@defaultonly".into()], ..Annotations::default() },
            },
        ],
        const_default_action_id: Some(16777221),
        initial_default_action: Some(ActionCall { action_id: 16777221, arguments: vec![(1, Bits::new(32, 0x0a22))] }),
        direct_resource_ids: vec![318767109, 352321541],
        size: 1024,
        idle_timeout: true,
        is_const_table: true,
        has_initial_entries: true,
        ..Table::default()
    };
    let action = Action {
        preamble: preamble(ObjectKind::Action, "c.a"),
        params: vec![Param { id: 1, name: "p".into(), bitwidth: 32, ..Param::default() }],
        ..Action::default()
    };
    expect![[r#"
        pkg_info {
        }
        tables {
          preamble {
            id: 33554437
            name: "c.t"
            alias: "c.t"
            annotations: "@hidden_from(\"x\")"
            annotation_locations {
              file: "a.p4"
              line: 7
            }
            doc {
              brief: "Routes"
              description: "two\nlines"
            }
            structured_annotations {
              name: "limits"
              kv_pair_list {
                kv_pairs {
                  key: "max"
                  value {
                    int64_value: 0
                  }
                }
              }
            }
          }
          match_fields {
            id: 1
            name: "hdr.a"
            bitwidth: 9
            match_type: LPM
            type_name {
              name: "port_t"
            }
          }
          match_fields {
            id: 2
            name: "hdr.b"
            bitwidth: 8
            other_match_type: "fuzzy"
          }
          action_refs {
            id: 16777221
          }
          action_refs {
            id: 16777222
            annotations: "@defaultonly"
            scope: DEFAULT_ONLY
          }
          const_default_action_id: 16777221
          initial_default_action {
            action_id: 16777221
            arguments {
              param_id: 1
              value: "\n\""
            }
          }
          direct_resource_ids: 318767109
          direct_resource_ids: 352321541
          size: 1024
          idle_timeout_behavior: NOTIFY_CONTROL
          is_const_table: true
          has_initial_entries: true
        }
        actions {
          preamble {
            id: 16777221
            name: "c.a"
            alias: "c.a"
          }
          params {
            id: 1
            name: "p"
            bitwidth: 32
          }
        }
        type_info {
        }
    "#]]
    .assert_eq(&body(&P4Info { tables: vec![table], actions: vec![action], ..P4Info::default() }));
}

#[test]
fn stateful_objects() {
    let info = P4Info {
        action_profiles: vec![ActionProfile {
            preamble: preamble(ObjectKind::ActionProfile, "c.ap"),
            table_ids: vec![33554437],
            with_selector: true,
            size: 128,
            max_group_size: 16,
            selector_size: Some(SelectorSize::SumOfMembers { max_member_weight: 4 }),
            weights_disallowed: false,
        }],
        counters: vec![Counter {
            preamble: preamble(ObjectKind::Counter, "c.n"),
            unit: CounterUnit::Both,
            size: 512,
            index_type_name: Some("port_t".into()),
        }],
        direct_meters: vec![DirectMeter {
            preamble: preamble(ObjectKind::DirectMeter, "c.m"),
            unit: MeterUnit::Bytes,
            meter_type: MeterType::SingleRateTwoColor,
            direct_table_id: 33554437,
        }],
        registers: vec![Register {
            preamble: preamble(ObjectKind::Register, "c.r"),
            type_spec: DataType::Bit(32),
            size: 8,
            index_type_name: None,
        }],
        digests: vec![Digest {
            preamble: preamble(ObjectKind::Digest, "c.d"),
            type_spec: DataType::Tuple(vec![DataType::Struct("s".into()), DataType::Bool]),
        }],
        ..P4Info::default()
    };
    expect![[r#"
        pkg_info {
        }
        action_profiles {
          preamble {
            id: 285212677
            name: "c.ap"
            alias: "c.ap"
          }
          table_ids: 33554437
          with_selector: true
          size: 128
          max_group_size: 16
          sum_of_members {
            max_member_weight: 4
          }
        }
        counters {
          preamble {
            id: 301989893
            name: "c.n"
            alias: "c.n"
          }
          spec {
            unit: BOTH
          }
          size: 512
          index_type_name {
            name: "port_t"
          }
        }
        direct_meters {
          preamble {
            id: 352321541
            name: "c.m"
            alias: "c.m"
          }
          spec {
            unit: BYTES
            type: SINGLE_RATE_TWO_COLOR
          }
          direct_table_id: 33554437
        }
        registers {
          preamble {
            id: 369098757
            name: "c.r"
            alias: "c.r"
          }
          type_spec {
            bitstring {
              bit {
                bitwidth: 32
              }
            }
          }
          size: 8
        }
        digests {
          preamble {
            id: 385875973
            name: "c.d"
            alias: "c.d"
          }
          type_spec {
            tuple {
              members {
                struct {
                  name: "s"
                }
              }
              members {
                bool {
                }
              }
            }
          }
        }
        type_info {
        }
    "#]]
    .assert_eq(&body(&info));
}

#[test]
fn named_types() {
    let mut types = TypeInfo::default();
    types.headers.insert(
        "h".into(),
        StructType { members: vec![("f".into(), DataType::Varbit(320))], annotations: Annotations::default() },
    );
    types.serializable_enums.insert(
        "e".into(),
        SerializableEnumType {
            bitwidth: 16,
            members: vec![("IPV4".into(), Bits::new(16, 0x0800)), ("ZERO".into(), Bits::zero(16))],
            annotations: Annotations::default(),
        },
    );
    types.new_types.insert(
        "port_t".into(),
        NewType {
            underlying: DataType::Bit(9),
            translation: Some(Translation { uri: "p4.org/psa/v1/PortId_t".into(), sdn_type: SdnType::Bits(32) }),
            annotations: Annotations::default(),
        },
    );
    types.error = Some(vec!["NoError".into(), "PacketTooShort".into()]);
    expect![[r#"
        pkg_info {
        }
        type_info {
          headers {
            key: "h"
            value {
              members {
                name: "f"
                type_spec {
                  varbit {
                    max_bitwidth: 320
                  }
                }
              }
            }
          }
          error {
            members: "NoError"
            members: "PacketTooShort"
          }
          serializable_enums {
            key: "e"
            value {
              underlying_type {
                bitwidth: 16
              }
              members {
                name: "IPV4"
                value: "\010\000"
              }
              members {
                name: "ZERO"
                value: "\000"
              }
            }
          }
          new_types {
            key: "port_t"
            value {
              translated_type {
                uri: "p4.org/psa/v1/PortId_t"
                sdn_bitwidth: 32
              }
            }
          }
        }
    "#]]
    .assert_eq(&body(&P4Info { type_info: types, ..P4Info::default() }));
}
