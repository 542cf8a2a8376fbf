//! rtnetlink's link messages (rtnetlink(7), RFC 3549): the request for all links, and a parser of the answers.
//!
//! Only five fields of one message are needed. The crates that parse rtnetlink know all attributes, and reject messages
//! of newer kernels because of attributes that are not needed here; this parser skips unknown ones.
//!
//! Accepts any bytes. Tests below.

/// The kernel's description of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Link {
    pub index: u32,
    pub name: String,
    /// Administratively up (`IFF_UP`).
    pub is_set_up: bool,
    /// Operational: up and with a carrier (`IFF_RUNNING`).
    pub is_running: bool,
    pub mtu: u32,
    pub mac: Option<[u8; 6]>,
}

/// A message about links.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    /// An interface was added or changed.
    Link(Link),
    /// The interface of this index is gone.
    Gone(u32),
    /// End of the answers to the request with this sequence number; true if links
    /// changed meanwhile, so that some may be missing.
    Done(u32, bool),
    /// The request with this sequence number failed.
    Failed(u32),
}

const RTM_GETLINK: u16 = 18;
const RTM_NEWLINK: u16 = 16;
const RTM_DELLINK: u16 = 17;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLM_F_REQUEST: u16 = 0x1;
const NLM_F_DUMP: u16 = 0x300;
const NLM_F_DUMP_INTR: u16 = 0x10;

const HEADER_BYTES: usize = 16;
const IFINFO_BYTES: usize = 16;
const ATTRIBUTE_BYTES: usize = 4;

const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
/// Mask for an attribute's type, without the flags for nesting and network byte order.
const ATTRIBUTE_TYPE: u16 = 0x3fff;

const IFF_UP: u32 = 0x1;
const IFF_RUNNING: u32 = 0x40;

/// Encodes a request for all links; the answers carry its sequence number.
pub(crate) fn request(number: u32) -> [u8; HEADER_BYTES + IFINFO_BYTES] {
    let mut bytes = [0; HEADER_BYTES + IFINFO_BYTES];
    bytes[0..4].copy_from_slice(&((HEADER_BYTES + IFINFO_BYTES) as u32).to_ne_bytes());
    bytes[4..6].copy_from_slice(&RTM_GETLINK.to_ne_bytes());
    bytes[6..8].copy_from_slice(&(NLM_F_REQUEST | NLM_F_DUMP).to_ne_bytes());
    bytes[8..12].copy_from_slice(&number.to_ne_bytes());
    bytes
}

/// Parses the messages of one datagram.
pub(crate) fn messages(mut bytes: &[u8]) -> impl Iterator<Item = Message> {
    std::iter::from_fn(move || {
        loop {
            let len = u32_at(bytes, 0)? as usize;
            let message = bytes.get(..len).filter(|_| len >= HEADER_BYTES)?;
            bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or_default();
            if let Some(message) = message_of(message) {
                return Some(message);
            }
        }
    })
}

fn message_of(bytes: &[u8]) -> Option<Message> {
    let (kind, flags, number) = (u16_at(bytes, 4)?, u16_at(bytes, 6)?, u32_at(bytes, 8)?);
    let body = &bytes[HEADER_BYTES..];
    match kind {
        NLMSG_DONE => Some(Message::Done(number, flags & NLM_F_DUMP_INTR != 0)),
        NLMSG_ERROR => (u32_at(body, 0)? != 0).then_some(Message::Failed(number)),
        // Skips messages of other address families: a bridge reports RTM_DELLINK when an interface leaves it.
        RTM_NEWLINK | RTM_DELLINK if *body.first()? != 0 => None,
        RTM_NEWLINK => link_of(body).map(Message::Link),
        RTM_DELLINK => Some(Message::Gone(u32_at(body, 4)?)),
        _ => None,
    }
}

/// Parses `struct ifinfomsg` and its attributes.
fn link_of(body: &[u8]) -> Option<Link> {
    let flags = u32_at(body, 8)?;
    let is_set_up = flags & IFF_UP != 0;
    let mut link = Link {
        index: u32_at(body, 4)?,
        name: String::new(),
        is_set_up,
        is_running: is_set_up && flags & IFF_RUNNING != 0,
        mtu: 0,
        mac: None,
    };
    let mut rest = body.get(IFINFO_BYTES..)?;
    while let (Some(len), Some(kind)) = (u16_at(rest, 0), u16_at(rest, 2)) {
        let Some(value) = rest.get(ATTRIBUTE_BYTES..usize::from(len)) else { break };
        match kind & ATTRIBUTE_TYPE {
            IFLA_IFNAME => {
                let name = value.split(|byte| *byte == 0).next().unwrap_or_default();
                link.name = String::from_utf8_lossy(name).into_owned();
            }
            IFLA_MTU => link.mtu = u32_at(value, 0).unwrap_or(0),
            IFLA_ADDRESS => link.mac = value.try_into().ok().filter(|mac| *mac != [0; 6]),
            _ => {}
        }
        rest = rest.get(usize::from(len).next_multiple_of(4)..).unwrap_or_default();
    }
    (!link.name.is_empty()).then_some(link)
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at + 2).map(|bytes| u16::from_ne_bytes([bytes[0], bytes[1]]))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4).map(|bytes| u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u16, flags: u16, body: &[u8]) -> Vec<u8> {
        let mut bytes = ((HEADER_BYTES + body.len()) as u32).to_ne_bytes().to_vec();
        bytes.extend([kind.to_ne_bytes(), flags.to_ne_bytes()].concat());
        bytes.extend([7u32.to_ne_bytes(), [0; 4]].concat());
        bytes.extend(body);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    fn ifinfo(family: u8, index: u32, flags: u32) -> Vec<u8> {
        [[family, 0, 1, 0], index.to_ne_bytes(), flags.to_ne_bytes(), [0; 4]].concat()
    }

    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let len = (ATTRIBUTE_BYTES + value.len()) as u16;
        let mut bytes = [&len.to_ne_bytes()[..], &kind.to_ne_bytes(), value].concat();
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    fn veth() -> Vec<u8> {
        let attributes = [
            attribute(IFLA_IFNAME, b"veth0\0"),
            attribute(999, &[1, 2, 3]),
            attribute(IFLA_MTU, &1500u32.to_ne_bytes()),
            attribute(IFLA_ADDRESS, &[2, 0, 0, 0, 0, 1]),
        ];
        [ifinfo(0, 4, IFF_UP | IFF_RUNNING), attributes.concat()].concat()
    }

    #[test]
    fn links_are_read_and_what_is_not_known_is_skipped() {
        let datagram = [
            message(RTM_NEWLINK, 0, &veth()),
            message(77, 0, &[9; 5]),
            message(RTM_NEWLINK, 0, &[ifinfo(0, 5, IFF_RUNNING), attribute(IFLA_IFNAME, b"a\0")].concat()),
            message(RTM_DELLINK, 0, &ifinfo(0, 5, 0)),
            message(NLMSG_DONE, NLM_F_DUMP_INTR, &[0; 4]),
            message(NLMSG_ERROR, 0, &(-1i32).to_ne_bytes()),
        ];
        let all: Vec<Message> = messages(&datagram.concat()).collect();
        let link = Link {
            index: 4,
            name: "veth0".into(),
            is_set_up: true,
            is_running: true,
            mtu: 1500,
            mac: Some([2, 0, 0, 0, 0, 1]),
        };
        let other = Link { index: 5, name: "a".into(), is_set_up: false, is_running: false, mtu: 0, mac: None };
        let expected =
            [Message::Link(link), Message::Link(other), Message::Gone(5), Message::Done(7, true), Message::Failed(7)];
        assert_eq!(all, expected);
    }

    #[test]
    fn an_interface_that_leaves_a_bridge_is_not_gone() {
        const AF_BRIDGE: u8 = 7;
        let datagram = message(RTM_DELLINK, 0, &ifinfo(AF_BRIDGE, 4, 0));
        assert_eq!(messages(&datagram).count(), 0);
    }

    #[test]
    fn cut_off_and_damaged_messages_end_the_datagram() {
        let whole = [message(RTM_NEWLINK, 0, &veth()), message(RTM_DELLINK, 0, &ifinfo(0, 5, 0))].concat();
        for len in 0..whole.len() {
            assert!(messages(&whole[..len]).count() <= 2);
        }
        for at in 0..whole.len() {
            for value in [0, 1, 15, 17, 0x7f, 0xff] {
                let mut damaged = whole.clone();
                damaged[at] = value;
                assert!(messages(&damaged).count() <= whole.len() / HEADER_BYTES);
            }
        }
    }
}
