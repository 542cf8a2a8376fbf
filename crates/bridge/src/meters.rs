//! Planning of meter mods (OpenFlow 1.3.5, 6.4 "meter modification messages" and 7.3.4.4).

use crate::change::Change;
use crate::flow::{Meter, MeterBand, Usage};
use crate::flow_mod::Plan;
use crate::memory::Charge;
use crate::references::uses_meter;
use crate::tables::limit;
use openflow::message::{BandKind, MeterCommand, MeterMod, RemovedReason, meter, meter_flag};
use openflow::{Error, ErrorKind};
use std::sync::{Arc, Mutex};

impl Plan<'_> {
    /// The changes of a meter mod.
    pub fn meter_mod(&self, request: &MeterMod) -> Result<Vec<Change>, Error> {
        let id = request.meter;
        let may_be_all = request.command == MeterCommand::Delete && id == meter::ALL;
        let is_reserved = id == meter::SLOWPATH || id == meter::CONTROLLER;
        if id == 0 || id > meter::MAX && !is_reserved && !may_be_all {
            return Err(Error::new(ErrorKind::MmfcInvalidMeter, format!("no meter can have the number {id:#x}")));
        }
        let old = self.tables.meter(id);
        match request.command {
            MeterCommand::Add if old.is_some() => {
                Err(Error::new(ErrorKind::MmfcMeterExists, format!("meter {id} exists")))
            }
            MeterCommand::Add if self.tables.meter_count() >= limit::METERS => {
                Err(Error::new(ErrorKind::MmfcOutOfMeters, format!("there are {} meters", limit::METERS)))
            }
            MeterCommand::Modify if old.is_none() => {
                Err(Error::new(ErrorKind::MmfcUnknownMeter, format!("there is no meter {id}")))
            }
            MeterCommand::Add | MeterCommand::Modify => {
                check(request)?;
                let band =
                    |band| MeterBand { band, bucket: Mutex::new((0, 0)), usage: Arc::new(Usage::new(self.now_us)) };
                let mut new = Meter {
                    id,
                    flags: request.flags,
                    bands: request.bands.iter().copied().map(band).collect(),
                    created_us: old.map_or(self.now_us, |old| old.created_us),
                    usage: old.map_or_else(|| Arc::new(Usage::new(self.now_us)), |old| Arc::clone(&old.usage)),
                    charge: Charge::default(),
                };
                let charge = self.tables.charge(&self.memory.state, new.bytes(), 0);
                let refused = || self.memory.refuse(ErrorKind::MmfcOutOfMeters, &format!("meter {id}"));
                new.charge = charge.ok_or_else(refused)?;
                Ok(vec![Change::Meter { id, old: old.cloned(), new: Some(Arc::new(new)) }])
            }
            MeterCommand::Delete => {
                let meters: Vec<&Arc<Meter>> = match id {
                    meter::ALL => self.tables.meters().collect(),
                    _ => old.into_iter().collect(),
                };
                let mut changes = Vec::new();
                if meters.iter().any(|meter| self.index.flows_of_meter(meter.id) > 0) {
                    let is_gone = |other| id == meter::ALL || other == id;
                    let flows =
                        self.remove(RemovedReason::MeterDelete, &|flow| uses_meter(&flow.instructions, &is_gone));
                    changes.extend(flows.into_iter().map(Change::Flow));
                }
                let removal =
                    |meter: &&Arc<Meter>| Change::Meter { id: meter.id, old: Some(Arc::clone(meter)), new: None };
                changes.extend(meters.iter().map(removal));
                Ok(changes)
            }
        }
    }
}

fn check(request: &MeterMod) -> Result<(), Error> {
    let known = meter_flag::KBPS | meter_flag::PKTPS | meter_flag::BURST | meter_flag::STATS;
    let both = meter_flag::KBPS | meter_flag::PKTPS;
    if request.flags & !known != 0 || request.flags & both == both {
        return Err(Error::new(ErrorKind::MmfcBadFlags, format!("flags {:#x}", request.flags)));
    }
    if request.bands.len() > limit::BANDS {
        return Err(Error::new(ErrorKind::MmfcOutOfBands, format!("more than {} bands", limit::BANDS)));
    }
    for band in &request.bands {
        if band.rate == 0 {
            return Err(Error::new(ErrorKind::MmfcBadRate, "a band's rate is at least 1"));
        }
        // Drop precedences are 1 to 3 (RFC 2597).
        if matches!(band.kind, BandKind::DscpRemark(by) if !(1..=2).contains(&by)) {
            return Err(Error::new(ErrorKind::MmfcBadBandValue, "a remark band raises the drop precedence by 1 or 2"));
        }
    }
    Ok(())
}
