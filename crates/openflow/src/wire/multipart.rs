//! Multipart messages (statistics in OpenFlow 1.0): their types, and the distribution of lists over messages.
//!
//! OpenFlow 1.0, 5.3.5; 1.3.5, 7.3.5; 1.4.1, 7.3.5; 1.5.1, 7.3.5.

use super::flow_stats as flows;
use super::{
    Context, HEADER, Reader, Result, Writer, connection, group, header, lacks, meter, monitor, port, queue, read_text,
    table,
};
use crate::action::port as port_number;
use crate::error::{Error, ErrorKind, NICIRA, ONF};
use crate::message::{Desc, GROUP_ALL, Message, Reply, Request, Version};

/// `OFPMPF_REPLY_MORE`: more messages of the reply follow.
const MORE: u16 = 1;
/// `OFPMP_EXPERIMENTER`.
const EXPERIMENTER: u16 = 0xffff;
/// The length of the texts of a switch description in bytes, except the serial number.
const TEXT: usize = 256;
/// The length of the serial number in bytes.
const SERIAL: usize = 32;
/// The length of the longest message in bytes.
const MESSAGE_MAX: usize = 0xffff;

/// A multipart type, with any experimenter types.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Desc,
    Flow,
    Aggregate,
    Table,
    PortStats,
    Queue,
    Group,
    GroupDesc,
    GroupFeatures,
    Meter,
    MeterConfig,
    MeterFeatures,
    TableFeatures,
    PortDesc,
    TableDesc,
    QueueDesc,
    FlowMonitor,
    FlowStats,
    ControllerStatus,
    BundleFeatures,
}

/// A multipart type's number on the wire.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Number {
    Standard(u16),
    Experimenter(u32, u32),
}

/// OpenFlow's own types: kind, number, first and last version.
const STANDARD: [(Kind, u16, Version, Version); 20] = {
    use Version::*;
    [
        (Kind::Desc, 0, V10, V15),
        (Kind::Flow, 1, V10, V15),
        (Kind::Aggregate, 2, V10, V15),
        (Kind::Table, 3, V10, V15),
        (Kind::PortStats, 4, V10, V15),
        (Kind::Queue, 5, V10, V15),
        (Kind::Group, 6, V13, V15),
        (Kind::GroupDesc, 7, V13, V15),
        (Kind::GroupFeatures, 8, V13, V15),
        (Kind::Meter, 9, V13, V15),
        (Kind::MeterConfig, 10, V13, V15),
        (Kind::MeterFeatures, 11, V13, V15),
        (Kind::TableFeatures, 12, V13, V15),
        // In 1.0, an extension of Open vSwitch.
        (Kind::PortDesc, 13, V10, V15),
        (Kind::TableDesc, 14, V14, V15),
        (Kind::QueueDesc, 15, V14, V15),
        (Kind::FlowMonitor, 16, V14, V15),
        (Kind::FlowStats, 17, V15, V15),
        (Kind::ControllerStatus, 18, V15, V15),
        (Kind::BundleFeatures, 19, V15, V15),
    ]
};

/// Experimenters' types: kind, experimenter id, number, the only version.
const EXTENSIONS: [(Kind, u32, u32, Version); 7] = [
    (Kind::Flow, NICIRA, 0, Version::V10),
    (Kind::Aggregate, NICIRA, 1, Version::V10),
    (Kind::FlowMonitor, NICIRA, 2, Version::V10),
    (Kind::Group, NICIRA, 7, Version::V10),
    (Kind::GroupDesc, NICIRA, 8, Version::V10),
    (Kind::GroupFeatures, NICIRA, 9, Version::V10),
    (Kind::FlowMonitor, ONF, 1870, Version::V13),
];

/// The number of a type on a connection.
fn number_of(c: Context<'_>, kind: Kind) -> Result<Number> {
    let is_nicira = c.is_nxm() && matches!(kind, Kind::Flow | Kind::Aggregate);
    let standard = STANDARD.iter().find(|row| row.0 == kind && (row.2..=row.3).contains(&c.version) && !is_nicira);
    if let Some(row) = standard {
        return Ok(Number::Standard(row.1));
    }
    let extension = EXTENSIONS.iter().find(|row| row.0 == kind && row.3 == c.version);
    let lacking = || Error { kind: ErrorKind::BrcBadStat, ..lacks(c.version, &format!("multipart message {kind:?}")) };
    extension.map(|row| Number::Experimenter(row.1, row.2)).ok_or_else(lacking)
}

/// Decodes the header of the body: the type, and whether more messages follow.
fn read_header(version: Version, r: &mut Reader<'_>) -> Result<(Number, bool)> {
    let number = r.u16()?;
    let has_more = r.u16()? & MORE != 0;
    if version != Version::V10 {
        r.skip(4)?;
    }
    if number != EXPERIMENTER {
        return Ok((Number::Standard(number), has_more));
    }
    let experimenter = r.u32()?;
    // OpenFlow 1.0 leaves the rest to the experimenter; Nicira adds padding.
    if version == Version::V10 && experimenter != NICIRA {
        return Ok((Number::Experimenter(experimenter, 0), has_more));
    }
    let kind = r.u32()?;
    if version == Version::V10 {
        r.skip(4)?;
    }
    Ok((Number::Experimenter(experimenter, kind), has_more))
}

fn kind_of(version: Version, number: Number) -> Result<Kind> {
    let kind = match number {
        Number::Standard(number) => {
            let row = STANDARD.iter().find(|row| row.1 == number && (row.2..=row.3).contains(&version));
            row.map(|row| row.0)
        }
        Number::Experimenter(whose, kind) => {
            EXTENSIONS.iter().find(|row| (row.1, row.2, row.3) == (whose, kind, version)).map(|row| row.0)
        }
    };
    let error = match number {
        Number::Standard(_) => ErrorKind::BrcBadStat,
        Number::Experimenter(NICIRA | ONF, _) => ErrorKind::BrcBadExpType,
        Number::Experimenter(..) => ErrorKind::BrcBadExperimenter,
    };
    kind.ok_or_else(|| Error::new(error, format!("multipart message {number:?}")))
}

/// Whether a request for flow or aggregate statistics is in Nicira's format; `None` for other messages.
pub(super) fn is_nicira_flow(bytes: &[u8]) -> Option<bool> {
    const REQUEST_10: u8 = 16;
    let [version, kind] = *bytes.first_chunk()?;
    if version != Version::V10 as u8 || kind != REQUEST_10 {
        return None;
    }
    let mut r = Reader::new(bytes.get(HEADER..)?, ErrorKind::BrcBadLen);
    let (number, _) = read_header(Version::V10, &mut r).ok()?;
    let kind = kind_of(Version::V10, number).ok()?;
    matches!(kind, Kind::Flow | Kind::Aggregate).then_some(matches!(number, Number::Experimenter(..)))
}

/// Appends the header of the body.
fn write_header(version: Version, number: Number, has_more: bool, out: &mut Vec<u8>) {
    out.u16(if let Number::Standard(number) = number { number } else { EXPERIMENTER });
    out.u16(if has_more { MORE } else { 0 });
    if version != Version::V10 {
        out.u32(0);
    }
    if let Number::Experimenter(experimenter, kind) = number {
        out.u32(experimenter);
        out.u32(kind);
        if version == Version::V10 {
            out.u32(0);
        }
    }
}

/// Reads 32 bits and four bytes of padding.
fn read_padded(r: &mut Reader<'_>) -> Result<u32> {
    let value = r.u32()?;
    r.skip(4)?;
    Ok(value)
}

fn write_padded(value: u32, out: &mut Vec<u8>) {
    out.u32(value);
    out.u32(0);
}

/// Reads elements up to the end.
fn list<T>(r: &mut Reader<'_>, mut read: impl FnMut(&mut Reader<'_>) -> Result<T>) -> Result<Vec<T>> {
    let mut all = Vec::new();
    while !r.is_empty() {
        all.push(read(r)?);
    }
    Ok(all)
}

/// Decodes a request.
pub(super) fn read_request(c: Context<'_>, r: &mut Reader<'_>) -> Result<Request> {
    let (number, has_more) = read_header(c.version, r)?;
    if has_more && c.version != Version::V10 {
        return Err(Error::new(ErrorKind::BrcMultipartBufferOverflow, "requests in several messages are not kept"));
    }
    let kind = match kind_of(c.version, number) {
        Ok(kind) => kind,
        Err(error) => {
            let Number::Experimenter(experimenter, kind) = number else { return Err(error) };
            r.rest();
            return Ok(Request::Experimenter { experimenter, kind });
        }
    };
    let is_nicira = matches!(number, Number::Experimenter(NICIRA, _));
    Ok(match kind {
        Kind::Desc => Request::Desc,
        Kind::Flow if is_nicira => Request::Flow(flows::read_filter_nx(c, r)?),
        Kind::Flow => Request::Flow(flows::read_filter(c, r)?),
        Kind::FlowStats => Request::FlowStats(flows::read_filter(c, r)?),
        Kind::Aggregate if is_nicira => Request::Aggregate(flows::read_filter_nx(c, r)?),
        Kind::Aggregate => Request::Aggregate(flows::read_filter(c, r)?),
        Kind::Table => Request::Table,
        Kind::TableFeatures => Request::TableFeatures(list(r, |r| table::read_features(c, r))?),
        Kind::TableDesc => Request::TableDesc,
        Kind::PortStats => {
            let port = super::v10::read_port(c.version, r)?;
            r.skip(if c.version == Version::V10 { 6 } else { 4 })?;
            Request::PortStats { port }
        }
        Kind::PortDesc if c.version == Version::V15 => Request::PortDesc { port: read_padded(r)? },
        Kind::PortDesc => Request::PortDesc { port: port_number::ANY },
        Kind::Queue => {
            let (port, queue) = queue::read_filter(c.version, r)?;
            Request::Queue { port, queue }
        }
        Kind::QueueDesc => {
            let (port, queue) = queue::read_filter(c.version, r)?;
            Request::QueueDesc { port, queue }
        }
        Kind::Group => Request::Group { group: read_padded(r)? },
        Kind::GroupDesc if names_group(c.version) => Request::GroupDesc { group: read_padded(r)? },
        Kind::GroupDesc => Request::GroupDesc { group: GROUP_ALL },
        Kind::GroupFeatures => Request::GroupFeatures,
        Kind::Meter => Request::Meter { meter: read_padded(r)? },
        Kind::MeterConfig => Request::MeterConfig { meter: read_padded(r)? },
        Kind::MeterFeatures => Request::MeterFeatures,
        Kind::FlowMonitor => Request::FlowMonitor(list(r, |r| monitor::read_request(c, r))?),
        Kind::BundleFeatures => {
            let flags = read_padded(r)?;
            list(r, |r| super::props::read(r).map(|_| ()))?;
            Request::BundleFeatures { flags }
        }
        Kind::ControllerStatus => Request::ControllerStatus,
    })
}

/// Whether group description requests have a group id.
fn names_group(version: Version) -> bool {
    matches!(version, Version::V10 | Version::V15)
}

/// Appends a request.
pub(super) fn write_request(c: Context<'_>, request: &Request, out: &mut Vec<u8>) -> Result<()> {
    let kind = match request {
        Request::Desc => Kind::Desc,
        Request::Flow(_) => Kind::Flow,
        Request::FlowStats(_) => Kind::FlowStats,
        Request::Aggregate(_) => Kind::Aggregate,
        Request::Table => Kind::Table,
        Request::TableFeatures(_) => Kind::TableFeatures,
        Request::TableDesc => Kind::TableDesc,
        Request::PortStats { .. } => Kind::PortStats,
        Request::PortDesc { .. } => Kind::PortDesc,
        Request::Queue { .. } => Kind::Queue,
        Request::QueueDesc { .. } => Kind::QueueDesc,
        Request::Group { .. } => Kind::Group,
        Request::GroupDesc { .. } => Kind::GroupDesc,
        Request::GroupFeatures => Kind::GroupFeatures,
        Request::Meter { .. } => Kind::Meter,
        Request::MeterConfig { .. } => Kind::MeterConfig,
        Request::MeterFeatures => Kind::MeterFeatures,
        Request::FlowMonitor(_) => Kind::FlowMonitor,
        Request::BundleFeatures { .. } => Kind::BundleFeatures,
        Request::ControllerStatus => Kind::ControllerStatus,
        Request::Experimenter { experimenter, kind } => {
            write_header(c.version, Number::Experimenter(*experimenter, *kind), false, out);
            return Ok(());
        }
    };
    write_header(c.version, number_of(c, kind)?, false, out);
    match request {
        Request::Flow(filter) | Request::FlowStats(filter) | Request::Aggregate(filter) => {
            flows::write_filter(c, filter, out)?;
        }
        Request::TableFeatures(tables) => tables.iter().try_for_each(|table| table::write_features(c, table, out))?,
        Request::PortStats { port } => {
            super::v10::write_port(c.version, *port, out)?;
            out.zeros(if c.version == Version::V10 { 6 } else { 4 });
        }
        Request::PortDesc { port } if c.version == Version::V15 => write_padded(*port, out),
        Request::PortDesc { port } if *port != port_number::ANY => {
            return Err(lacks(c.version, "request for one port"));
        }
        Request::Queue { port, queue } | Request::QueueDesc { port, queue } => {
            queue::write_filter(c.version, *port, *queue, out)?;
        }
        Request::GroupDesc { group: GROUP_ALL } if !names_group(c.version) => {}
        Request::GroupDesc { .. } if !names_group(c.version) => {
            return Err(lacks(c.version, "request for one group's description"));
        }
        Request::Group { group } | Request::GroupDesc { group } => write_padded(*group, out),
        Request::Meter { meter } | Request::MeterConfig { meter } => write_padded(*meter, out),
        Request::FlowMonitor(monitors) => {
            monitors.iter().try_for_each(|monitor| monitor::write_request(c, monitor, out))?;
        }
        Request::BundleFeatures { flags } => write_padded(*flags, out),
        _ => {}
    }
    Ok(())
}

/// Decodes one message of a reply.
pub(super) fn read_reply(c: Context<'_>, r: &mut Reader<'_>) -> Result<Message> {
    let (number, more) = read_header(c.version, r)?;
    let is_nicira = matches!(number, Number::Experimenter(NICIRA, _));
    let version = c.version;
    let reply = match kind_of(version, number)? {
        Kind::Desc => Reply::Desc(read_desc(r)?),
        Kind::Flow if is_nicira => Reply::Flow(list(r, |r| flows::read_entry_nx(c, r))?),
        Kind::Flow => Reply::Flow(list(r, |r| flows::read_entry(c, r))?),
        Kind::FlowStats => Reply::FlowStats(list(r, |r| flows::read_short(c, r))?),
        Kind::Aggregate => {
            let (counts, flows) = flows::read_aggregate(version, r)?;
            Reply::Aggregate { counts, flows }
        }
        Kind::Table => Reply::Table(list(r, |r| table::read_stats(version, r))?),
        Kind::TableFeatures => Reply::TableFeatures(list(r, |r| table::read_features(c, r))?),
        Kind::TableDesc => Reply::TableDesc(list(r, table::read_desc)?),
        Kind::PortStats => Reply::PortStats(list(r, |r| port::read_stats(version, r))?),
        Kind::PortDesc => Reply::PortDesc(list(r, |r| port::read(version, r))?),
        Kind::Queue => Reply::Queue(list(r, |r| queue::read_stats(version, r))?),
        Kind::QueueDesc => Reply::QueueDesc(list(r, |r| queue::read(version, 0, r))?),
        Kind::Group => Reply::Group(list(r, group::read_stats)?),
        Kind::GroupDesc => Reply::GroupDesc(list(r, |r| group::read_desc(c, r))?),
        Kind::GroupFeatures => Reply::GroupFeatures(group::read_features(r)?),
        Kind::Meter => Reply::Meter(list(r, meter::read_stats)?),
        Kind::MeterConfig => Reply::MeterConfig(list(r, meter::read_config)?),
        Kind::MeterFeatures => Reply::MeterFeatures(meter::read_features(version, r)?),
        Kind::FlowMonitor => Reply::FlowMonitor(list(r, |r| monitor::read_update(c, r))?),
        Kind::BundleFeatures => {
            let capabilities = r.u16()?;
            r.skip(6)?;
            list(r, |r| super::props::read(r).map(|_| ()))?;
            Reply::BundleFeatures { capabilities }
        }
        Kind::ControllerStatus => Reply::ControllerStatus(list(r, connection::read_controller)?),
    };
    Ok(Message::MultipartReply { reply, more })
}

fn read_desc(r: &mut Reader<'_>) -> Result<Desc> {
    Ok(Desc {
        manufacturer: read_text(r, TEXT)?,
        hardware: read_text(r, TEXT)?,
        software: read_text(r, TEXT)?,
        serial: read_text(r, SERIAL)?,
        datapath: read_text(r, TEXT)?,
    })
}

fn write_desc(desc: &Desc, out: &mut Vec<u8>) {
    for text in [&desc.manufacturer, &desc.hardware, &desc.software] {
        out.text(text, TEXT);
    }
    out.text(&desc.serial, SERIAL);
    out.text(&desc.datapath, TEXT);
}

/// Appends a reply's entries as one message or several.
struct Parts<'a> {
    out: &'a mut Vec<u8>,
    version: Version,
    xid: u32,
    number: Number,
    /// Whether the reply may take several messages.
    is_split: bool,
    /// The start of the current message, and of its body.
    start: usize,
    body: usize,
    left_out: usize,
}

impl Parts<'_> {
    fn begin(&mut self, has_more: bool) {
        self.start = self.out.len();
        header::write_header(self.version, header::reply_type(self.version), self.xid, self.out);
        write_header(self.version, self.number, has_more, self.out);
        self.body = self.out.len();
    }

    /// Appends an entry, in a new message if it does not fit in the current one; counts it in `left_out` if it fits in
    /// none.
    fn entry(&mut self, write: impl Fn(&mut Vec<u8>) -> Result<()>) -> Result<()> {
        if !self.is_split {
            return write(self.out);
        }
        let at = self.out.len();
        let too_long = match write(self.out) {
            Ok(()) => false,
            // A structure inside the entry exceeds its 16-bit length field.
            Err(error) if error.kind == ErrorKind::BrcBadLen => true,
            Err(error) => return Err(error),
        };
        if too_long || self.out.len() - at > MESSAGE_MAX - (self.body - self.start) {
            self.out.truncate(at);
            self.left_out += 1;
        } else if self.out.len() - self.start > MESSAGE_MAX {
            let entry = self.out.split_off(at);
            let flags = self.start + HEADER + 2;
            self.out.patch(flags, MORE);
            header::finish(self.start, self.out)?;
            self.begin(false);
            self.out.extend_from_slice(&entry);
        }
        Ok(())
    }

    fn each<T>(&mut self, entries: &[T], write: impl Fn(&T, &mut Vec<u8>) -> Result<()>) -> Result<()> {
        entries.iter().try_for_each(|entry| self.entry(|out| write(entry, out)))
    }
}

/// Appends a reply as one message.
pub(super) fn write_one(c: Context<'_>, xid: u32, reply: &Reply, more: bool, out: &mut Vec<u8>) -> Result<()> {
    write_parts(c, xid, reply, more, false, out).map(|_| ())
}

/// Appends a reply as one message or several. Returns the number of entries left out.
pub(super) fn write_split(c: Context<'_>, xid: u32, reply: &Reply, out: &mut Vec<u8>) -> Result<usize> {
    write_parts(c, xid, reply, false, true, out)
}

fn write_parts(
    c: Context<'_>,
    xid: u32,
    reply: &Reply,
    more: bool,
    is_split: bool,
    out: &mut Vec<u8>,
) -> Result<usize> {
    let number = number_of(c, kind_of_reply(reply))?;
    let mut parts = Parts { out, version: c.version, xid, number, is_split, start: 0, body: 0, left_out: 0 };
    parts.begin(more);
    let version = c.version;
    match reply {
        Reply::Desc(desc) => write_desc(desc, parts.out),
        Reply::Flow(all) => parts.each(all, |flow, out| flows::write_entry(c, flow, out))?,
        Reply::FlowStats(all) => parts.each(all, |flow, out| flows::write_short(c, flow, out))?,
        Reply::Aggregate { counts, flows: many } => flows::write_aggregate(version, *counts, *many, parts.out),
        Reply::Table(all) => parts.each(all, |stats, out| {
            table::write_stats(version, stats, out);
            Ok(())
        })?,
        Reply::TableFeatures(all) => parts.each(all, |table, out| table::write_features(c, table, out))?,
        Reply::TableDesc(all) => parts.each(all, |desc, out| table::write_desc(*desc, out))?,
        Reply::PortStats(all) => parts.each(all, |stats, out| port::write_stats(version, stats, out))?,
        Reply::PortDesc(all) => parts.each(all, |port, out| port::write(version, port, out))?,
        Reply::Queue(all) => parts.each(all, |stats, out| queue::write_stats(version, stats, out))?,
        Reply::QueueDesc(all) => parts.each(all, |queue, out| queue::write(version, queue, out))?,
        Reply::Group(all) => parts.each(all, group::write_stats)?,
        Reply::GroupDesc(all) => parts.each(all, |desc, out| group::write_desc(c, desc, out))?,
        Reply::GroupFeatures(features) => group::write_features(features, parts.out),
        Reply::Meter(all) => parts.each(all, meter::write_stats)?,
        Reply::MeterConfig(all) => parts.each(all, meter::write_config)?,
        Reply::MeterFeatures(features) => meter::write_features(version, features, parts.out),
        Reply::FlowMonitor(all) => parts.each(all, |update, out| monitor::write_update(c, update, out))?,
        Reply::BundleFeatures { capabilities } => {
            parts.out.u16(*capabilities);
            parts.out.zeros(6);
        }
        Reply::ControllerStatus(all) => parts.each(all, connection::write_controller)?,
    }
    header::finish(parts.start, parts.out)?;
    Ok(parts.left_out)
}

fn kind_of_reply(reply: &Reply) -> Kind {
    match reply {
        Reply::Desc(_) => Kind::Desc,
        Reply::Flow(_) => Kind::Flow,
        Reply::FlowStats(_) => Kind::FlowStats,
        Reply::Aggregate { .. } => Kind::Aggregate,
        Reply::Table(_) => Kind::Table,
        Reply::TableFeatures(_) => Kind::TableFeatures,
        Reply::TableDesc(_) => Kind::TableDesc,
        Reply::PortStats(_) => Kind::PortStats,
        Reply::PortDesc(_) => Kind::PortDesc,
        Reply::Queue(_) => Kind::Queue,
        Reply::QueueDesc(_) => Kind::QueueDesc,
        Reply::Group(_) => Kind::Group,
        Reply::GroupDesc(_) => Kind::GroupDesc,
        Reply::GroupFeatures(_) => Kind::GroupFeatures,
        Reply::Meter(_) => Kind::Meter,
        Reply::MeterConfig(_) => Kind::MeterConfig,
        Reply::MeterFeatures(_) => Kind::MeterFeatures,
        Reply::FlowMonitor(_) => Kind::FlowMonitor,
        Reply::BundleFeatures { .. } => Kind::BundleFeatures,
        Reply::ControllerStatus(_) => Kind::ControllerStatus,
    }
}
