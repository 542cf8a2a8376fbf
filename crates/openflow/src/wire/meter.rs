//! Meters: mods, configuration, statistics, features. OpenFlow 1.3.5, 7.3.4.4, 7.3.5.12 to 7.3.5.14.

use super::flow_stats::entry;
use super::{Reader, Result, Writer};
use crate::error::{Error, ErrorKind};
use crate::message::{Band, BandKind, Counts, MeterCommand, MeterFeatures, MeterMod, MeterStats, Version};

const DROP: u16 = 1;
const DSCP_REMARK: u16 = 2;
/// The length of a band in bytes.
const BAND: u16 = 16;

/// Decodes a meter mod.
pub(super) fn read_mod(r: &mut Reader<'_>) -> Result<MeterMod> {
    let command = match r.u16()? {
        0 => MeterCommand::Add,
        1 => MeterCommand::Modify,
        2 => MeterCommand::Delete,
        number => return Err(Error::new(ErrorKind::MmfcBadCommand, format!("meter command {number}"))),
    };
    let (flags, meter) = (r.u16()?, r.u32()?);
    let bands = read_bands(r)?;
    Ok(MeterMod { command, flags, meter, bands })
}

/// Appends a meter mod.
pub(super) fn write_mod(meter: &MeterMod, out: &mut Vec<u8>) {
    out.u16(meter.command as u16);
    out.u16(meter.flags);
    out.u32(meter.meter);
    write_bands(&meter.bands, out);
}

fn read_bands(r: &mut Reader<'_>) -> Result<Vec<Band>> {
    let mut bands = Vec::new();
    while !r.is_empty() {
        let (kind, len) = (r.u16()?, r.u16()?);
        if len < BAND {
            return Err(r.bad_length("a band is too short"));
        }
        let mut band = r.sub(usize::from(len) - 4)?;
        if len != BAND && [DROP, DSCP_REMARK].contains(&kind) {
            return Err(r.bad_length("a band is too long"));
        }
        let (rate, burst, level) = (band.u32()?, band.u32()?, band.u8()?);
        let kind = match kind {
            DROP => BandKind::Drop,
            DSCP_REMARK => BandKind::DscpRemark(level),
            _ => return Err(Error::new(ErrorKind::MmfcBadBand, format!("a band of type {kind}"))),
        };
        bands.push(Band { kind, rate, burst });
    }
    Ok(bands)
}

fn write_bands(bands: &[Band], out: &mut Vec<u8>) {
    for band in bands {
        let (kind, level) = match band.kind {
            BandKind::Drop => (DROP, 0),
            BandKind::DscpRemark(level) => (DSCP_REMARK, level),
        };
        out.u16(kind);
        out.u16(BAND);
        out.u32(band.rate);
        out.u32(band.burst);
        out.bytes(&[level, 0, 0, 0]);
    }
}

/// Decodes a meter configuration.
pub(super) fn read_config(r: &mut Reader<'_>) -> Result<MeterMod> {
    let mut r = entry(r)?;
    let (flags, meter) = (r.u16()?, r.u32()?);
    let bands = read_bands(&mut r)?;
    Ok(MeterMod { command: MeterCommand::Add, flags, meter, bands })
}

/// Appends a meter configuration.
pub(super) fn write_config(meter: &MeterMod, out: &mut Vec<u8>) -> Result<()> {
    let start = out.len();
    out.u16(0);
    out.u16(meter.flags);
    out.u32(meter.meter);
    write_bands(&meter.bands, out);
    out.patch_length(start, start)
}

/// Decodes meter statistics.
pub(super) fn read_stats(r: &mut Reader<'_>) -> Result<MeterStats> {
    let meter = r.u32()?;
    let len = usize::from(r.u16()?);
    let body = len.checked_sub(6).ok_or_else(|| r.bad_length("a meter's counts are too short"))?;
    let mut r = r.sub(body)?;
    r.skip(6)?;
    let flows = r.u32()?;
    let counts = Counts { packets: r.u64()?, bytes: r.u64()? };
    let duration = (r.u32()?, r.u32()?);
    let mut bands = Vec::new();
    while !r.is_empty() {
        bands.push(Counts { packets: r.u64()?, bytes: r.u64()? });
    }
    Ok(MeterStats { meter, flows, counts, duration, bands })
}

/// Appends meter statistics.
pub(super) fn write_stats(meter: &MeterStats, out: &mut Vec<u8>) -> Result<()> {
    let start = out.len();
    out.u32(meter.meter);
    out.zeros(8);
    out.u32(meter.flows);
    out.u64(meter.counts.packets);
    out.u64(meter.counts.bytes);
    out.u32(meter.duration.0);
    out.u32(meter.duration.1);
    for counts in &meter.bands {
        out.u64(counts.packets);
        out.u64(counts.bytes);
    }
    out.patch_length(start + 4, start)
}

/// Decodes meter features. OpenFlow 1.5 adds eight bytes, which Open vSwitch omits.
pub(super) fn read_features(version: Version, r: &mut Reader<'_>) -> Result<MeterFeatures> {
    let (max, bands, capabilities) = (r.u32()?, r.u32()?, r.u32()?);
    let (max_bands, max_colors) = (r.u8()?, r.u8()?);
    r.skip(2)?;
    let mut features = 0;
    if version == Version::V15 && !r.is_empty() {
        features = r.u32()?;
        r.skip(4)?;
    }
    Ok(MeterFeatures { max, bands, capabilities, max_bands, max_colors, features })
}

/// Appends meter features; 1.5's eight bytes only if not zero, since Open vSwitch does not read them.
pub(super) fn write_features(version: Version, features: &MeterFeatures, out: &mut Vec<u8>) {
    for value in [features.max, features.bands, features.capabilities] {
        out.u32(value);
    }
    out.bytes(&[features.max_bands, features.max_colors, 0, 0]);
    if version == Version::V15 && features.features != 0 {
        out.u32(features.features);
        out.u32(0);
    }
}
