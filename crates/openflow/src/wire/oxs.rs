//! OXS, the TLVs of flow statistics in OpenFlow 1.5 (1.5.1, 7.2.4).

use super::{Reader, Result, Writer};
use crate::error::{Error, ErrorKind};
use crate::message::Counts;

/// The class of OpenFlow's own statistics.
const OXS_BASIC: u16 = 0x8002;
/// An experimenter's statistics.
const OXS_EXPERIMENTER: u16 = 0xffff;

/// The statistics of an OXS list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Oxs {
    /// The flow's age: seconds and nanoseconds.
    pub(super) duration: Option<(u32, u32)>,
    /// The idle time in seconds.
    pub(super) idle: Option<u32>,
    /// The number of flows.
    pub(super) flows: Option<u32>,
    /// The counters; all ones if unknown.
    pub(super) counts: Counts,
}

impl Default for Oxs {
    fn default() -> Oxs {
        Oxs { duration: None, idle: None, flows: None, counts: Counts { packets: u64::MAX, bytes: u64::MAX } }
    }
}

impl Oxs {
    /// Decodes a list with its header and padding. Unknown statistics are skipped.
    pub(super) fn read(r: &mut Reader<'_>) -> Result<Oxs> {
        r.skip(2)?;
        let len = usize::from(r.u16()?);
        let body = len.checked_sub(4).ok_or_else(|| Error::new(ErrorKind::BmcBadLen, "statistics are too short"))?;
        let mut all = r.sub(body)?.short(ErrorKind::BmcBadLen);
        r.skip(len.next_multiple_of(8) - len)?;
        let mut stats = Oxs::default();
        while !all.is_empty() {
            let (class, field, len) = (all.u16()?, all.u8()? >> 1, all.u8()?);
            let mut value = all.sub(usize::from(len))?;
            match (class, field, len) {
                (OXS_BASIC, 0, 8) => stats.duration = Some((value.u32()?, value.u32()?)),
                (OXS_BASIC, 1, 8) => stats.idle = Some(value.u32()?),
                (OXS_BASIC, 3, 4) => stats.flows = Some(value.u32()?),
                (OXS_BASIC, 4, 8) => stats.counts.packets = value.u64()?,
                (OXS_BASIC, 5, 8) => stats.counts.bytes = value.u64()?,
                (OXS_EXPERIMENTER, _, 0..4) => return Err(value.bad_length("an experimenter's statistic is too short")),
                _ => {}
            }
        }
        Ok(stats)
    }

    /// Appends the known statistics.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.u32(0);
        let mut put = |field: u8, value: u64| {
            out.u16(OXS_BASIC);
            out.bytes(&[field << 1, 8]);
            out.u64(value);
        };
        if let Some((seconds, nanoseconds)) = self.duration {
            put(0, u64::from(seconds) << 32 | u64::from(nanoseconds));
        }
        if let Some(seconds) = self.idle {
            put(1, u64::from(seconds) << 32);
        }
        for (field, value) in [(4, self.counts.packets), (5, self.counts.bytes)] {
            if value != u64::MAX {
                put(field, value);
            }
        }
        if let Some(flows) = self.flows {
            out.u16(OXS_BASIC);
            out.bytes(&[3 << 1, 4]);
            out.u32(flows);
        }
        let len = (out.len() - start) as u16;
        out.patch(start + 2, len);
        out.align(start);
    }
}
