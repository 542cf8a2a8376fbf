//! Configuration requests: tables, ports, roles; and request forwarding.

use crate::bridge::Bridge;
use crate::change::Change;
use crate::controllers::{Endpoint, Event, Kind};
use crate::features::table_features;
use crate::flow_mod::{ALL_TABLES, Origin, Plan};
use crate::ports::config;
use crate::tables::{limit, table_config};
use openflow::message::{Framed, PortMod, Role, RoleRequest, TableFeatures};
use openflow::{Error, ErrorKind, Message, Version};
use std::sync::Arc;

/// `OFPCRR_MASTER_REQUEST`: another controller became master.
const MASTER_REQUEST: u8 = 0;
/// `OFPTFC_MODIFY`, the command after `OFPTFC_REPLACE`; before 1.5 there is no command.
const MODIFY: u8 = 1;

impl Plan<'_> {
    /// The changes of a table mod (OpenFlow 1.4.1, 7.3.4.1). Before 1.4 its bits have no meaning and are ignored.
    pub fn table_mod(
        &self,
        table: u8,
        bits: u32,
        vacancy: Option<(u8, u8)>,
        version: Version,
    ) -> Result<Vec<Change>, Error> {
        if table != ALL_TABLES && table >= limit::TABLES {
            return Err(Error::new(ErrorKind::TmfcBadTable, format!("there is no table {table}")));
        }
        if version < Version::V14 {
            return Ok(Vec::new());
        }
        if bits & !table_config::ALL != 0 {
            return Err(Error::new(ErrorKind::TmfcBadConfig, format!("bits {:#x}", bits & !table_config::ALL)));
        }
        if let Some((down, up)) = vacancy
            && (down > up || up > 100)
        {
            return Err(Error::new(ErrorKind::BpcBadValue, format!("vacancy from {down} to {up}")));
        }
        let tables = (0..limit::TABLES).filter(|number| table == ALL_TABLES || table == *number);
        let changes = tables.map(|number| {
            let old = self.tables.settings(number).clone();
            let mut new = old.clone();
            new.config = bits;
            new.vacancy = vacancy.unwrap_or(old.vacancy);
            Change::Settings { table: number, old, new }
        });
        Ok(changes.collect())
    }

    /// The changes of a table features request (1.3.5, 7.3.5.5.1; 1.5.1, 7.3.5.18.1): tables get new names. All
    /// tables have the same features, so a request is accepted if it asks for at most these. Tables that it does
    /// not mention keep their names.
    pub fn table_features(&self, request: &[TableFeatures], version: Version) -> Result<Vec<Change>, Error> {
        let refuse = |kind, why: String| Err(Error::new(kind, why));
        let mut changes = Vec::with_capacity(request.len());
        for (i, wanted) in request.iter().enumerate() {
            let number = wanted.table;
            if number >= limit::TABLES {
                return refuse(ErrorKind::TffcBadTable, format!("there is no table {number}"));
            }
            if request[..i].iter().any(|other| other.table == number) {
                return refuse(ErrorKind::NxtffcDupTable, format!("table {number} twice"));
            }
            if wanted.command > MODIFY {
                return refuse(ErrorKind::TffcEperm, "tables cannot be enabled and disabled".into());
            }
            let settings = self.tables.settings(number);
            let can = table_features(number, settings, self.admit.fields(), &self.admit.capabilities, version);
            if let Some(what) = can.lacks(wanted) {
                return refuse(ErrorKind::TffcEperm, format!("table {number} cannot have other {what}"));
            }
            let old = settings.clone();
            let new = crate::tables::TableSettings { name: wanted.name.clone(), ..old.clone() };
            changes.push(Change::Settings { table: number, old, new });
        }
        Ok(changes)
    }
}

impl Bridge {
    /// Configures tables by a table features request.
    ///
    /// # Errors
    /// The error of the request. Nothing has changed then.
    pub(crate) fn set_table_features(&self, request: &[TableFeatures], version: Version) -> Result<(), Error> {
        self.change(&Origin::SWITCH, |plan| plan.table_features(request, version))
    }

    /// Changes a port's configuration.
    ///
    /// # Errors
    /// The error of the request, or `OFPPMFC_EPERM` if the host refuses. Nothing has changed then.
    pub fn port_mod(&self, request: &PortMod, origin: &Origin) -> Result<(), Error> {
        let before = self.tables().ports().get(request.port).map(|port| port.config);
        self.change(origin, |plan| plan.port_mod(request))?;
        let Err(why) = self.configure_port(request) else { return Ok(()) };
        let undo = PortMod { config: before.unwrap_or(0), ..*request };
        let _ = self.change(origin, |plan| plan.port_mod(&undo));
        Err(Error::new(ErrorKind::PmfcEperm, why))
    }

    /// Configures the host's port as a port mod says.
    pub(crate) fn configure_port(&self, request: &PortMod) -> Result<(), String> {
        if request.mask & config::PORT_DOWN == 0 {
            return Ok(());
        }
        // The requested value: what the host reports of its port at this moment may be older.
        self.host.set_port_config(request.port, request.config)
    }

    /// Configures a table.
    ///
    /// # Errors
    /// The error of the request. Nothing has changed then.
    pub fn table_mod(&self, table: u8, config: u32, vacancy: Option<(u8, u8)>, origin: &Origin) -> Result<(), Error> {
        self.change(origin, |plan| plan.table_mod(table, config, vacancy, origin.version))
    }

    /// Sets the maximum number of flows of a table; `None` for [`limit::FLOWS_PER_TABLE`]. Existing flows beyond it
    /// stay.
    pub fn set_max_flows(&self, table: u8, max: Option<u32>) {
        let _ = self.change(&Origin::SWITCH, |plan| {
            if table >= limit::TABLES {
                return Ok(Vec::new());
            }
            let old = plan.tables.settings(table).clone();
            let new = crate::tables::TableSettings { max_flows: max, ..old.clone() };
            Ok(vec![Change::Settings { table, old, new }])
        });
    }

    /// Sets or queries a connection's role (1.3.5, 6.3.6 and 7.3.9). A new master demotes the former one to slave.
    pub(crate) fn role(&self, endpoint: &Endpoint, request: &RoleRequest) -> Result<RoleRequest, Error> {
        let mut state = self.state();
        if matches!(request.role, Role::Master | Role::Slave)
            && let Some(generation) = request.generation
        {
            // Generations wrap around, so their distance is signed.
            if state.election.is_some_and(|latest| (generation.wrapping_sub(latest) as i64) < 0) {
                let why = format!("generation {generation} is older than {:?}", state.election);
                return Err(Error::new(ErrorKind::RrfcStale, why));
            }
            state.election = Some(generation);
        }
        let election = state.election;
        let mut demoted: Vec<Arc<Endpoint>> = Vec::new();
        if request.short != u16::MAX {
            let endpoints = self.endpoints();
            let mut others = endpoints.values().filter(|other| other.id != endpoint.id);
            if others.any(|other| other.status().short == request.short) {
                return Err(Error::new(ErrorKind::RrfcIdInUse, format!("short id {} is another's", request.short)));
            }
        }
        if request.role == Role::Master {
            let endpoints = self.endpoints();
            let others = endpoints.values().filter(|other| other.id != endpoint.id);
            demoted.extend(others.filter(|other| other.status().role == Role::Master).cloned());
        }
        for other in demoted {
            let mut status = other.status();
            status.role = Role::Slave;
            let is_told = status.version >= Some(Version::V14)
                && status.receives(other.is_service, Kind::RoleStatus, MASTER_REQUEST);
            drop(status);
            if is_told {
                let generation = election.unwrap_or(u64::MAX);
                let message = Message::RoleStatus { role: Role::Slave, reason: MASTER_REQUEST, generation };
                self.push(&other, Event::Message(Box::new(message)));
            }
        }
        let mut status = endpoint.status();
        if request.role != Role::NoChange {
            status.role = request.role;
        }
        if request.short != u16::MAX {
            status.short = request.short;
        }
        let reply = RoleRequest { role: status.role, generation: election, short: status.short };
        drop(status);
        drop(state);
        self.connections_changed();
        Ok(reply)
    }

    /// Forwards a group or meter mod to the other controllers that subscribe to requestforward messages (1.4.1,
    /// 7.4.6).
    pub(crate) fn forward(&self, from: u64, reason: u8, request: &Framed) {
        for endpoint in self.endpoints().values().filter(|endpoint| endpoint.id != from) {
            let status = endpoint.status();
            let Some(version) = status.version else { continue };
            let is_told = version >= Version::V14 && status.receives(endpoint.is_service, Kind::Requestforward, reason);
            drop(status);
            if is_told {
                let message = Message::Requestforward(Box::new(Framed { version, ..request.clone() }));
                self.push(endpoint, Event::Message(Box::new(message)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::bridge::{Bridge, BridgeOptions};
    use crate::flow_mod::Origin;
    use crate::ports::config::PORT_DOWN;
    use crate::testing::{NoSwitch, program};
    use openflow::message::{Port, PortMod};
    use std::sync::Arc;

    #[test]
    fn a_port_becomes_what_was_asked_for_whatever_the_switch_says_of_it_meanwhile() {
        let host = Arc::new(NoSwitch::default());
        let bridge = Bridge::new(&program(), Arc::clone(&host) as _, BridgeOptions::default()).unwrap();
        let down = Port { number: 1, config: PORT_DOWN, ..Port::default() };
        bridge.put_port(down.clone());
        let up = PortMod { port: 1, address: [0; 6], config: 0, mask: PORT_DOWN, advertise: 0 };
        bridge.change(&Origin::SWITCH, |plan| plan.port_mod(&up)).unwrap();
        // The host does not know of the request yet.
        bridge.put_port(down);
        bridge.configure_port(&up).unwrap();
        assert_eq!(*host.configured.lock().unwrap(), [(1, 0)]);
    }
}
