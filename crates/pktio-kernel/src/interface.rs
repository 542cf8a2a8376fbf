//! An interface of another driver's port (AF_XDP): followed and claimed, but not opened here.

use crate::claim::Claim;
use crate::links::{Known, Links};
use crate::netlink::Link;
use crate::sys;
use pktio::{Error, LinkState, MacAddress, PortOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// An existing interface, claimed for a port until this is dropped.
pub struct Interface {
    links: Arc<Links>,
    name: String,
    index: u32,
    born: u64,
    _claim: Claim,
}

impl Interface {
    /// Claims an interface for the port `device`, and sets it up or sets its MTU as `options` demand.
    ///
    /// # Errors
    /// There is no such interface, another port has claimed it, or the kernel refused.
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

    /// Whether the interface is administratively up (`IFF_UP`).
    pub fn is_set_up(&self) -> bool {
        self.known().is_some_and(|known| known.link.is_set_up)
    }

    /// The link state; down when the interface is gone.
    pub fn link(&self) -> LinkState {
        self.known().map_or_else(LinkState::default, |known| link_state(&known))
    }

    /// The MTU in bytes; `None` when the interface is gone.
    pub fn mtu(&self) -> Option<u16> {
        self.known().map(|known| u16::try_from(known.link.mtu).unwrap_or(u16::MAX))
    }

    /// The link-layer address.
    pub fn mac(&self) -> Option<MacAddress> {
        self.known()?.link.mac.map(MacAddress)
    }

    /// What prevents packets from passing, in one sentence with the remedy.
    pub fn note(&self) -> Option<String> {
        match self.known() {
            None => Some(format!("interface `{}` is gone; remove the port and add it again", self.name)),
            Some(known) => note_of(&self.name, &known),
        }
    }
}

/// Applies the MTU and the up flag that the port's user asked for.
pub(crate) fn change(control: &OwnedFd, link: &Link, options: &PortOptions) -> io::Result<()> {
    if let Some(mtu) = options.mtu.filter(|mtu| u32::from(*mtu) != link.mtu) {
        sys::set_mtu(control, &link.name, mtu)?;
    }
    if options.up && !link.is_set_up { sys::set_up(control, &link.name) } else { Ok(()) }
}

pub(crate) fn link_state(known: &Known) -> LinkState {
    LinkState { up: known.link.is_running, speed_mbps: known.speed_mbps }
}

/// A message for the user about an interface that a port has opened as `name`: renamed, or down.
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

/// The shared [`Links`], with a port's error type.
pub(crate) fn links(device: &str) -> Result<Arc<Links>, Error> {
    Links::shared().map_err(|error| Error::Device {
        device: device.to_owned(),
        reason: format!("the kernel's interfaces cannot be followed: {error}"),
    })
}

/// Converts an error of the kernel to a port's error.
pub(crate) fn refused(device: &str, error: &std::io::Error) -> Error {
    match error.kind() {
        std::io::ErrorKind::PermissionDenied => {
            Error::Permission { device: device.to_owned(), capability: "CAP_NET_ADMIN" }
        }
        _ => Error::Device { device: device.to_owned(), reason: format!("the kernel refuses it: {error}") },
    }
}
