//! Post-processing of a translation's effects: the list that packets run.

use super::Translator;
use crate::effects::{Effect, Effects, TtlCheck};
use std::collections::BTreeSet;

/// A header action after which a TTL may have expired.
macro_rules! checked {
    () => {
        Effect::Run { checks_ttl: true, .. }
    };
}

impl Translator<'_> {
    /// Finishes the effects: removes dead ones, marks the last output, and chooses how TTLs are checked.
    pub(super) fn finish(&mut self) -> Effects {
        let mut list = std::mem::take(&mut self.state.effects);
        self.drop_dead(&mut list);
        let last = list.iter().rposition(leaves);
        if let Some(Effect::Output { is_last, .. } | Effect::Capture { is_last, .. } | Effect::Again { is_last, .. }) =
            last.map(|last| &mut list[last])
        {
            *is_last = true;
        }
        // Meters count dropped packets, too, and a TTL may expire after the last output.
        let has_use = |effect: &Effect| leaves(effect) || matches!(effect, Effect::Meter { .. } | checked!());
        let end = list.iter().rposition(has_use).map_or(0, |at| at + 1);
        list.truncate(end);
        balance(&mut list);
        let last_check = list.iter().rposition(|effect| matches!(effect, checked!()));
        let first_out = list.iter().position(|effect| leaves(effect) || matches!(effect, Effect::Meter { .. }));
        let ttl = match (last_check, first_out) {
            (None, _) => TtlCheck::None,
            (Some(check), Some(out)) if out < check => TtlCheck::Dry,
            _ => TtlCheck::First,
        };
        let mut tried = BTreeSet::new();
        let tried_to = last_check.map_or(0, |at| at + 1);
        for effect in &list[..tried_to] {
            match effect {
                Effect::Write { word, .. } => {
                    tried.insert(*word);
                }
                Effect::Move(places) => tried.extend(places.1.parts.iter().map(|part| part.word)),
                Effect::Run { action, .. } => {
                    tried.extend(self.shared.vm.dependences(*action).written.iter().map(|(word, _)| *word));
                }
                _ => {}
            }
        }
        let weight = |effect: &Effect| match effect {
            Effect::Run { .. } => super::HEADER_STEPS,
            Effect::Nothing => 0,
            _ => 1,
        };
        let tried_again = if ttl == TtlCheck::Dry { tried_to } else { 0 };
        let steps: usize = list.iter().chain(&list[..tried_again]).map(weight).sum();
        let effects = Effects {
            steps: u32::try_from(steps).unwrap_or(u32::MAX),
            list: list.drain(..).collect(),
            usages: self.usages.drain(..).collect(),
            tables: self.counts.drain(..).collect(),
            stations: std::mem::take(&mut self.stations).into(),
            learned: std::mem::take(&mut self.learned).into(),
            ttl,
            tried_to,
            tried: tried.into_iter().collect(),
            has_outputs: last.is_some(),
        };
        self.state.effects = list;
        effects
    }

    /// Dead store elimination: removes writes of metadata that nothing reads.
    fn drop_dead(&self, list: &mut [Effect]) {
        let is_metadata = |word: u32| !self.layout.is_visible(word);
        let mut live: BTreeSet<u32> = BTreeSet::new();
        for effect in list.iter_mut().rev() {
            match effect {
                Effect::Write { word, .. } if is_metadata(*word) && !live.contains(word) => *effect = Effect::Nothing,
                Effect::Move(places) => {
                    let (from, to) = &**places;
                    if to.parts.iter().all(|part| is_metadata(part.word) && !live.contains(&part.word)) {
                        *effect = Effect::Nothing;
                    } else {
                        live.extend(from.parts.iter().map(|part| part.word));
                    }
                }
                Effect::Run { action, .. } => {
                    let written = &self.shared.vm.dependences(*action).written;
                    live.extend(written.iter().flat_map(|(_, on)| on.iter()).map(|(word, _)| *word));
                }
                Effect::Capture { .. } => {
                    let layout = self.layout;
                    let places = layout.reported().iter().map(|id| layout.place(*id)).chain([layout.in_port()]);
                    live.extend(places.flat_map(|place| &place.parts).map(|part| part.word));
                }
                _ => {}
            }
        }
    }
}

fn leaves(effect: &Effect) -> bool {
    matches!(effect, Effect::Output { .. } | Effect::Capture { .. } | Effect::Again { .. })
}

/// Removes each `Save` whose `Restore` was cut off, and pairs that save nothing. Effects become no-ops in place,
/// because meters skip a number of steps.
fn balance(list: &mut [Effect]) {
    let mut open: Vec<usize> = Vec::new();
    for at in 0..list.len() {
        match &list[at] {
            Effect::Save(_) => open.push(at),
            Effect::Restore(words) => {
                let is_empty = words.is_empty();
                if let Some(from) = open.pop()
                    && is_empty
                {
                    list[from] = Effect::Nothing;
                    list[at] = Effect::Nothing;
                }
            }
            _ => {}
        }
    }
    open.into_iter().for_each(|at| list[at] = Effect::Nothing);
}
