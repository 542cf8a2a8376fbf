//! Planning of port mods.

use crate::change::Change;
use crate::flow_mod::Plan;
use crate::ports::{config, set_live};
use openflow::message::PortMod;
use openflow::{Error, ErrorKind};

impl Plan<'_> {
    /// The changes of a port mod (OpenFlow 1.3.5, 7.3.4.3).
    pub fn port_mod(&self, request: &PortMod) -> Result<Vec<Change>, Error> {
        let Some(old) = self.tables.port(request.port) else {
            return Err(Error::new(ErrorKind::PmfcBadPort, format!("there is no port {}", request.port)));
        };
        if old.address != request.address {
            return Err(Error::new(ErrorKind::PmfcBadHwAddr, format!("port {} has another address", request.port)));
        }
        if request.mask & !config::ALL != 0 {
            return Err(Error::new(ErrorKind::PmfcBadConfig, format!("bits {:#x}", request.mask & !config::ALL)));
        }
        let mut new = old.clone();
        new.config = old.config & !request.mask | request.config & request.mask;
        set_live(&mut new);
        if new == *old {
            return Ok(Vec::new());
        }
        Ok(vec![Change::Port { number: request.port, old: Some(old.clone()), new: Some(new) }])
    }
}
