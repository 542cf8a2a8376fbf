//! Hashes over a packet's fields, for multipath, bundle and select groups.

use super::Translator;
use crate::key::mix;
use openflow::FieldId;
use openflow::action::{HashFields, MultipathAlgorithm};

/// OXM numbers of fields to be hashed; pairs are those of both directions.
const ETH: (u8, u8) = (4, 3);
const IPV4: (u8, u8) = (11, 12);
const IPV6: (u8, u8) = (26, 27);
const TCP: (u8, u8) = (13, 14);
const UDP: (u8, u8) = (15, 16);
const SCTP: (u8, u8) = (17, 18);
const ETH_TYPE: u8 = 5;
const VLAN_VID: u8 = 6;
const IP_PROTO: u8 = 10;

/// A hash of words: the upper half of a 64-bit hash.
pub(super) fn hash_words(words: &[u64]) -> u32 {
    let hash = words.iter().fold(0x5bd1_e995_9d6e_61f1, |hash, word| mix(hash, *word));
    (mix(hash, words.len() as u64) >> 32) as u32
}

/// The link, less than `links`, that a hash selects (ovs-actions(7), "multipath").
pub(super) fn link(algorithm: MultipathAlgorithm, hash: u32, links: u32, argument: u32) -> u32 {
    let links = links.max(1);
    match algorithm {
        MultipathAlgorithm::ModuloN => hash % links,
        // RFC 2992: each link has an equal region of the hash space.
        MultipathAlgorithm::HashThreshold => ((u64::from(hash) * u64::from(links)) >> 32) as u32,
        MultipathAlgorithm::HighestRandomWeight => highest_weight(hash, 0..links).unwrap_or(0),
        // Rehashes, modulo a power of two that is at least `links` and the argument, until the result is a link.
        MultipathAlgorithm::IterativeHash => {
            let modulus = modulus(links, argument);
            let tries = (0..TRIES_MAX).map(|round| hash_words(&[u64::from(hash), u64::from(round)]) % modulus);
            tries.into_iter().find(|link| *link < links).unwrap_or(0)
        }
    }
}

/// Maximum number of rehashes of the iterative algorithm.
const TRIES_MAX: u32 = 256;

fn modulus(links: u32, argument: u32) -> u32 {
    links.max(argument).checked_next_power_of_two().unwrap_or(1 << 31)
}

/// The number of hashes to charge for [`link`]. The iterative algorithm computes `modulus / links` of them on
/// average; one flow in 3,000 needs more than the eightfold that is charged.
pub(super) fn tries(algorithm: MultipathAlgorithm, links: u32, argument: u32) -> usize {
    let links = links.max(1);
    let tries = match algorithm {
        MultipathAlgorithm::ModuloN | MultipathAlgorithm::HashThreshold => 0,
        MultipathAlgorithm::HighestRandomWeight => links,
        MultipathAlgorithm::IterativeHash => (modulus(links, argument) / links).saturating_mul(8).min(TRIES_MAX),
    };
    tries as usize
}

/// Highest random weight (RFC 2991): the member with the highest weight, which is a hash of it and the flow.
pub(super) fn highest_weight(hash: u32, among: impl Iterator<Item = u32>) -> Option<u32> {
    among.max_by_key(|link| hash_words(&[u64::from(hash), u64::from(*link)]))
}

impl Translator<'_> {
    /// The hash that `multipath` and `bundle` select by.
    pub(super) fn hash_fields(&mut self, fields: HashFields, basis: u32) -> u32 {
        let mut words = vec![u64::from(basis)];
        match fields {
            HashFields::EthSrc => self.take(ETH.0, &mut words),
            HashFields::NwSrc => [IPV4.0, IPV6.0].into_iter().for_each(|number| self.take(number, &mut words)),
            HashFields::NwDst => [IPV4.1, IPV6.1].into_iter().for_each(|number| self.take(number, &mut words)),
            HashFields::SymmetricL3 => [IPV4, IPV6].into_iter().for_each(|pair| self.take_both(pair, &mut words)),
            HashFields::SymmetricL4 => self.take_l4(true, &[TCP, UDP, SCTP], &mut words),
            HashFields::SymmetricL3L4 => self.take_l4(false, &[TCP, SCTP], &mut words),
            HashFields::SymmetricL3L4Udp => self.take_l4(false, &[TCP, UDP, SCTP], &mut words),
        }
        hash_words(&words)
    }

    /// A hash over the masked fields that are present, for select groups that name them.
    pub(super) fn hash_selected(&mut self, fields: &[(FieldId, u128)], basis: u64) -> u32 {
        let mut words = vec![basis];
        for (field, mask) in fields {
            if self.is_present(*field) {
                let layout = std::sync::Arc::clone(self.layout);
                let place = layout.place(*field);
                self.state.consult_place(place, *mask);
                push(place.read(&self.state.record) & mask, &mut words);
            } else {
                words.push(0);
            }
        }
        hash_words(&words)
    }

    /// The default hash of select groups: layers 2 to 4.
    pub(super) fn hash_flow(&mut self, basis: u64) -> u32 {
        let mut words = vec![basis];
        self.take_l4(true, &[TCP, UDP, SCTP], &mut words);
        hash_words(&words)
    }

    fn take_l4(&mut self, has_l2: bool, ports: &[(u8, u8)], words: &mut Vec<u64>) {
        if has_l2 {
            self.take_both(ETH, words);
            [ETH_TYPE, VLAN_VID].into_iter().for_each(|number| self.take(number, words));
        }
        [IPV4, IPV6].into_iter().for_each(|pair| self.take_both(pair, words));
        self.take(IP_PROTO, words);
        ports.iter().for_each(|pair| self.take_both(*pair, words));
    }

    fn taken(&mut self, number: u8) -> u128 {
        let field = self.layout.fields().basic(number);
        field.and_then(|field| self.field(field)).unwrap_or(0)
    }

    fn take(&mut self, number: u8, words: &mut Vec<u64>) {
        push(self.taken(number), words);
    }

    fn take_both(&mut self, pair: (u8, u8), words: &mut Vec<u64>) {
        push(self.taken(pair.0) ^ self.taken(pair.1), words);
    }
}

fn push(value: u128, words: &mut Vec<u64>) {
    words.extend([value as u64, (value >> 64) as u64]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_chosen_evenly_and_few_change() {
        use MultipathAlgorithm::*;
        for algorithm in [ModuloN, HashThreshold, HighestRandomWeight, IterativeHash] {
            let choose = |links: u32| (0..9000u64).map(move |i| link(algorithm, hash_words(&[i]), links, 0));
            let mut counts = [0; 9];
            choose(9).for_each(|link| counts[link as usize] += 1);
            assert!(counts.iter().all(|count| (850..1150).contains(count)), "{algorithm:?}: {counts:?}");
            if algorithm == HighestRandomWeight {
                let moved = choose(9).zip(choose(8)).filter(|(nine, eight)| nine != eight).count();
                assert!(moved < 1150, "only those of the link that is gone: {moved}");
            }
        }
    }
}
