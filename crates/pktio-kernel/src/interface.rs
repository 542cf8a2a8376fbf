//! An interface behind another driver's port (AF_XDP): followed and claimed, but not opened again.

use crate::claim::Claim;
use crate::links::{Known, Links};
use crate::netlink::Link;
use crate::sys;
use pktio::{Error, LinkState, MacAddress, PortOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// An existing interface, claimed for a port as long as this lives.
pub struct Interface {
    links: Arc<Links>,
    name: String,
    index: u32,
    born: u64,
    _claim: Claim,
}

impl Interface {
    /// Claims an interface for the port `device`, and sets it up or gives it an MTU if `options` say so.
    pub fn claim(device: &str, name: &str, options: &PortOptions) -> Result<Interface, Error> {
        let links = links(device)?;
        let known = links.named(name).ok_or_else(|| Error::NoSuchInterface { interface: name.to_owned() })?;
        let claim = Claim::new(device, name, known.link.index)?;
        change(links.control(), &known.link, options).map_err(|error| refused(device, &error))?;
        Ok(Interface { links, name: name.to_owned(), index: known.link.index, born: known.born, _claim: claim })
    }

    fn known(&self) -> Option<Known> {
        self.links.numbered(self.index).filter(|known| known.born == self.born)
    }

    /// Whether the administrator has set it up.
    pub fn is_set_up(&self) -> bool {
        self.known().is_some_and(|known| known.link.is_set_up)
    }

    /// Its link; down when it is gone.
    pub fn link(&self) -> LinkState {
        self.known().map_or_else(LinkState::default, |known| link_state(&known))
    }

    /// Its MTU, while it is there.
    pub fn mtu(&self) -> Option<u16> {
        self.known().map(|known| u16::try_from(known.link.mtu).unwrap_or(u16::MAX))
    }

    /// Its address.
    pub fn mac(&self) -> Option<MacAddress> {
        self.known()?.link.mac.map(MacAddress)
    }

    /// What keeps packets from passing, as one sentence with the remedy.
    pub fn note(&self) -> Option<String> {
        match self.known() {
            None => Some(format!("interface `{}` is gone; remove the port and add it again", self.name)),
            Some(known) => note_of(&self.name, &known),
        }
    }
}

/// Gives an interface what the port's user asked for, and nothing else.
pub(crate) fn change(control: &OwnedFd, link: &Link, options: &PortOptions) -> io::Result<()> {
    if let Some(mtu) = options.mtu.filter(|mtu| u32::from(*mtu) != link.mtu) {
        sys::set_mtu(control, &link.name, mtu)?;
    }
    if options.up && !link.is_set_up { sys::set_up(control, &link.name) } else { Ok(()) }
}

pub(crate) fn link_state(known: &Known) -> LinkState {
    LinkState { up: known.link.is_running, speed_mbps: known.speed_mbps }
}

/// What a user should know of an interface that a port has under `name`.
pub(crate) fn note_of(name: &str, known: &Known) -> Option<String> {
    let now = &known.link.name;
    let renamed = (now != name).then(|| format!("interface `{name}` is called `{now}` now"));
    let down = (!known.link.is_set_up)
        .then(|| format!("interface `{now}` is down: `ip link set {now} up`, or the port's option `up`"));
    match (renamed, down) {
        (Some(renamed), Some(down)) => Some(format!("{renamed}; {down}")),
        (renamed, down) => renamed.or(down),
    }
}

/// The links, with an error for a port.
pub(crate) fn links(device: &str) -> Result<Arc<Links>, Error> {
    Links::shared().map_err(|error| Error::Device {
        device: device.to_owned(),
        reason: format!("the kernel's interfaces cannot be followed: {error}"),
    })
}

/// An error of the kernel, with an error for a port.
pub(crate) fn refused(device: &str, error: &std::io::Error) -> Error {
    match error.kind() {
        std::io::ErrorKind::PermissionDenied => {
            Error::Permission { device: device.to_owned(), capability: "CAP_NET_ADMIN" }
        }
        _ => Error::Device { device: device.to_owned(), reason: format!("the kernel refuses it: {error}") },
    }
}
