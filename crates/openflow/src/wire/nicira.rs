//! Experimenters' actions: Nicira's (ovs-actions(7)), ONF's copy-field for OpenFlow 1.3 and 1.4 (EXT-320), and Sluice's
//! own.
//!
//! Nicira's actions have 16-bit ports and name fields by OXM headers, of which older actions have room for four bytes
//! only. Where an action has an older and a newer form, the older is used if it can express the action, as in Open
//! vSwitch.
//!
//! Connection tracking, sampling and other unimplemented actions are decoded as [`Action::Unsupported`], so that the
//! bridge can refuse them by name.
//!
//! | experimenter | subtype | action |
//! | --- | --- | --- |
//! | 0x2320 (Nicira) | 1 to 51 | see [`read`] |
//! | 0x4f4e4600 (ONF) | 3200 | copy-field |
//! | [`SLUICE`] | 1 | runs a program: 2 bytes of zeros, 32 bits of its id, 64 bits of an argument |
//!
//! Clients that do not know Sluice's experimenter id would refuse a whole reply with such an action, so it is encoded
//! in Nicira's `note` (ovs-actions(7)): the same bytes from the experimenter id on. Both forms are decoded.

mod kind;
mod write;

use crate::action::{
    Action, BundleAlgorithm, Controller, HashFields, HeaderAction, MultipathAlgorithm, Subfield, port,
};
use crate::error::{ErrorKind, NICIRA, ONF};
use crate::field::Fields;
use crate::message::Version;
use crate::wire::number::{self, VLAN_PRESENT};
use crate::wire::operand::{
    check_writable, ether_type, exactly, header, output_port, read_copy, set, subfield_of, zeros,
};
use crate::wire::oxm::{self, Entry, Header, Kinds};
use crate::wire::{Reader, Result, fail, learn};

use kind::{REASON_ACTION, RUN_PROGRAM, SLUICE, nxac2pt, nxast, tunnel};
pub(crate) use write::{write, write_clone, write_header, write_load};

/// ONF's copy-field.
const ONF_COPY: u16 = 3200;
/// The maximum number of a bundle's members: Open vSwitch's limit, which ovs-actions(7) does not state.
const MAX_MEMBERS: u16 = 2048;

const IN_LOAD: Kinds =
    Kinds { field: ErrorKind::BacBadSetType, length: ErrorKind::BacBadSetLen, value: ErrorKind::BacBadSetArgument };

/// Decodes an experimenter's action after its first four bytes. `nested` decodes actions within it.
pub(crate) fn read(
    version: Version,
    r: &mut Reader,
    fields: &Fields,
    nested: impl FnOnce(&mut Reader) -> Result<Vec<Action>>,
    actions: &mut Vec<Action>,
) -> Result<()> {
    let experimenter = r.u32()?;
    if !matches!(experimenter, NICIRA | ONF | SLUICE) {
        return fail(ErrorKind::BacBadExperimenter, format!("there is no experimenter {experimenter:#x}"));
    }
    let kind = r.u16()?;
    match (experimenter, kind) {
        (NICIRA, _) => read_nicira(version, kind, r, fields, nested, actions),
        (ONF, ONF_COPY) if matches!(version, Version::V13 | Version::V14) => {
            r.skip(2)?;
            let bits = r.u16()?;
            actions.push(read_copy(bits, r, 2, fields)?);
            Ok(())
        }
        (SLUICE, RUN_PROGRAM) => {
            exactly(24, r)?;
            r.skip(2)?;
            actions.push(Action::Program { id: r.u32()?, argument: r.u64()? });
            Ok(())
        }
        _ => fail(ErrorKind::BacBadExpType, format!("experimenter {experimenter:#x} has no action {kind}")),
    }
}

/// Decodes a note: arbitrary data, or the action that runs a program.
fn read_note(r: &mut Reader, actions: &mut Vec<Action>) -> Result<()> {
    let bytes = r.rest();
    let Some(mut ours) = bytes.strip_prefix(&SLUICE.to_be_bytes()).map(|rest| Reader::new(rest, ErrorKind::BacBadLen))
    else {
        actions.push(Action::Note(bytes.to_vec()));
        return Ok(());
    };
    let kind = ours.u16()?;
    if kind != RUN_PROGRAM {
        return fail(ErrorKind::BacBadExpType, format!("a note of {SLUICE:#x} has no action {kind}"));
    }
    zeros(ours.bytes(2)?, ErrorKind::BacBadArgument)?;
    actions.push(Action::Program { id: ours.u32()?, argument: ours.u64()? });
    zeros(ours.rest(), ErrorKind::BacBadArgument)
}

/// The minimum and maximum length in bytes of a Nicira action; `None` if the version lacks it.
fn lengths(version: Version, kind: u16) -> Option<(usize, usize)> {
    const ANY: usize = 65528;
    let lengths = match kind {
        nxast::SET_QUEUE
        | nxast::DEC_TTL
        | nxast::PUSH_MPLS..=nxast::DEC_MPLS_TTL
        | nxast::SET_MPLS_LABEL
        | nxast::SET_MPLS_TC
        | nxast::GROUP
            if version != Version::V10 =>
        {
            return None;
        }
        nxast::REG_MOVE | nxast::REG_LOAD | nxast::REG_LOAD2 if version == Version::V15 => return None,
        nxast::ENCAP..=nxast::DEC_NSH_TTL if version == Version::V10 => return None,
        nxast::REG_MOVE => (16, ANY),
        nxast::NOTE | nxast::DEC_TTL_CNT_IDS | nxast::REG_LOAD2 | nxast::NAT | nxast::CONTROLLER2 | nxast::CLONE => {
            (16, ANY)
        }
        nxast::ENCAP | nxast::DECAP => (16, ANY),
        nxast::CT | nxast::CHECK_PKT_LARGER => (24, ANY),
        nxast::BUNDLE | nxast::BUNDLE_LOAD | nxast::LEARN => (32, ANY),
        nxast::LEARN2 => (40, ANY),
        nxast::REG_LOAD | nxast::OUTPUT_REG | nxast::OUTPUT_REG2 | nxast::SET_TUNNEL64 => (24, 24),
        nxast::STACK_PUSH | nxast::STACK_POP | nxast::SAMPLE | nxast::DELETE_FIELD => (24, 24),
        nxast::MULTIPATH | nxast::WRITE_METADATA | nxast::SAMPLE2 | nxast::SAMPLE3 => (32, 32),
        nxast::SAMPLE4 => (40, 40),
        nxast::RESUBMIT..=nxast::SAMPLE4 if kind != 3 && kind != 11 => (16, 16),
        _ => return None,
    };
    Some(lengths)
}

fn read_nicira(
    version: Version,
    kind: u16,
    r: &mut Reader,
    fields: &Fields,
    nested: impl FnOnce(&mut Reader) -> Result<Vec<Action>>,
    actions: &mut Vec<Action>,
) -> Result<()> {
    let Some((least, most)) = lengths(version, kind) else {
        return fail(ErrorKind::BacBadExpType, format!("Nicira's action {kind} is not in this version"));
    };
    let len = r.position() + r.left();
    if len < least || len > most {
        return fail(ErrorKind::BacBadLen, format!("Nicira's action {kind} with {len} bytes"));
    }
    let action = match kind {
        nxast::RESUBMIT => {
            let port = port::from_16(r.u16()?);
            Action::Resubmit { port: (port != port::IN_PORT).then_some(port), table: None, with_ct: false }
        }
        nxast::RESUBMIT_TABLE | nxast::RESUBMIT_TABLE_CT => {
            let port = port::from_16(r.u16()?);
            let table = r.u8()?;
            zeros(r.rest(), ErrorKind::BacBadArgument)?;
            Action::Resubmit {
                port: (port != port::IN_PORT).then_some(port),
                table: (table != 0xff).then_some(table),
                with_ct: kind == nxast::RESUBMIT_TABLE_CT,
            }
        }
        nxast::SET_TUNNEL | nxast::SET_TUNNEL64 => {
            // The argument is aligned to its size.
            r.skip(if kind == nxast::SET_TUNNEL { 2 } else { 6 })?;
            let value = if kind == nxast::SET_TUNNEL { r.u32()?.into() } else { r.u64()? };
            let Some(field) = tunnel(fields) else {
                return fail(ErrorKind::BacBadType, "there is no field for a tunnel's number");
            };
            check_writable(field, fields)?;
            let mask = fields.get(field).full();
            Action::SetField { field, value: u128::from(value) & mask, mask }
        }
        nxast::SET_QUEUE => {
            r.skip(2)?;
            Action::SetQueue(r.u32()?)
        }
        nxast::GROUP => {
            r.skip(2)?;
            Action::Group(r.u32()?)
        }
        nxast::POP_QUEUE => Action::PopQueue,
        nxast::REG_MOVE => {
            let bits = r.u16()?;
            read_copy(bits, r, 0, fields)?
        }
        nxast::REG_LOAD => return read_load(r, fields, actions),
        nxast::REG_LOAD2 => {
            r.skip(6)?;
            let entry = oxm::read_entry(r, &IN_LOAD, fields)?;
            zeros(r.rest(), ErrorKind::BacBadSetArgument)?;
            return set(&entry, fields, actions);
        }
        nxast::NOTE => return read_note(r, actions),
        nxast::MULTIPATH => read_multipath(r, fields)?,
        nxast::BUNDLE | nxast::BUNDLE_LOAD => read_bundle(kind == nxast::BUNDLE_LOAD, r, fields)?,
        nxast::OUTPUT_REG => {
            let bits = r.u16()?;
            let field = whole_port(narrow(bits, Header::read(r)?, fields)?, fields);
            let max_len = r.u16()?;
            zeros(r.rest(), ErrorKind::BacBadArgument)?;
            Action::OutputField { field, max_len }
        }
        nxast::OUTPUT_REG2 => {
            let bits = r.u16()?;
            let max_len = r.u16()?;
            let field = whole_port(narrow(bits, Header::read(r)?, fields)?, fields);
            zeros(r.rest(), ErrorKind::NxbrcMustBeZero)?;
            Action::OutputField { field, max_len }
        }
        nxast::LEARN => Action::Learn(Box::new(learn::read(false, r, fields)?)),
        nxast::LEARN2 => Action::Learn(Box::new(learn::read(true, r, fields)?)),
        nxast::EXIT => Action::Exit,
        nxast::DEC_TTL => header(HeaderAction::DecNwTtl, 0),
        nxast::DEC_TTL_CNT_IDS => {
            let count = r.u16()?;
            zeros(r.bytes(4)?, ErrorKind::NxbrcMustBeZero)?;
            Action::DecTtlControllers((0..count).map(|_| r.u16()).collect::<Result<_>>()?)
        }
        nxast::FIN_TIMEOUT => Action::FinTimeout { idle: r.u16()?, hard: r.u16()? },
        nxast::CONTROLLER => {
            let (max_len, id, reason) = (r.u16()?, r.u16()?, r.u8()?);
            Action::Controller(Controller { max_len, id, reason, userdata: Vec::new(), pause: false, meter: None })
        }
        nxast::CONTROLLER2 => {
            zeros(r.bytes(6)?, ErrorKind::NxbrcMustBeZero)?;
            Action::Controller(read_controller(r)?)
        }
        nxast::WRITE_METADATA => {
            zeros(r.bytes(6)?, ErrorKind::NxbrcMustBeZero)?;
            let (value, mask) = (r.u64()?, r.u64()?);
            Action::WriteMetadata { value: value & mask, mask }
        }
        nxast::PUSH_MPLS => header(HeaderAction::PushMpls, ether_type(r, &[0x8847, 0x8848])?),
        nxast::POP_MPLS => header(HeaderAction::PopMpls, r.u16()?.into()),
        nxast::SET_MPLS_TTL => header(HeaderAction::SetMplsTtl, r.u8()?.into()),
        nxast::DEC_MPLS_TTL => header(HeaderAction::DecMplsTtl, 0),
        nxast::SET_MPLS_LABEL => {
            r.skip(2)?;
            set_basic(34, r.u32()?.into(), fields)?
        }
        nxast::SET_MPLS_TC => set_basic(35, r.u8()?.into(), fields)?,
        nxast::STACK_PUSH | nxast::STACK_POP => read_stack(kind, r, fields)?,
        nxast::CONJUNCTION => {
            let (clause, clauses, id) = (r.u8()?, r.u8()?, r.u32()?);
            if !(2..=64).contains(&clauses) || clause >= clauses {
                return fail(ErrorKind::NxbacBadConjunction, format!("clause {} of {clauses}", u16::from(clause) + 1));
            }
            Action::Conjunction { clause, clauses, id }
        }
        nxast::OUTPUT_TRUNC => {
            let port = output_port(port::from_16(r.u16()?))?;
            let max_len = r.u32()?;
            if max_len < 14 {
                return fail(ErrorKind::BacBadArgument, format!("{max_len} bytes are less than an Ethernet header"));
            }
            Action::OutputTruncated { port, max_len }
        }
        nxast::CLONE => {
            r.skip(6)?;
            Action::Clone(nested(r)?)
        }
        nxast::CHECK_PKT_LARGER => {
            let (bytes, offset) = (r.u16()?, r.u16()?);
            let to = subfield_of(Header::read(r)?, offset.into(), 1, fields)?;
            zeros(r.rest(), ErrorKind::NxbrcMustBeZero)?;
            check_writable(to.field, fields)?;
            Action::CheckPacketLarger { bytes, to }
        }
        nxast::DELETE_FIELD => {
            let header = Header::read(r)?;
            match number::known(header.number, fields) {
                Some(known) if !header.has_mask && header.len == known.bytes => Action::DeleteField(known.id),
                Some(_) => return fail(ErrorKind::BacBadSetLen, "a field to delete is not named whole"),
                None => {
                    return fail(ErrorKind::BacBadSetType, format!("there is no {}", number::unknown(header.number)));
                }
            }
        }
        nxast::SAMPLE | nxast::SAMPLE2 | nxast::SAMPLE3 | nxast::SAMPLE4 => Action::Unsupported("sample"),
        nxast::CT => Action::Unsupported("ct"),
        nxast::NAT => Action::Unsupported("nat"),
        nxast::CT_CLEAR => Action::Unsupported("ct_clear"),
        nxast::ENCAP => Action::Unsupported("encap"),
        nxast::DECAP => Action::Unsupported("decap"),
        nxast::DEC_NSH_TTL => Action::Unsupported("dec_nsh_ttl"),
        _ => return fail(ErrorKind::BacBadExpType, format!("Nicira has no action {kind}")),
    };
    actions.push(action);
    Ok(())
}

fn set_basic(number: u8, value: u128, fields: &Fields) -> Result<Action> {
    let Some(field) = fields.basic(number) else {
        return fail(ErrorKind::BacBadType, "there is no field for this action");
    };
    check_writable(field, fields)?;
    let mask = fields.get(field).full();
    if value & !mask != 0 {
        return fail(ErrorKind::BacBadArgument, format!("{value:#x} is too large for `{}`", fields.get(field).name));
    }
    Ok(Action::SetField { field, value, mask })
}

/// The subfield of an offset and a bit count packed in 16 bits.
fn narrow(packed: u16, header: Header, fields: &Fields) -> Result<Subfield> {
    subfield_of(header, (packed >> 6).into(), u32::from(packed & 0x3f) + 1, fields)
}

/// The whole port field for all 16 bits of Nicira's shorter port; other subfields as they are.
fn whole_port(bits: Subfield, fields: &Fields) -> Subfield {
    let is_port = number::known(number::IN_PORT, fields).is_some_and(|known| known.id == bits.field);
    if is_port && bits.offset == 0 && bits.bits == 16 {
        Subfield { bits: fields.get(bits.field).width, ..bits }
    } else {
        bits
    }
}

fn read_load(r: &mut Reader, fields: &Fields, actions: &mut Vec<Action>) -> Result<()> {
    let packed = r.u16()?;
    let header = Header::read(r)?;
    let value = r.u64()?;
    let (offset, bits) = (u32::from(packed >> 6), u32::from(packed & 0x3f) + 1);
    if bits < 64 && value >> bits != 0 {
        return fail(ErrorKind::BacBadArgument, format!("{value:#x} has more than {bits} bits"));
    }
    if header.number == number::basic(6) && number::vlan_vid(fields).is_some() && offset + bits > 12 {
        return fail(ErrorKind::BacBadSetLen, "a VLAN id has 12 bits here, as Open vSwitch has it");
    }
    let value = u128::from(value);
    // A load of a number's whole value is decoded as that number, which may mean more than the field's bits: a VLAN
    // tag, a port.
    let width = match number::known(header.number, fields) {
        Some(known) => Some(known.width),
        None => number::parts(header.number, fields).map(|parts| parts.iter().map(|part| part.width).sum()),
    };
    if offset == 0 && Some(bits) == width && !header.has_mask {
        let bytes = bits.div_ceil(8) as usize;
        let known_bytes = number::known(header.number, fields).map_or(bytes, |known| known.bytes);
        if header.len != known_bytes {
            return fail(ErrorKind::BacBadSetLen, format!("{} bytes", header.len));
        }
        let mask = number::ones(bits);
        let entry = Entry { number: header.number, is_cookie: false, width: bits, has_mask: false, value, mask };
        return set(&entry, fields, actions);
    }
    let to = subfield_of(header, offset, bits, fields)?;
    let cfi = VLAN_PRESENT.trailing_zeros();
    if header.number == number::VLAN_TCI && (offset..offset + bits).contains(&cfi) {
        let (value, mask) = (value << offset, number::ones(bits) << offset);
        let entry = Entry { number: header.number, is_cookie: false, width: 16, has_mask: true, value, mask };
        return set(&entry, fields, actions);
    }
    check_writable(to.field, fields)?;
    actions.push(Action::SetField {
        field: to.field,
        value: value << to.offset,
        mask: number::ones(bits) << to.offset,
    });
    Ok(())
}

fn hash_fields(number: u16) -> Result<HashFields> {
    use HashFields::*;
    let all = [EthSrc, SymmetricL4, SymmetricL3L4, SymmetricL3L4Udp, NwSrc, NwDst, SymmetricL3];
    let found = all.into_iter().find(|fields| *fields as u16 == number);
    found.map_or_else(|| fail(ErrorKind::BacBadArgument, format!("a hash over fields {number}")), Ok)
}

fn read_multipath(r: &mut Reader, fields: &Fields) -> Result<Action> {
    use MultipathAlgorithm::*;
    let hash = hash_fields(r.u16()?)?;
    let basis = r.u16()?;
    r.skip(2)?;
    let number = r.u16()?;
    let max_link = r.u16()?;
    let argument = r.u32()?;
    r.skip(2)?;
    let packed = r.u16()?;
    let to = narrow(packed, Header::read(r)?, fields)?;
    let all = [ModuloN, HashThreshold, HighestRandomWeight, IterativeHash];
    let Some(algorithm) = all.into_iter().find(|algorithm| *algorithm as u16 == number) else {
        return fail(ErrorKind::BacBadArgument, format!("multipath has no algorithm {number}"));
    };
    if to.bits < 16 && max_link >> to.bits != 0 {
        return fail(ErrorKind::BacBadArgument, format!("{} bits for links up to {max_link}", to.bits));
    }
    check_writable(to.field, fields)?;
    Ok(Action::Multipath { hash, basis, algorithm, max_link, argument, to })
}

fn read_bundle(is_load: bool, r: &mut Reader, fields: &Fields) -> Result<Action> {
    let number = r.u16()?;
    let hash = hash_fields(r.u16()?)?;
    let basis = r.u16()?;
    let member_type = r.u32()?;
    let count = r.u16()?;
    let packed = r.u16()?;
    let mut bytes = *r;
    let to = if is_load {
        let to = narrow(packed, Header::read(&mut bytes)?, fields)?;
        check_writable(to.field, fields)?;
        if to.bits < 16 {
            return fail(ErrorKind::BacBadArgument, "a port needs 16 bits");
        }
        Some(to)
    } else {
        zeros(&packed.to_be_bytes(), ErrorKind::BacBadArgument)?;
        zeros(&r.peek()[..4], ErrorKind::BacBadArgument)?;
        None
    };
    r.skip(4)?;
    zeros(r.bytes(4)?, ErrorKind::BacBadArgument)?;
    let algorithm = match number {
        0 => BundleAlgorithm::ActiveBackup,
        1 => BundleAlgorithm::HighestRandomWeight,
        _ => return fail(ErrorKind::BacBadArgument, format!("a bundle has no algorithm {number}")),
    };
    // The header of `NXM_OF_IN_PORT` is 2.
    if member_type != 2 || count > MAX_MEMBERS {
        return fail(ErrorKind::BacBadArgument, format!("{count} members of type {member_type:#x}"));
    }
    if r.left() < 2 * usize::from(count) {
        return fail(ErrorKind::BacBadLen, format!("{count} members in {} bytes", r.left()));
    }
    let mut members = Vec::new();
    for _ in 0..count {
        let number = port::from_16(r.u16()?);
        if number == port::CONTROLLER {
            return fail(ErrorKind::BacBadOutPort, "a controller in a bundle");
        }
        members.push(if number == port::ANY { number } else { output_port(number)? });
    }
    Ok(Action::Bundle { hash, basis, algorithm, members, to })
}

fn read_controller(r: &mut Reader) -> Result<Controller> {
    let mut controller =
        Controller { max_len: 0xffff, id: 0, reason: REASON_ACTION, userdata: Vec::new(), pause: false, meter: None };
    let mut properties = r.short(ErrorKind::BpcBadLen);
    while !properties.is_empty() {
        let kind = properties.u16()?;
        let len = usize::from(properties.u16()?);
        if len < 4 {
            return fail(ErrorKind::BpcBadLen, format!("property {kind} with {len} bytes"));
        }
        let mut value = properties.sub(len - 4)?;
        properties.skip(len.next_multiple_of(8) - len)?;
        match kind {
            nxac2pt::MAX_LEN => controller.max_len = value.u16()?,
            nxac2pt::CONTROLLER_ID => controller.id = value.u16()?,
            nxac2pt::REASON => controller.reason = value.u8()?,
            nxac2pt::USERDATA => controller.userdata = value.rest().to_vec(),
            nxac2pt::PAUSE => controller.pause = true,
            nxac2pt::METER_ID => controller.meter = Some(value.u32()?).filter(|meter| *meter != 0),
            _ => return fail(ErrorKind::BpcBadType, format!("`controller` has no property {kind}")),
        }
    }
    Ok(controller)
}

fn read_stack(kind: u16, r: &mut Reader, fields: &Fields) -> Result<Action> {
    let offset = r.u16()?;
    let header = Header::read(r)?;
    let bits = r.u16()?;
    zeros(r.rest(), ErrorKind::NxbrcMustBeZero)?;
    let bits = subfield_of(header, offset.into(), bits.into(), fields)?;
    if kind == nxast::STACK_PUSH {
        return Ok(Action::StackPush(bits));
    }
    check_writable(bits.field, fields)?;
    Ok(Action::StackPop(bits))
}
