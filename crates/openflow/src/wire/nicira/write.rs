//! Encoding of experimenters' actions, in the order of [`Action`].

use super::kind::{REASON_ACTION, RUN_PROGRAM, SLUICE, nxac2pt, nxast, tunnel};
use crate::action::{Action, Controller, HeaderAction, Subfield, port};
use crate::error::NICIRA;
use crate::field::{FieldId, Fields, class};
use crate::message::Version;
use crate::wire::number::{self, Style, VLAN_PRESENT};
use crate::wire::operand::{EXPERIMENTER, bits_of, ends_of, finish, port_16, write_copy};
use crate::wire::oxm::{self, Header};
use crate::wire::{Result, Writer, learn, unencodable};

/// An offset and a bit count packed in 16 bits, and the field's OXM header, which must fit in four bytes.
fn write_narrow(bits: Subfield, fields: &Fields) -> Result<(u16, u32)> {
    let (known, offset, count) = bits_of(bits, Style::Nxm, fields)?;
    if count > 64 || offset >= 1024 || known.number.class == class::EXPERIMENTER {
        return unencodable(format!("`{}` does not fit in this action", fields.get(bits.field).name));
    }
    let header = u32::from(known.number.class) << 16 | u32::from(known.number.field) << 9 | known.bytes as u32;
    Ok(((offset << 6 | (count - 1)) as u16, header))
}

/// Encodes an action that the version lacks in OpenFlow itself.
pub(crate) fn write(version: Version, action: &Action, fields: &Fields, out: &mut Vec<u8>) -> Result<()> {
    match action {
        Action::Resubmit { port, table, with_ct } => {
            let port = port_16(port.unwrap_or(port::IN_PORT))?;
            let kind = match (table, with_ct) {
                (_, true) => nxast::RESUBMIT_TABLE_CT,
                (Some(_), false) => nxast::RESUBMIT_TABLE,
                (None, false) => nxast::RESUBMIT,
            };
            put(kind, out, |out| {
                out.u16(port);
                if kind != nxast::RESUBMIT {
                    out.u8(table.unwrap_or(0xff));
                }
                Ok(())
            })
        }
        Action::SetQueue(queue) if version == Version::V10 => put(nxast::SET_QUEUE, out, |out| {
            out.u16(0);
            out.u32(*queue);
            Ok(())
        }),
        Action::Group(group) if version == Version::V10 => put(nxast::GROUP, out, |out| {
            out.u16(0);
            out.u32(*group);
            Ok(())
        }),
        Action::PopQueue => put(nxast::POP_QUEUE, out, |_| Ok(())),
        Action::Move { from, to } => {
            let ends = ends_of(*from, *to, Style::Nxm, fields)?;
            put(nxast::REG_MOVE, out, |out| {
                write_copy(&ends, 0, out);
                Ok(())
            })
        }
        Action::Note(bytes) => put(nxast::NOTE, out, |out| {
            out.bytes(bytes);
            Ok(())
        }),
        Action::Multipath { hash, basis, algorithm, max_link, argument, to } => {
            let (packed, header) = write_narrow(*to, fields)?;
            put(nxast::MULTIPATH, out, |out| {
                for value in [*hash as u16, *basis, 0, *algorithm as u16, *max_link] {
                    out.u16(value);
                }
                out.u32(*argument);
                out.u16(0);
                out.u16(packed);
                out.u32(header);
                Ok(())
            })
        }
        Action::Bundle { hash, basis, algorithm, members, to } => {
            let (packed, header) = to.map_or(Ok((0, 0)), |to| write_narrow(to, fields))?;
            let kind = if to.is_some() { nxast::BUNDLE_LOAD } else { nxast::BUNDLE };
            put(kind, out, |out| {
                for value in [*algorithm as u16, *hash as u16, *basis, 0, 2, members.len() as u16, packed] {
                    out.u16(value);
                }
                out.u32(header);
                out.zeros(4);
                for member in members {
                    out.u16(port_16(*member)?);
                }
                Ok(())
            })
        }
        Action::OutputField { field, max_len } => match write_narrow(*field, fields) {
            Ok((packed, header)) => put(nxast::OUTPUT_REG, out, |out| {
                out.u16(packed);
                out.u32(header);
                out.u16(*max_len);
                out.zeros(6);
                Ok(())
            }),
            Err(_) => {
                let (known, offset, count) = bits_of(*field, Style::Nxm, fields)?;
                if count > 64 || offset >= 1024 {
                    return unencodable("a port of more than 64 bits");
                }
                put(nxast::OUTPUT_REG2, out, |out| {
                    out.u16((offset << 6 | (count - 1)) as u16);
                    out.u16(*max_len);
                    Header::of(&known, false).write(out);
                    Ok(())
                })
            }
        },
        Action::Learn(learn) => {
            let is_long = learn::is_long(learn);
            let kind = if is_long { nxast::LEARN2 } else { nxast::LEARN };
            put(kind, out, |out| learn::write(learn, is_long, fields, out))
        }
        Action::Exit => put(nxast::EXIT, out, |_| Ok(())),
        Action::DecTtlControllers(ids) => put(nxast::DEC_TTL_CNT_IDS, out, |out| {
            out.u16(ids.len() as u16);
            out.zeros(4);
            ids.iter().for_each(|id| out.u16(*id));
            Ok(())
        }),
        Action::FinTimeout { idle, hard } => put(nxast::FIN_TIMEOUT, out, |out| {
            out.u16(*idle);
            out.u16(*hard);
            Ok(())
        }),
        Action::Controller(controller) => write_controller(controller, out),
        Action::WriteMetadata { value, mask } => put(nxast::WRITE_METADATA, out, |out| {
            out.zeros(6);
            out.u64(*value);
            out.u64(*mask);
            Ok(())
        }),
        Action::StackPush(bits) => write_stack(nxast::STACK_PUSH, *bits, fields, out),
        Action::StackPop(bits) => write_stack(nxast::STACK_POP, *bits, fields, out),
        Action::Conjunction { clause, clauses, id } => put(nxast::CONJUNCTION, out, |out| {
            out.u8(*clause);
            out.u8(*clauses);
            out.u32(*id);
            Ok(())
        }),
        Action::OutputTruncated { port, max_len } => {
            let port = port_16(*port)?;
            put(nxast::OUTPUT_TRUNC, out, |out| {
                out.u16(port);
                out.u32(*max_len);
                Ok(())
            })
        }
        Action::CheckPacketLarger { bytes, to } => {
            let (known, offset, _) = bits_of(*to, Style::Nxm, fields)?;
            put(nxast::CHECK_PKT_LARGER, out, |out| {
                out.u16(*bytes);
                out.u16(offset as u16);
                Header::of(&known, false).write(out);
                Ok(())
            })
        }
        Action::DeleteField(field) => {
            let Some(known) = number::number_of(*field, Style::Nxm, fields) else {
                return unencodable(format!("`{}` has no OXM number", fields.get(*field).name));
            };
            put(nxast::DELETE_FIELD, out, |out| {
                Header::of(&known, false).write(out);
                Ok(())
            })
        }
        Action::Program { id, argument } => put(nxast::NOTE, out, |out| {
            out.u32(SLUICE);
            out.u16(RUN_PROGRAM);
            out.u16(0);
            out.u32(*id);
            out.u64(*argument);
            Ok(())
        }),
        Action::Unsupported(name) => unencodable(*name),
        _ => unencodable(format!("this version has no {action:?}")),
    }
}

/// Encodes `clone` around the actions that `actions` appends.
pub(crate) fn write_clone(out: &mut Vec<u8>, actions: impl FnOnce(&mut Vec<u8>) -> Result<()>) -> Result<()> {
    put(nxast::CLONE, out, |out| {
        out.zeros(6);
        actions(out)
    })
}

/// Encodes a Nicira action of at least 16 bytes.
fn put(kind: u16, out: &mut Vec<u8>, body: impl FnOnce(&mut Vec<u8>) -> Result<()>) -> Result<()> {
    let start = out.len();
    out.u16(EXPERIMENTER);
    out.u16(0);
    out.u32(NICIRA);
    out.u16(kind);
    body(out)?;
    let missing = 16usize.saturating_sub(out.len() - start);
    out.zeros(missing);
    // These actions have a fixed length, whatever the length of the OXM header in them.
    if matches!(
        kind,
        nxast::OUTPUT_REG2 | nxast::STACK_PUSH | nxast::STACK_POP | nxast::DELETE_FIELD | nxast::CHECK_PKT_LARGER
    ) {
        let missing = 24usize.saturating_sub(out.len() - start);
        out.zeros(missing);
    }
    finish(start, out)
}

fn write_stack(kind: u16, bits: Subfield, fields: &Fields, out: &mut Vec<u8>) -> Result<()> {
    let (known, offset, count) = bits_of(bits, Style::Nxm, fields)?;
    put(kind, out, |out| {
        out.u16(offset as u16);
        Header::of(&known, false).write(out);
        out.u16(count as u16);
        Ok(())
    })
}

fn write_controller(controller: &Controller, out: &mut Vec<u8>) -> Result<()> {
    let Controller { max_len, id, reason, userdata, pause, meter } = controller;
    if userdata.is_empty() && !pause && meter.is_none() {
        return put(nxast::CONTROLLER, out, |out| {
            out.u16(*max_len);
            out.u16(*id);
            out.u8(*reason);
            out.u8(0);
            Ok(())
        });
    }
    let property = |kind: u16, value: &[u8], out: &mut Vec<u8>| {
        let start = out.len();
        out.u16(kind);
        out.u16(0);
        out.bytes(value);
        out.patch_length(start + 2, start)?;
        out.align(start);
        Ok(())
    };
    // Open vSwitch counts a number's padding in a property's length.
    let word = |value: u16| (u32::from(value) << 16).to_be_bytes();
    put(nxast::CONTROLLER2, out, |out| {
        out.zeros(6);
        if *max_len != 0xffff {
            property(nxac2pt::MAX_LEN, &word(*max_len), out)?;
        }
        if *id != 0 {
            property(nxac2pt::CONTROLLER_ID, &word(*id), out)?;
        }
        if *reason != REASON_ACTION {
            property(nxac2pt::REASON, &[*reason, 0, 0, 0], out)?;
        }
        if !userdata.is_empty() {
            property(nxac2pt::USERDATA, userdata, out)?;
        }
        if *pause {
            property(nxac2pt::PAUSE, &[], out)?;
        }
        if let Some(meter) = meter {
            property(nxac2pt::METER_ID, &meter.to_be_bytes(), out)?;
        }
        Ok(())
    })
}

/// Encodes a header action that OpenFlow 1.0 itself lacks.
pub(crate) fn write_header(name: HeaderAction, argument: u128, fields: &Fields, out: &mut Vec<u8>) -> Result<()> {
    let (kind, bytes) = match name {
        HeaderAction::PushMpls => (nxast::PUSH_MPLS, 2),
        HeaderAction::PopMpls => (nxast::POP_MPLS, 2),
        HeaderAction::SetMplsTtl => (nxast::SET_MPLS_TTL, 1),
        HeaderAction::DecMplsTtl => (nxast::DEC_MPLS_TTL, 0),
        HeaderAction::DecNwTtl => (nxast::DEC_TTL, 0),
        HeaderAction::SetNwTtl => {
            let Some(field) = fields.numbered(number::nxm_1(29)) else {
                return unencodable("there is no field for a TTL");
            };
            let mask = fields.get(field).full();
            return write_load(field, argument & mask, mask, true, fields, out);
        }
        _ => return unencodable(format!("OpenFlow 1.0 has no {}", name.name())),
    };
    put(kind, out, |out| {
        out.uint(argument, bytes);
        Ok(())
    })
}

/// Encodes set-field as loads of up to 64 adjacent bits each, or as one load of the newer form if the OXM header needs
/// it.
pub(crate) fn write_load(
    field: FieldId,
    value: u128,
    mask: u128,
    is_10: bool,
    fields: &Fields,
    out: &mut Vec<u8>,
) -> Result<()> {
    let full = fields.get(field).full();
    if is_10 && mask == full && tunnel(fields) == Some(field) {
        return match u32::try_from(value) {
            Ok(value) => put(nxast::SET_TUNNEL, out, |out| {
                out.u16(0);
                out.u32(value);
                Ok(())
            }),
            Err(_) => put(nxast::SET_TUNNEL64, out, |out| {
                out.zeros(6);
                out.u64(value as u64);
                Ok(())
            }),
        };
    }
    let Some(known) = number::number_of(field, Style::Nxm, fields) else {
        return unencodable(format!("`{}` has no OXM number", fields.get(field).name));
    };
    let Some((value, mask)) = known.write(value, mask, fields) else {
        return unencodable(format!("{value:#x} in `{}`", fields.get(field).name));
    };
    if known.number.class == class::EXPERIMENTER {
        return put(nxast::REG_LOAD2, out, |out| {
            out.zeros(6);
            oxm::write_entry(&known, value, mask, out);
            Ok(())
        });
    }
    let mut left = mask;
    // A load has only 12 bits of a VLAN id (see `read_load`); the bit above them is set in any tagged packet.
    if number::vlan_vid(fields) == Some(field) {
        left &= !VLAN_PRESENT;
    }
    while left != 0 {
        let offset = left.trailing_zeros();
        let bits = (left >> offset).trailing_ones().min(64);
        left &= !(number::ones(bits) << offset);
        put(nxast::REG_LOAD, out, |out| {
            out.u16((offset << 6 | (bits - 1)) as u16);
            Header::of(&known, false).write(out);
            out.uint(value >> offset & number::ones(bits), 8);
            Ok(())
        })?;
    }
    Ok(())
}
