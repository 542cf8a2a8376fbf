//! PSA: the six blocks of a `PSA_Switch` as stages, with glue between them (`psa/glue.rs`).
//!
//! Deparsers are split so that their statements about copies of the packet take effect before anything is emitted
//! (`portable/emits.rs`). Copies of the packet as received then need no copy of the frame. A packet goes from ingress
//! through egress in one function: the egress parser reads what the ingress deparser has written to the frame.
//!
//! Metadata that one block passes to another (`normal_meta`, `clone_i2e_meta`, …) is one variable for both. It is also
//! a field list, so the replication engine preserves it for the copies on that path.
//!
//! Specification: P4_16 Portable Switch Architecture 1.2. Externs: `portable/externs.rs`. Tests: `tests/psa.rs`,
//! `tests/stf/psa` at the root.

mod glue;

use crate::arch::{Architecture, ExternCall, TableProperty};
use crate::codes;
use crate::context::{Binding, Lowerer};
use crate::portable::externs::{Externs, member};
use crate::portable::{ControlBlock, ParserBlock};
use crate::tree::Tree;
use crate::v1model::controller_headers;
use glue::{Glue, Stages};
use ir::{InstanceTypes, Intrinsic, Operand, SlotId, SlotKind, StageId};
use sema::typed::{Instance, InstanceId, InstanceOf, Param, Table};
use sema::{Type, TypedProgram};
use std::cell::RefCell;
use std::rc::Rc;

/// `PSA_PORT_RECIRCULATE`
const PORT_RECIRCULATE: u64 = 0xffff_fffa;
/// `PSA_PORT_CPU`
const PORT_CPU: u64 = 0xffff_fffd;
/// `PSA_CLONE_SESSION_TO_CPU`
const SESSION_TO_CPU: u64 = 0;

/// State shared by the architecture and the lowering of the blocks.
struct State {
    externs: Externs,
    /// The slot with the packet's length in the block that is being lowered.
    length: Option<SlotId>,
}

type Shared = Rc<RefCell<State>>;

/// Whether the package is PSA's, and not one that the program declares under the same name.
pub(crate) fn is_for(program: &TypedProgram, main: &Instance) -> bool {
    let InstanceOf::Package(id) = main.of else { return false };
    let declared = &program.types.block_types[id.index()];
    let has_metadata = program.types.structs.iter().any(|s| &*s.name == "psa_ingress_output_metadata_t");
    &*declared.name == "PSA_Switch" && declared.params.len() == 4 && has_metadata
}

/// Lowers a program whose `main` is a `PSA_Switch`.
pub(crate) fn lower(cx: &mut Lowerer<'_>, main: &Instance) {
    let Some(blocks) = Blocks::find(cx, main) else { return };
    let fields = Fields::allocate(cx, &blocks);
    fields.declare(cx);
    cx.parser_error = Some(fields.parser_error);
    let externs = Externs::new("psa");
    let shared: Shared = Rc::new(RefCell::new(State { externs, length: Some(fields.packet_length) }));
    cx.arch = Some(Box::new(Psa { state: shared.clone() }));
    cx.declare_externs();
    cx.declare_tables();
    controller_headers(cx);

    let finish = |cx: &mut Lowerer<'_>, stage: StageId| {
        shared.borrow_mut().externs.checksums.finish_stage(cx, stage);
        stage
    };
    let f = &fields;
    let value = |tree: &Tree| Binding::Tree(tree.clone());
    let ip = vec![Binding::PacketIn, value(&f.ih), value(&f.im), f.ingress_parser_in(), value(&f.resubmit)];
    let ip = [ip, vec![value(&f.recirculate)]].concat();
    let ip = cx.parser_stage(blocks.ingress_parser, ip);
    let ip = finish(cx, ip);
    let ig = vec![value(&f.ih), value(&f.im), f.ingress_in(), value(&f.ingress_out)];
    let ig = cx.control_stage(blocks.ingress, ig);
    let ig = finish(cx, ig);
    let id = [&f.clone_i2e, &f.resubmit, &f.normal, &f.ih, &f.im, &f.ingress_out].map(value);
    let id = [vec![Binding::PacketOut], id.to_vec()].concat();
    let (id, id_emit) = cx.split_deparser(|cx| {
        let stage = cx.control_stage(blocks.ingress_deparser, id);
        finish(cx, stage)
    });

    shared.borrow_mut().length = Some(f.egress_length);
    let ep = vec![Binding::PacketIn, value(&f.eh), value(&f.em), f.egress_parser_in(), value(&f.normal)];
    let ep = [ep, vec![value(&f.clone_i2e), value(&f.clone_e2e)]].concat();
    let ep = cx.parser_stage(blocks.egress_parser, ep);
    let ep = finish(cx, ep);
    let eg = vec![value(&f.eh), value(&f.em), f.egress_in(), value(&f.egress_out)];
    let eg = cx.control_stage(blocks.egress, eg);
    let eg = finish(cx, eg);
    let ed = [&f.clone_e2e, &f.recirculate, &f.eh, &f.em, &f.egress_out].map(value);
    let ed = [vec![Binding::PacketOut], ed.to_vec(), vec![f.egress_deparser_in()]].concat();
    let (ed, ed_emit) = cx.split_deparser(|cx| {
        let stage = cx.control_stage(blocks.egress_deparser, ed);
        finish(cx, stage)
    });
    let stages = Stages { ip, ig, id, id_emit, ep, eg, ed, ed_emit };
    Glue::write(cx, &fields, stages);
}

/// The constructor arguments of `main`.
struct Blocks {
    ingress_parser: ParserBlock,
    ingress: ControlBlock,
    ingress_deparser: ControlBlock,
    egress_parser: ParserBlock,
    egress: ControlBlock,
    egress_deparser: ControlBlock,
}

impl Blocks {
    fn find(cx: &mut Lowerer<'_>, main: &Instance) -> Option<Blocks> {
        let p = cx.p;
        let argument = |of: &Instance, i: usize| of.args.get(i).and_then(|a| a.value.as_instance());
        let block = |pipeline: usize, i: usize| argument(p.instance(argument(main, pipeline)?), i);
        let found = (|| {
            Some(Blocks {
                ingress_parser: cx.parser_block(block(0, 0))?,
                ingress: cx.control_block(block(0, 1))?,
                ingress_deparser: cx.control_block(block(0, 2))?,
                egress_parser: cx.parser_block(block(2, 0))?,
                egress: cx.control_block(block(2, 1))?,
                egress_deparser: cx.control_block(block(2, 2))?,
            })
        })();
        let Some(blocks) = found else {
            cx.refuse(codes::NO_MAIN, main.span, "`PSA_Switch` needs two pipelines of a parser and two controls each");
            return None;
        };
        let parser = |block: ParserBlock| p.parsers[block.0.index()].params.len();
        let control = |block: ControlBlock| p.controls[block.0.index()].params.len();
        let counts = [
            (parser(blocks.ingress_parser), 6),
            (control(blocks.ingress), 4),
            (control(blocks.ingress_deparser), 7),
            (parser(blocks.egress_parser), 7),
            (control(blocks.egress), 4),
            (control(blocks.egress_deparser), 7),
        ];
        if counts.iter().any(|(found, wanted)| found != wanted) {
            cx.refuse(codes::BLOCK_PARAMETERS, main.span, "a block of `PSA_Switch` has the wrong number of parameters");
            return None;
        }
        Some(blocks)
    }
}

/// Variables that blocks share. The blocks' parameters are bound to them directly.
struct Fields {
    /// Headers and metadata of ingress, then of egress.
    ih: Tree,
    im: Tree,
    eh: Tree,
    em: Tree,
    /// Metadata that deparsers pass to parsers.
    normal: Tree,
    clone_i2e: Tree,
    clone_e2e: Tree,
    resubmit: Tree,
    recirculate: Tree,
    /// `psa_ingress_output_metadata_t` and `psa_egress_output_metadata_t`.
    ingress_out: Tree,
    egress_out: Tree,
    /// Fields of the metadata structs that blocks read.
    ingress_port: SlotId,
    packet_path: SlotId,
    ingress_timestamp: SlotId,
    parser_error: SlotId,
    egress_port: SlotId,
    class_of_service: SlotId,
    instance: SlotId,
    egress_timestamp: SlotId,
    packet_length: SlotId,
    /// Length in bytes of the packet that the egress parser gets.
    egress_length: SlotId,
    /// Numbers of the packet paths.
    paths: Paths,
}

/// The numbers of `PSA_PacketPath_t`'s members.
#[derive(Clone, Copy)]
struct Paths {
    normal: u128,
    unicast: u128,
    multicast: u128,
    clone_i2e: u128,
    clone_e2e: u128,
    resubmit: u128,
    recirculate: u128,
}

/// Widths of ports, groups and the like in bits, as in `psa.p4`.
const PORT_WIDTH: u32 = 32;
const CLASS_WIDTH: u32 = 8;
const INSTANCE_WIDTH: u32 = 16;
const TIMESTAMP_WIDTH: u32 = 64;

impl Fields {
    fn allocate(cx: &mut Lowerer<'_>, blocks: &Blocks) -> Fields {
        let p = cx.p;
        let ip: &[Param] = &p.parsers[blocks.ingress_parser.0.index()].params;
        let ig: &[Param] = &p.controls[blocks.ingress.0.index()].params;
        let ep: &[Param] = &p.parsers[blocks.egress_parser.0.index()].params;
        let eg: &[Param] = &p.controls[blocks.egress.0.index()].params;
        let path_type = p.types.struct_info(&ip[3].ty).and_then(|s| Some(&s.fields[s.field("packet_path")?.0].ty));
        let path = |name| path_type.map_or(0, |ty| member(cx, ty, name));
        let paths = Paths {
            normal: path("NORMAL"),
            unicast: path("NORMAL_UNICAST"),
            multicast: path("NORMAL_MULTICAST"),
            clone_i2e: path("CLONE_I2E"),
            clone_e2e: path("CLONE_E2E"),
            resubmit: path("RESUBMIT"),
            recirculate: path("RECIRCULATE"),
        };
        let storage = |cx: &mut Lowerer<'_>, name: &str, param: &Param, kind: SlotKind| {
            cx.allocate(name, &param.ty, kind, param.span)
        };
        let headers = SlotKind::HeaderPart;
        let metadata = SlotKind::Metadata;
        let of_egress = |param: &Param| format!("egress.{}", param.name);
        Fields {
            ih: storage(cx, &ig[0].name, &ip[1], headers),
            im: storage(cx, &ig[1].name, &ip[2], metadata),
            eh: storage(cx, &of_egress(&eg[0]), &ep[1], headers),
            em: storage(cx, &of_egress(&eg[1]), &ep[2], metadata),
            resubmit: storage(cx, "resubmit_meta", &ip[4], metadata),
            recirculate: storage(cx, "recirculate_meta", &ip[5], metadata),
            normal: storage(cx, "normal_meta", &ep[4], metadata),
            clone_i2e: storage(cx, "clone_i2e_meta", &ep[5], metadata),
            clone_e2e: storage(cx, "clone_e2e_meta", &ep[6], metadata),
            ingress_out: storage(cx, "ingress_output", &ig[3], metadata),
            egress_out: storage(cx, "egress_output", &eg[3], metadata),
            ingress_port: cx.b.metadata("ingress_port", PORT_WIDTH),
            packet_path: cx.b.metadata("packet_path", crate::storage::ENUM_WIDTH),
            ingress_timestamp: cx.b.metadata("ingress_timestamp", TIMESTAMP_WIDTH),
            parser_error: cx.b.metadata("parser_error", crate::storage::ENUM_WIDTH),
            egress_port: cx.b.metadata("egress_port", PORT_WIDTH),
            class_of_service: cx.b.metadata("class_of_service", CLASS_WIDTH),
            instance: cx.b.metadata("instance", INSTANCE_WIDTH),
            egress_timestamp: cx.b.metadata("egress_timestamp", TIMESTAMP_WIDTH),
            packet_length: cx.b.metadata("packet_length", 32),
            egress_length: cx.b.metadata("$egress_length", 32),
            paths,
        }
    }

    /// Declares the slots that the runtime reads and sets, and the constants of the architecture.
    fn declare(&self, cx: &mut Lowerer<'_>) {
        let intrinsics = [
            (Intrinsic::IngressPort, self.ingress_port),
            (Intrinsic::PacketLength, self.packet_length),
            (Intrinsic::InstanceType, self.packet_path),
            (Intrinsic::IngressTimestamp, self.ingress_timestamp),
            (Intrinsic::EgressTimestamp, self.egress_timestamp),
            (Intrinsic::EgressPort, self.egress_port),
            (Intrinsic::EgressRid, self.instance),
            (Intrinsic::ClassOfService, self.class_of_service),
            (Intrinsic::ParserError, self.parser_error),
        ];
        intrinsics.into_iter().for_each(|(which, slot)| cx.b.intrinsic(which, slot));
        let Paths { normal, multicast, clone_i2e, clone_e2e, resubmit, recirculate, .. } = self.paths;
        let program = cx.b.program_mut();
        program.cpu_port = Some(PORT_CPU);
        program.recirculation_port = Some(PORT_RECIRCULATE);
        program.cpu_session = Some(SESSION_TO_CPU);
        program.cuts_clones_first = true;
        program.instance_types = InstanceTypes {
            normal: normal as u64,
            ingress_clone: clone_i2e as u64,
            egress_clone: clone_e2e as u64,
            recirculate: recirculate as u64,
            replication: multicast as u64,
            resubmit: resubmit as u64,
        };
    }

    fn ingress_parser_in(&self) -> Binding {
        record(&[self.ingress_port, self.packet_path])
    }

    fn ingress_in(&self) -> Binding {
        record(&[self.ingress_port, self.packet_path, self.ingress_timestamp, self.parser_error])
    }

    fn egress_parser_in(&self) -> Binding {
        record(&[self.egress_port, self.packet_path])
    }

    fn egress_in(&self) -> Binding {
        let Fields { class_of_service, egress_port, packet_path, instance, egress_timestamp, parser_error, .. } = self;
        record(&[*class_of_service, *egress_port, *packet_path, *instance, *egress_timestamp, *parser_error])
    }

    fn egress_deparser_in(&self) -> Binding {
        record(&[self.egress_port])
    }
}

/// A struct with these slots as fields.
fn record(slots: &[SlotId]) -> Binding {
    Binding::Tree(Tree::Struct(slots.iter().map(|s| Tree::from(*s)).collect()))
}

/// The architecture PSA.
struct Psa {
    state: Shared,
}

impl Psa {
    /// A field of the struct that is argument `i` of a call.
    fn field(cx: &Lowerer<'_>, call: &ExternCall<'_>, i: usize, name: &str) -> Operand {
        let ty: Option<&Type> = call.call.args.get(i).map(|a| &a.ty);
        let index = ty.and_then(|ty| Some(cx.p.types.struct_info(ty)?.field(name)?.0));
        index.map_or(Lowerer::bit(false), |index| call.value(i).child(index).operand())
    }
}

impl Architecture for Psa {
    fn declare(&mut self, cx: &mut Lowerer<'_>, instance: InstanceId) {
        self.state.borrow_mut().externs.declare(cx, instance);
    }

    fn enter(&mut self, cx: &mut Lowerer<'_>, block: InstanceId) {
        self.state.borrow_mut().externs.enter(cx, block);
    }

    fn function(&mut self, cx: &mut Lowerer<'_>, name: &str, call: &ExternCall<'_>) -> Tree {
        let not_dropped = |cx: &mut Lowerer<'_>, cond: Operand| {
            let drop = Psa::field(cx, call, 0, "drop");
            let keep = cx.not(drop);
            cx.and(keep, cond)
        };
        match name {
            "psa_clone_i2e" | "psa_clone_e2e" => Psa::field(cx, call, 0, "clone").into(),
            "psa_resubmit" => {
                let resubmit = Psa::field(cx, call, 0, "resubmit");
                not_dropped(cx, resubmit).into()
            }
            "psa_normal" => {
                let resubmit = Psa::field(cx, call, 0, "resubmit");
                let normal = cx.not(resubmit);
                not_dropped(cx, normal).into()
            }
            "psa_recirculate" => {
                let port = Psa::field(cx, call, 1, "egress_port");
                let there = Operand::new_const(cx.width(&port), PORT_RECIRCULATE.into());
                let recirculates = cx.b.bin(ir::BinOp::Eq, port, there).into();
                not_dropped(cx, recirculates).into()
            }
            _ => match self.state.borrow_mut().externs.function(cx, name, call) {
                Some(result) => result,
                None => cx.foreign_function(name, call),
            },
        }
    }

    fn method(&mut self, cx: &mut Lowerer<'_>, instance: InstanceId, method: &str, call: &ExternCall<'_>) -> Tree {
        let result = self.state.borrow_mut().externs.method(cx, instance, method, call);
        result.unwrap_or_else(|| {
            let (name, path) = cx.extern_names(instance);
            let (name, path) = (name.to_string(), path.to_string());
            cx.foreign_method(&name, &path, method, call)
        })
    }

    fn direct_meter(&mut self, _: &mut Lowerer<'_>, _: &Table, _: ir::ExternId, _: SlotId, _: SlotId) {
        // Actions run direct meters.
    }

    fn runs_direct_at_lookup(&self) -> bool {
        false
    }

    fn table_property(&self, name: &str) -> TableProperty {
        self.state.borrow().externs.table_property(name)
    }

    fn packet_length(&self) -> Option<SlotId> {
        self.state.borrow().length
    }
}
