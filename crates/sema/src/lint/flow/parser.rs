//! Parsers: the summaries of the states, combined over the state graph.
//!
//! Each state is analysed as its own body. The states of places at the entry of each parser state are then the least
//! fixed point over the graph, with one bit per place, member ([`ENTRY`], [`BAD`], [`GOOD`], [`TESTED`]) and parser
//! state; 64 places are solved at a time, in reverse postorder, so that memory is linear in the number of states. What
//! was recorded relative to the entry of a state then becomes relative to the entry of the parser.
//!
//! The same solution gives the *implied* headers: those that are valid wherever a given one has been extracted. A guard
//! on TCP is thus also one on IPv4 if the parser reaches TCP only through IPv4. Headers that a call of another parser
//! may extract all imply each other: which occur together is not known.

use super::states::Scratch;
use super::walk::Walker;
use super::{BAD, BodyId, ENTRY, Flow, GOOD, Implied, Summary, TESTED, compose};
use crate::typed::*;
use crate::types::*;

/// Above this number of leaves, implied headers are not computed.
const MAX_IMPLIED: u32 = 512;

const MEMBERS: [u8; 4] = [ENTRY, BAD, GOOD, TESTED];

/// For each member of the lattice, one bit per place in a group of 64.
type Bits = [u64; 4];

/// The transfer function of a parser state on a group of 64 places.
#[derive(Clone, Copy)]
struct Transfer {
    /// Places that may be unchanged.
    kept: u64,
    made: Bits,
}

impl Transfer {
    const NONE: Transfer = Transfer { kept: u64::MAX, made: [0; 4] };

    fn set(&mut self, bit: u32, effect: u8) {
        if effect & ENTRY == 0 {
            self.kept &= !(1 << bit);
        }
        for (plane, member) in self.made.iter_mut().zip(MEMBERS).skip(1) {
            if effect & member != 0 {
                *plane |= 1 << bit;
            }
        }
    }

    fn apply(&self, before: &Bits) -> Bits {
        let [e, b, g, s] = *before;
        let [_, mb, mg, ms] = self.made;
        [e & self.kept, b & self.kept | mb, g & self.kept | mg, s | ms]
    }
}

fn at(bits: &Bits, place: u32) -> u8 {
    MEMBERS.iter().zip(bits).filter(|(_, plane)| *plane >> (place % 64) & 1 != 0).fold(0, |s, (member, _)| s | member)
}

/// The states reachable from `start` in reverse postorder: each before its successors, except along back edges.
fn reverse_postorder(parser: &Parser) -> Vec<usize> {
    let next = |i: usize| -> Vec<usize> {
        parser.states[i]
            .targets()
            .filter_map(|t| if let Target::State(s) = t { Some(s as usize) } else { None })
            .collect()
    };
    let mut order = Vec::new();
    let mut seen = vec![false; parser.states.len()];
    let start = parser.start as usize;
    seen[start] = true;
    let mut work = vec![(start, next(start))];
    while let Some((at, open)) = work.last_mut() {
        match open.pop() {
            Some(i) if !std::mem::replace(&mut seen[i], true) => work.push((i, next(i))),
            Some(_) => {}
            None => {
                order.push(*at);
                work.pop();
            }
        }
    }
    order.reverse();
    order
}

/// The summary of a parser, and the implications between its headers.
pub(super) fn summary(flow: &Flow, id: ParserId) -> (Summary, Option<(StructId, Implied)>) {
    let parser = &flow.program.parsers[id.index()];
    let places = flow.places(BodyId::Parser(id));
    if parser.states.is_empty() {
        return (Summary { completes: true, ..Summary::default() }, None);
    }
    let mut scratch = Scratch::new(places);
    let order = reverse_postorder(parser);
    let locals = walk_stmts(flow, parser, &parser.locals, &[], &mut scratch, id);
    let mut states: Vec<Summary> = vec![Summary::default(); parser.states.len()];
    for i in &order {
        let state = &parser.states[*i];
        let keys = match &state.transition {
            Transition::Select { keys, .. } => keys.as_slice(),
            Transition::Direct(_) => &[],
        };
        states[*i] = walk_stmts(flow, parser, &state.body, keys, &mut scratch, id);
    }
    let mut solver = Solver::new(flow, parser, id, &order, &states, &locals);
    let groups = solver.groups();
    let mut result = Summary { uses: locals.uses.clone(), calls: locals.calls.clone(), ..Summary::default() };
    let uses: Vec<usize> = order.iter().flat_map(|i| std::iter::repeat_n(*i, states[*i].uses.len())).collect();
    for i in &order {
        result.uses.extend(states[*i].uses.iter().cloned());
        result.calls.extend(states[*i].calls.iter().cloned());
    }
    // Queries for the entry of a state: (group, state, what to update), sorted by group.
    let mut queries: Vec<(u32, usize, Query)> = Vec::new();
    let first = locals.uses.len();
    for (n, state) in uses.iter().enumerate() {
        queries.push((result.uses[first + n].place / 64, *state, Query::Use(first + n)));
    }
    let mut call = locals.calls.len();
    for i in &order {
        for site in &states[*i].calls {
            for (n, (_, place)) in site.states.iter().enumerate() {
                queries.push((place / 64, *i, Query::Call(call, n)));
            }
            call += 1;
        }
    }
    queries.sort_unstable_by_key(|a| a.0);
    let mut next = 0;
    for group in groups {
        while queries.get(next).is_some_and(|a| a.0 < group) {
            next += 1; // no state changes these places
        }
        solver.solve(group);
        while let Some((_, state, query)) = queries.get(next).filter(|a| a.0 == group) {
            let (slot, place) = match query {
                Query::Use(n) => {
                    let u = &mut result.uses[*n];
                    (&mut u.state, u.place)
                }
                Query::Call(c, n) => {
                    let (state, place) = &mut result.calls[*c].states[*n];
                    (state, *place)
                }
            };
            *slot = compose(*slot, at(&solver.begin[*state], place));
            next += 1;
        }
        solver.accepted(group, &mut result.effects);
    }
    result.completes =
        order.iter().any(|i| states[*i].completes && parser.states[*i].targets().any(|t| t == Target::Accept));
    result.find_interest();
    (result, solver.implied())
}

enum Query {
    Use(usize),
    Call(usize, usize),
}

fn walk_stmts<'p>(
    flow: &Flow<'p>,
    parser: &'p Parser,
    stmts: &'p [Stmt],
    keys: &'p [Expr],
    scratch: &mut Scratch,
    id: ParserId,
) -> Summary {
    let mut walker = Walker::new(flow, flow.places(BodyId::Parser(id)), &parser.instances, scratch);
    walker.stmts(stmts);
    if !walker.dead {
        keys.iter().for_each(|k| walker.rvalue(k));
    }
    walker.finish()
}

struct Solver<'a> {
    parser: &'a Parser,
    order: &'a [usize],
    states: &'a [Summary],
    locals: &'a Summary,
    /// Effects by group: (group, state, place, effect), sorted.
    effects: Vec<(u32, usize, u32, u8)>,
    next: usize,
    transfers: Vec<Transfer>,
    /// The states of places at the entry of each parser state, for the group that was solved last.
    begin: Vec<Bits>,
    /// The headers of the `out` parameter: its struct, its first place, their number.
    headers: Option<(StructId, u32, u32)>,
    /// By leaf, once it is extracted somewhere: the leaves that are valid each time.
    rows: Vec<Option<Vec<u64>>>,
}

impl<'a> Solver<'a> {
    fn new(
        flow: &Flow,
        parser: &'a Parser,
        id: ParserId,
        order: &'a [usize],
        states: &'a [Summary],
        locals: &'a Summary,
    ) -> Solver<'a> {
        let places = flow.places(BodyId::Parser(id));
        let mut effects = Vec::new();
        for i in order {
            effects.extend(states[*i].effects.iter().map(|(place, effect)| (place / 64, *i, *place, *effect)));
        }
        effects.sort_unstable();
        let headers = parser.params.iter().find_map(|p| match (&p.ty, p.direction) {
            (Type::Struct(s), Direction::Out) => {
                let r = places.of_local(p.local);
                Some((*s, r.start, r.len))
            }
            _ => None,
        });
        let leaves = headers.map_or(0, |h| h.2);
        Solver {
            parser,
            order,
            states,
            locals,
            effects,
            next: 0,
            transfers: vec![Transfer::NONE; states.len()],
            begin: vec![[0; 4]; states.len()],
            headers,
            rows: if leaves <= MAX_IMPLIED { vec![None; leaves as usize] } else { Vec::new() },
        }
    }

    /// The groups that contain a place that some state changes.
    fn groups(&self) -> Vec<u32> {
        let mut groups: Vec<u32> = self.effects.iter().map(|e| e.0).collect();
        groups.extend(self.locals.effects.iter().map(|e| e.0 / 64));
        groups.sort_unstable();
        groups.dedup();
        groups
    }

    fn solve(&mut self, group: u32) {
        for i in self.order {
            self.transfers[*i] = Transfer::NONE;
            self.begin[*i] = [0; 4];
        }
        while let Some((_, state, place, effect)) = self.effects.get(self.next).filter(|e| e.0 == group) {
            self.transfers[*state].set(place % 64, *effect);
            self.next += 1;
        }
        let mut locals = Transfer::NONE;
        for (place, effect) in self.locals.effects.iter().filter(|e| e.0 / 64 == group) {
            locals.set(place % 64, *effect);
        }
        self.begin[self.parser.start as usize] = locals.apply(&[u64::MAX, 0, 0, 0]);
        let mut again = true;
        while again {
            again = false;
            for i in self.order {
                if !self.states[*i].completes {
                    continue;
                }
                let after = self.transfers[*i].apply(&self.begin[*i]);
                for target in self.parser.states[*i].targets() {
                    let Target::State(to) = target else { continue };
                    let begin = &mut self.begin[to as usize];
                    for (have, more) in begin.iter_mut().zip(after) {
                        again |= *have | more != *have;
                        *have |= more;
                    }
                }
            }
        }
    }

    /// Adds the effects of the whole parser on a solved group, and records what is valid where headers become valid.
    fn accepted(&mut self, group: u32, effects: &mut Vec<(u32, u8)>) {
        let mut end: Bits = [0; 4];
        for i in self.order {
            if !self.states[*i].completes {
                continue;
            }
            let after = self.transfers[*i].apply(&self.begin[*i]);
            if self.parser.states[*i].targets().any(|t| t == Target::Accept) {
                end.iter_mut().zip(after).for_each(|(e, a)| *e |= a);
            }
            self.note_valid(*i, group, &after);
        }
        let touched = self.order.iter().fold(0, |t, i| {
            let transfer = &self.transfers[*i];
            t | !transfer.kept | transfer.made.iter().fold(0, |a, b| a | b)
        });
        let touched =
            self.locals.effects.iter().filter(|e| e.0 / 64 == group).fold(touched, |t, e| t | 1 << (e.0 % 64));
        for bit in (0..64).filter(|b| touched >> b & 1 != 0) {
            let place = group * 64 + bit;
            let state = at(&end, place);
            if state != ENTRY && state != 0 {
                effects.push((place, state));
            }
        }
    }

    fn note_valid(&mut self, state: usize, group: u32, after: &Bits) {
        let Some((_, start, len)) = self.headers.filter(|_| !self.rows.is_empty()) else { return };
        let words = (len as usize).div_ceil(64);
        let valid = after[2] & !after[1] & !after[0];
        for (place, effect) in &self.states[state].effects {
            if *effect & GOOD == 0 || *place < start || *place >= start + len {
                continue;
            }
            let by_call = *effect & (ENTRY | BAD) != 0;
            let sure = if by_call { valid | self.transfers[state].made[2] } else { valid };
            let row = self.rows[(place - start) as usize].get_or_insert_with(|| vec![u64::MAX; words]);
            for bit in 0..64 {
                let other = group * 64 + bit;
                if sure >> bit & 1 == 0 && other >= start && other < start + len {
                    let leaf = other - start;
                    row[leaf as usize / 64] &= !(1 << (leaf % 64));
                }
            }
        }
    }

    fn implied(self) -> Option<(StructId, Implied)> {
        let (id, _, len) = self.headers?;
        if len > MAX_IMPLIED {
            return Some((id, Implied { rows: None }));
        }
        let touched: Vec<bool> = {
            let mut touched = vec![false; len as usize];
            let start = self.headers.map_or(0, |h| h.1);
            for (_, _, place, _) in &self.effects {
                if (start..start + len).contains(place) {
                    touched[(place - start) as usize] = true;
                }
            }
            touched
        };
        // Nothing is known of places in groups that no state changes.
        let mut rows: Vec<Vec<u64>> = self.rows.into_iter().map(Option::unwrap_or_default).collect();
        for row in &mut rows {
            for (leaf, _) in touched.iter().enumerate().filter(|(_, t)| !**t) {
                if let Some(word) = row.get_mut(leaf / 64) {
                    *word &= !(1 << (leaf % 64));
                }
            }
        }
        Some((id, Implied { rows: Some(rows) }))
    }
}
