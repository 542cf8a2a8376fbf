//! Where match fields are in a packet's record.
//!
//! A record is an array of 64-bit words (`ir::layout`); a field is a list of bit ranges of words. What flows match
//! and write, and the masks of the flow cache, are expressed as (word, mask, value): the classifier and the cache
//! know words, not fields.
//!
//! **Stages.** Staged lookup (Pfaff et al., "The Design and Implementation of Open vSwitch", NSDI 2015, 5.3) groups
//! fields in decreasing order of traffic granularity: metadata, L2, L3, L4. Here the stage of a field follows from
//! its prerequisites: a field without prerequisites is L2, a field whose prerequisites are L2 fields is L3, and so
//! on. The program marks metadata fields.

use ir::layout::{RecordLayout, words_of};
use ir::{EntryKind, Fate, Intrinsic, Operand, Program, Terminator};
use openflow::action::Subfield;
use openflow::field::{Field, OxmNumber, Prerequisite, class};
use openflow::{FieldId, Fields, Match};
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;

/// The OXM number of `conj_id`.
pub const CONJ_ID: OxmNumber = OxmNumber { class: class::NXM_1, field: 37, experimenter: 0 };

/// The OXM number of `nw_frag`: 1 in first fragments, 3 in later ones, otherwise 0.
const NW_FRAG: OxmNumber = OxmNumber { class: class::NXM_1, field: 26, experimenter: 0 };
/// OXM numbers of the transport fields that are hidden in first fragments (ovs-ofctl(8), `set-frags`): ports of TCP, UDP
/// and SCTP, types and codes of ICMP.
const TRANSPORT: [u8; 10] = [13, 14, 15, 16, 17, 18, 19, 20, 29, 30];

/// Stages of a lookup: metadata, L2, L3, L4.
pub const STAGES: usize = 4;

/// A range of bits of a value, and its position in a record.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Part {
    /// The word.
    pub word: u32,
    /// The lowest bit of the range within the word.
    pub shift: u32,
    /// Width of the range in bits, 1 to 64.
    pub width: u32,
    /// The bit of the value to which the lowest bit of the range corresponds.
    pub at: u32,
}

/// A mask of the low `bits` bits.
pub(crate) fn low(bits: u32) -> u64 {
    if bits >= 64 { u64::MAX } else { (1 << bits) - 1 }
}

/// A mask of the low `bits` bits.
pub(crate) fn low128(bits: u32) -> u128 {
    if bits >= 128 { u128::MAX } else { (1 << bits) - 1 }
}

impl Part {
    /// Mask of the range within its word.
    pub fn mask(self) -> u64 {
        low(self.width) << self.shift
    }
}

/// Position of a value of at most 128 bits in a record.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Place {
    /// Its bit ranges.
    pub parts: Vec<Part>,
    /// Its width in bits.
    pub width: u32,
}

impl Place {
    /// Reads the value.
    pub fn read(&self, record: &[u64]) -> u128 {
        let part = |part: &Part| u128::from(record[part.word as usize] >> part.shift & low(part.width)) << part.at;
        self.parts.iter().map(part).fold(0, |value, part| value | part)
    }

    /// Writes the bits of `value` under `mask`.
    pub fn write(&self, record: &mut [u64], value: u128, mask: u128) {
        self.spread(value, mask, |word, mask, value| {
            let at = &mut record[word as usize];
            *at = *at & !mask | value;
        });
    }

    /// Calls `visit` with word, mask and value for each part that has bits of `mask`. Values have no bits outside
    /// their masks.
    pub fn spread(&self, value: u128, mask: u128, mut visit: impl FnMut(u32, u64, u64)) {
        for part in &self.parts {
            let cut = |bits: u128| ((bits >> part.at) as u64 & low(part.width)) << part.shift;
            let mask = cut(mask);
            if mask != 0 {
                visit(part.word, mask, cut(value) & mask);
            }
        }
    }

    /// The position of bits `offset .. offset + bits` of the value.
    pub fn slice(&self, offset: u32, bits: u32) -> Place {
        let end = offset + bits;
        let parts = self.parts.iter().filter_map(|part| {
            let (from, to) = (part.at.max(offset), (part.at + part.width).min(end));
            (from < to).then(|| Part {
                word: part.word,
                shift: part.shift + from - part.at,
                width: to - from,
                at: from - offset,
            })
        });
        Place { parts: parts.collect(), width: bits }
    }
}

/// A set of words with false positives: a Bloom filter with one hash function, the word number modulo 128.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Words(u128);

impl Words {
    /// Adds a word.
    pub fn add(&mut self, word: u32) {
        self.0 |= 1 << (word % 128);
    }

    /// The union of both sets.
    pub fn with(self, other: Words) -> Words {
        Words(self.0 | other.0)
    }

    /// Whether the set may contain the word. `false` is certain.
    pub fn has(self, word: u32) -> bool {
        self.0 >> (word % 128) & 1 == 1
    }
}

/// One word of a ternary match; the value has no bits outside the mask.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct WordTerm {
    /// The word.
    pub word: u32,
    /// The bits that are compared.
    pub mask: u64,
    /// Their values.
    pub value: u64,
}

/// A mask over a record: the consulted bits, on which a decision depended ("un-wildcarded" in Open vSwitch).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Consulted {
    masks: Vec<u64>,
    touched: Vec<u32>,
}

impl Consulted {
    /// An empty mask over a record of `words` words.
    pub fn new(words: usize) -> Consulted {
        Consulted { masks: vec![0; words], touched: Vec::new() }
    }

    /// Adds bits of a word.
    pub fn add(&mut self, word: u32, mask: u64) {
        let at = &mut self.masks[word as usize];
        if *at == 0 && mask != 0 {
            self.touched.push(word);
        }
        *at |= mask;
    }

    /// The consulted bits of a word.
    pub fn mask(&self, word: u32) -> u64 {
        self.masks[word as usize]
    }

    /// Removes bits of a word.
    pub fn remove(&mut self, word: u32, mask: u64) {
        self.masks[word as usize] &= !mask;
    }

    /// Words with their consulted bits, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (u32, u64)> {
        self.touched.iter().map(|word| (*word, self.masks[*word as usize])).filter(|(_, mask)| *mask != 0)
    }

    /// Words with their consulted bits, by ascending word.
    pub fn sorted(&self) -> Box<[(u32, u64)]> {
        let mut words = Vec::with_capacity(self.touched.len());
        words.extend(self.iter());
        words.sort_unstable();
        words.dedup();
        words.into()
    }

    /// Empties the mask.
    pub fn clear(&mut self) {
        for word in self.touched.drain(..) {
            self.masks[word as usize] = 0;
        }
    }
}

/// Positions of a program's match fields in its records.
#[derive(Debug)]
pub struct Layout {
    record: RecordLayout,
    fields: Arc<Fields>,
    places: Vec<Place>,
    is_metadata: Vec<bool>,
    /// Stages by field.
    stages: Vec<u8>,
    /// By word: the earliest stage of the fields in it.
    word_stages: Vec<u8>,
    in_port: Place,
    made_up: Words,
    /// By word: whether it is part of the packet's bytes, or read when the packet leaves.
    is_visible: Vec<bool>,
    /// Metadata fields that share no bits with earlier ones; these are sent in packet-ins.
    reported: Vec<FieldId>,
    reparse: Option<Part>,
    ttl_exceeded: Option<Part>,
    fragment: Option<Place>,
    /// By word: the bits of the fields in [`TRANSPORT`].
    transport: Vec<(u32, u64)>,
    seed: u64,
}

impl Layout {
    /// The layout of a program's fields.
    ///
    /// # Errors
    /// If the program is not one of the OpenFlow model, has no `in_port` or too many fields, or declares an invalid
    /// field.
    pub fn new(program: &Program) -> Result<Layout, String> {
        let openflow = program.openflow.as_ref().ok_or("the program is not one of the OpenFlow model")?;
        let record = RecordLayout::new(program);
        let count = openflow.fields.len();
        if count > usize::from(u16::MAX) {
            return Err(format!("{count} match fields; at most {} are possible", u16::MAX));
        }
        let mut places = Vec::new();
        let mut fields = Vec::new();
        for field in &openflow.fields {
            let mut place = Place::default();
            for part in field.parts.iter().rev() {
                let is_inside = part.slot.index() < program.slots.len()
                    && part.width > 0
                    && part.lo.checked_add(part.width).is_some_and(|end| end <= program.width(part.slot));
                if !is_inside {
                    return Err(format!("match field `{}` names bits that its slot does not have", field.name));
                }
                push_bits(&mut place, record.offset(part.slot), part.lo, part.width);
            }
            if place.width == 0 || place.width > 128 {
                return Err(format!("match field `{}` has {} bits; 1 to 128 are possible", field.name, place.width));
            }
            let needs = |(other, mask, values): &(u32, u128, Vec<u128>)| {
                ((*other as usize) < count).then(|| Prerequisite {
                    field: FieldId(*other as u16),
                    mask: *mask,
                    values: values.clone(),
                })
            };
            let prerequisites: Option<Vec<Prerequisite>> = field.prerequisites.iter().map(needs).collect();
            let number = |(class, field, experimenter): &(u16, u8, u32)| OxmNumber {
                class: *class,
                field: *field,
                experimenter: *experimenter,
            };
            fields.push(Field {
                name: field.name.clone(),
                width: place.width,
                numbers: field.numbers.iter().map(number).collect(),
                maskable: field.maskable,
                writable: field.writable,
                prerequisites: prerequisites
                    .ok_or_else(|| format!("match field `{}` needs a field that there is not", field.name))?,
            });
            places.push(place);
        }
        let is_metadata: Vec<bool> = openflow.fields.iter().map(|field| field.is_metadata).collect();
        let stages = stages(&fields, &is_metadata);
        let mut word_stages = vec![STAGES as u8 - 1; record.words()];
        for (place, stage) in places.iter().zip(&stages) {
            for part in &place.parts {
                let at = &mut word_stages[part.word as usize];
                *at = (*at).min(*stage);
            }
        }
        let is_visible = visible_words(program, &record, &places, &is_metadata);
        let reported = distinct(&places, &is_metadata, record.words());
        let fields = Fields::new(fields).map_err(|error| error.to_string())?;
        let in_port = match (fields.basic(0), program.intrinsic(Intrinsic::IngressPort)) {
            (Some(field), _) => places[usize::from(field.0)].clone(),
            (None, Some(slot)) => {
                let mut place = Place::default();
                push_bits(&mut place, record.offset(slot), 0, program.width(slot).min(128));
                place
            }
            (None, None) => return Err("the program has no `in_port` field (OXM number 0)".to_string()),
        };
        let mut made_up = Words::default();
        if let Some(field) = fields.numbered(CONJ_ID) {
            places[usize::from(field.0)].parts.iter().for_each(|part| made_up.add(part.word));
        }
        let flag = |slot: Option<ir::SlotId>| {
            slot.map(|slot| Part { word: record.offset(slot) as u32, shift: 0, width: 1, at: 0 })
        };
        let place = |id: FieldId| &places[usize::from(id.0)];
        let fragment = fields.numbered(NW_FRAG).map(place).cloned();
        let mut transport = Consulted::new(record.words());
        for id in TRANSPORT.iter().filter_map(|number| fields.basic(*number)) {
            place(id).parts.iter().for_each(|part| transport.add(part.word, part.mask()));
        }
        let transport = transport.sorted().into_vec();
        let seed = std::hash::RandomState::new().build_hasher().finish() | 1;
        Ok(Layout {
            fields: Arc::new(fields),
            places,
            is_metadata,
            stages,
            word_stages,
            in_port,
            made_up,
            is_visible,
            reported,
            reparse: flag(openflow.reparse),
            ttl_exceeded: flag(openflow.ttl_exceeded),
            fragment,
            transport,
            seed,
            record,
        })
    }

    /// The match fields, as the `openflow` crate describes them.
    pub fn fields(&self) -> &Arc<Fields> {
        &self.fields
    }

    /// The record's layout.
    pub fn record(&self) -> &RecordLayout {
        &self.record
    }

    /// The number of words in a record.
    pub fn words(&self) -> usize {
        self.record.words()
    }

    /// The position of a field.
    pub fn place(&self, field: FieldId) -> &Place {
        &self.places[usize::from(field.0)]
    }

    /// The position of a subfield, cut off at the field's width.
    pub fn part(&self, part: Subfield) -> Place {
        let place = self.place(part.field);
        place.slice(part.offset.min(place.width), part.bits.min(place.width.saturating_sub(part.offset)))
    }

    /// The position of the input port.
    pub fn in_port(&self) -> &Place {
        &self.in_port
    }

    /// Words that lookups may compare with values other than the record's: those of `conj_id`.
    pub fn made_up(&self) -> Words {
        self.made_up
    }

    /// The bit by which the program says that the frame must be parsed again.
    pub fn reparse(&self) -> Option<Part> {
        self.reparse
    }

    /// The bit by which the program says that a TTL has expired.
    pub fn ttl_exceeded(&self) -> Option<Part> {
        self.ttl_exceeded
    }

    /// The position of `nw_frag`, if the program has it.
    pub fn fragment(&self) -> Option<&Place> {
        self.fragment.as_ref()
    }

    /// Whether a packet is the first fragment of several.
    pub fn is_first_fragment(&self, record: &[u64]) -> bool {
        self.fragment.as_ref().is_some_and(|fragment| fragment.read(record) & 0b11 == 1)
    }

    /// The bits of fields that may be hidden in first fragments, by word.
    pub fn transport(&self) -> &[(u32, u64)] {
        &self.transport
    }

    /// Whether a field is metadata, that is, not part of the packet's bytes.
    pub fn is_metadata(&self, field: FieldId) -> bool {
        self.is_metadata[usize::from(field.0)]
    }

    /// All metadata fields.
    pub fn metadata(&self) -> impl Iterator<Item = FieldId> {
        self.is_metadata.iter().enumerate().filter(|(_, is)| **is).map(|(i, _)| FieldId(i as u16))
    }

    /// The metadata fields that share no bits with earlier ones; these are sent in packet-ins.
    pub fn reported(&self) -> &[FieldId] {
        &self.reported
    }

    /// Whether a word is part of the packet's bytes, or is read when the packet leaves.
    pub fn is_visible(&self, word: u32) -> bool {
        self.is_visible[word as usize]
    }

    /// The stage in which a field is looked up.
    pub fn stage(&self, field: FieldId) -> usize {
        usize::from(self.stages[usize::from(field.0)])
    }

    /// The stage in which a word is looked up.
    pub fn word_stage(&self, word: u32) -> usize {
        usize::from(self.word_stages[word as usize])
    }

    /// A match as words, in order. `None` if it contradicts itself, because fields that share bits have different
    /// values.
    pub fn terms(&self, matching: &Match) -> Option<Vec<WordTerm>> {
        let mut terms: Vec<WordTerm> = Vec::with_capacity(matching.terms().len());
        let mut can_match = true;
        for term in matching.terms() {
            self.place(term.field).spread(term.value, term.mask, |word, mask, value| {
                match terms.iter_mut().find(|term| term.word == word) {
                    Some(term) => {
                        can_match &= (term.value ^ value) & term.mask & mask == 0;
                        term.mask |= mask;
                        term.value |= value;
                    }
                    None => terms.push(WordTerm { word, mask, value }),
                }
            });
        }
        terms.sort_unstable();
        can_match.then_some(terms)
    }

    /// Whether a field is present: all of its prerequisites hold, recursively. Adds the bits read to `consulted`.
    pub fn is_present(&self, record: &[u64], field: FieldId, consulted: &mut Consulted) -> bool {
        // The depth is bounded because prerequisites may be cyclic in a wrong program.
        self.is_there_within(record, field, &mut |word, mask| consulted.add(word, mask), self.places.len())
    }

    /// [`Layout::is_present`] without recording the consulted bits.
    pub fn is_there(&self, record: &[u64], field: FieldId) -> bool {
        self.is_there_within(record, field, &mut |_, _| {}, self.places.len())
    }

    fn is_there_within(
        &self,
        record: &[u64],
        field: FieldId,
        consult: &mut impl FnMut(u32, u64),
        depth: usize,
    ) -> bool {
        self.fields.get(field).prerequisites.iter().all(|needs| {
            let place = self.place(needs.field);
            place.spread(0, needs.mask, |word, mask, _| consult(word, mask));
            needs.values.contains(&(place.read(record) & needs.mask))
                && depth > 0
                && self.is_there_within(record, needs.field, consult, depth - 1)
        })
    }

    /// The seed of hashes. It is random per process, so that an attacker cannot choose values that collide.
    pub fn seed(&self) -> u64 {
        self.seed
    }
}

/// Appends bits `lo .. lo + width` of the slot at word `offset` to a place, above the bits that it already has.
fn push_bits(place: &mut Place, offset: usize, lo: u32, width: u32) {
    debug_assert!(words_of(lo + width) > lo / 64);
    let (mut lo, mut left) = (lo, width);
    while left > 0 {
        let bits = left.min(64 - lo % 64);
        let part = Part { word: offset as u32 + lo / 64, shift: lo % 64, width: bits, at: place.width };
        place.parts.push(part);
        place.width += bits;
        lo += bits;
        left -= bits;
    }
}

/// By word: whether it holds anything but metadata, or the program reads it when a packet leaves (egress and
/// deparser).
fn visible_words(program: &Program, record: &RecordLayout, places: &[Place], is_metadata: &[bool]) -> Vec<bool> {
    let mut is_visible = vec![true; record.words()];
    let of = |metadata: bool| places.iter().zip(is_metadata).filter(move |(_, is)| **is == metadata);
    let mut set = |metadata: bool| {
        for part in of(metadata).flat_map(|(place, _)| &place.parts) {
            is_visible[part.word as usize] = !metadata;
        }
    };
    set(true);
    set(false);
    let stages = [EntryKind::Egress, EntryKind::Deparse].into_iter().filter_map(|kind| program.entry(kind));
    for stage in stages.flat_map(|entry| &entry.stages).filter_map(|id| program.stages.get(id.index())) {
        let mut read = |operand: &Operand| {
            if let Operand::Slot(slot) = operand {
                let from = record.offset(*slot);
                is_visible[from..from + words_of(program.width(*slot)) as usize].fill(true);
            }
        };
        for block in &stage.blocks {
            block.insts.iter().for_each(|inst| inst.op.for_each_operand(&mut read));
            match &block.term {
                Terminator::Branch { cond: on, .. } | Terminator::Switch { on, .. } => read(on),
                Terminator::Finish(Fate::Send(port)) => read(port),
                _ => {}
            }
        }
    }
    is_visible
}

/// Metadata fields that share no bits with earlier ones.
fn distinct(places: &[Place], is_metadata: &[bool], words: usize) -> Vec<FieldId> {
    let mut taken = vec![0u64; words];
    let mut distinct = Vec::new();
    for (i, place) in places.iter().enumerate().filter(|(i, _)| is_metadata[*i]) {
        if place.parts.iter().all(|part| taken[part.word as usize] & part.mask() == 0) {
            place.parts.iter().for_each(|part| taken[part.word as usize] |= part.mask());
            distinct.push(FieldId(i as u16));
        }
    }
    distinct
}

/// The lookup stage of each field (Pfaff et al., 5.3): 0 for metadata, otherwise one more than the highest stage of
/// its prerequisites.
fn stages(fields: &[Field], is_metadata: &[bool]) -> Vec<u8> {
    let first = |is: &bool| u8::from(!is);
    let mut stages: Vec<u8> = is_metadata.iter().map(first).collect();
    for _ in 0..STAGES {
        for (i, field) in fields.iter().enumerate().filter(|(i, _)| !is_metadata[*i]) {
            let needs = field.prerequisites.iter().map(|needs| stages[usize::from(needs.field.0)] + 1);
            stages[i] = needs.max().unwrap_or(1).clamp(1, STAGES as u8 - 1);
        }
    }
    stages
}

/// Mixes a word into a hash: folded multiplication (the halves of the 128-bit product are XORed).
pub(crate) fn mix(hash: u64, word: u64) -> u64 {
    let product = u128::from(hash ^ word) * 0x9e37_79b9_7f4a_7c15;
    (product as u64 ^ (product >> 64) as u64).wrapping_add(hash.rotate_left(23))
}

#[cfg(test)]
mod tests;
