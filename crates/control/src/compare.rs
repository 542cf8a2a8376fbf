//! Compares two programs object by object: what becomes of the state when one replaces the other. `sluice diff`, which
//! has no state, and the replacement itself ([`crate::reconcile`]) use the same answer.
//!
//! Objects are matched by kind and fully qualified name. An object is *kept* if its shape is unchanged: the new program
//! then uses the same entries and cells in memory ([`datapath::Keep`]). If only its surroundings differ (an added
//! action, a changed size), its contents are *copied* one by one, and what does not fit is lost and reported. A table
//! and its action profile share entries, so they are kept together or copied together.
//!
//! The shape is what controllers see (P4Info) and what the data plane lays out (the IR), because optimisation may have
//! removed a table that is never applied.
//!
//! Tests: `tests/p4runtime/configs.rs`; whole programs in `crates/sluice/src/target/tests.rs`.

use base::ids::{ExternId, TableId};
use datapath::Keep;
use ir::{ExternKind, Program};
use p4info::{ActionProfile, DataType, MatchField, MatchType, ObjectKind, P4Info, Preamble, Table};
use std::collections::BTreeSet;

/// A program as controllers see it and as it runs.
#[derive(Clone, Copy)]
pub struct Side<'a> {
    /// The program as controllers see it.
    pub info: &'a P4Info,
    /// The program that runs.
    pub program: &'a Program,
}

/// What becomes of an object's state.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Fate {
    /// It is kept in place.
    Kept,
    /// It is copied into an object of another shape.
    Copied,
    /// It is lost: the new object of this name cannot hold it.
    Incompatible,
    /// It is lost: the new program has no object of this name.
    Dropped,
    /// There is none: the old program has no object of this name.
    New,
}

impl Fate {
    /// The word for it in reports.
    pub fn name(self) -> &'static str {
        match self {
            Fate::Kept => "kept",
            Fate::Copied => "copied",
            Fate::Incompatible => "incompatible",
            Fate::Dropped => "dropped",
            Fate::New => "new",
        }
    }
}

/// The comparison of one object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Compared {
    /// Its kind.
    pub kind: ObjectKind,
    /// Its name.
    pub name: String,
    /// What becomes of it.
    pub fate: Fate,
    /// What differs, and the consequences.
    pub notes: Vec<String>,
}

/// The comparison of two programs.
#[derive(Clone, Debug, Default)]
pub struct Comparison {
    /// Objects with state: tables first, then the others by kind.
    pub objects: Vec<Compared>,
    /// What the target keeps and copies.
    pub keep: Keep,
}

/// Compares two programs.
pub fn compare(old: Side<'_>, new: Side<'_>) -> Comparison {
    let mut all = Comparison::default();
    let mut tables: Vec<Compared> =
        pair(&old.info.tables, &new.info.tables, |t| &t.preamble).map(|(was, now)| table(old, new, was, now)).collect();
    let mut profiles: Vec<Compared> = pair(&old.info.action_profiles, &new.info.action_profiles, |p| &p.preamble)
        .map(|(was, now)| profile(old, new, was, now))
        .collect();
    keep_together(old, new, &mut tables, &mut profiles);
    for object in tables.iter().filter(|t| matches!(t.fate, Fate::Kept | Fate::Copied)) {
        let pair = old.program.table_named(&object.name).zip(new.program.table_named(&object.name));
        match (object.fate, pair) {
            (Fate::Kept, Some(pair)) => all.keep.tables.push(pair),
            (_, Some(pair)) if same_keys(old, new, pair) => all.keep.copied_tables.push(pair),
            _ => {}
        }
    }
    all.objects.extend(tables);
    all.objects.extend(profiles);
    all.objects.extend(beside(old, new, &all.objects));
    all.objects.extend(arrays(old, new));
    for object in &all.objects {
        let Some(pair) = old.program.extern_named(&object.name).zip(new.program.extern_named(&object.name)) else {
            continue;
        };
        let counts = matches!(
            object.kind,
            ObjectKind::Counter | ObjectKind::DirectCounter | ObjectKind::Meter | ObjectKind::DirectMeter
        );
        match object.fate {
            Fate::Kept if object.kind != ObjectKind::Table => all.keep.externs.push(pair),
            Fate::Copied if object.kind == ObjectKind::Register => all.keep.copied_registers.push(pair),
            Fate::Copied if counts && counts_stay(old, new, pair, &all.keep) => all.keep.copied_externs.push(pair),
            _ => {}
        }
    }
    let sets = pair(&old.info.value_sets, &new.info.value_sets, |s| &s.preamble);
    for (was, now) in sets {
        let object = match (was, now) {
            (Some(was), Some(now)) => value_set(old, new, was, now),
            (was, now) => alone(ObjectKind::ValueSet, was.map(|s| &s.preamble), now.map(|s| &s.preamble)),
        };
        if object.fate == Fate::Kept {
            let pair = old.program.table_named(&object.name).zip(new.program.table_named(&object.name));
            all.keep.tables.extend(pair);
        }
        all.objects.push(object);
    }
    for (was, now) in pair(&old.info.digests, &new.info.digests, |d| &d.preamble) {
        all.objects.push(match (was, now) {
            (Some(was), Some(now)) => {
                let same = same_type(old.info, new.info, &was.type_spec, &now.type_spec);
                let notes = if same { vec![] } else { vec!["its messages have another type".to_string()] };
                Compared { kind: ObjectKind::Digest, name: now.preamble.name.clone(), fate: Fate::Copied, notes }
            }
            (was, now) => alone(ObjectKind::Digest, was.map(|d| &d.preamble), now.map(|d| &d.preamble)),
        });
    }
    all
}

/// Pairs the objects of two lists by name: first the old ones in order, then the new ones that the old list lacks.
fn pair<'a, T>(
    old: &'a [T],
    new: &'a [T],
    preamble: impl Fn(&T) -> &Preamble + Copy,
) -> impl Iterator<Item = (Option<&'a T>, Option<&'a T>)> {
    let find = move |list: &'a [T], name: &str| list.iter().find(|t| preamble(t).name == name);
    let both = old.iter().map(move |was| (Some(was), find(new, &preamble(was).name)));
    both.chain(new.iter().filter(move |now| find(old, &preamble(now).name).is_none()).map(|now| (None, Some(now))))
}

/// The comparison of an object that only one of the programs has.
fn alone(kind: ObjectKind, was: Option<&Preamble>, now: Option<&Preamble>) -> Compared {
    let fate = if now.is_some() { Fate::New } else { Fate::Dropped };
    let name = now.or(was).map(|p| p.name.clone()).unwrap_or_default();
    Compared { kind, name, fate, notes: vec![] }
}

/// Differences that require copying, and differences that make it impossible.
#[derive(Default)]
struct Differences {
    copied: Vec<String>,
    impossible: Vec<String>,
}

impl Differences {
    fn into(mut self, kind: ObjectKind, name: &str) -> Compared {
        let fate = match (self.impossible.is_empty(), self.copied.is_empty()) {
            (false, _) => Fate::Incompatible,
            (true, false) => Fate::Copied,
            (true, true) => Fate::Kept,
        };
        self.impossible.append(&mut self.copied);
        Compared { kind, name: name.to_string(), fate, notes: self.impossible }
    }

    fn copied(&mut self, differs: bool, note: impl FnOnce() -> String) {
        if differs {
            self.copied.push(note());
        }
    }

    fn impossible(&mut self, differs: bool, note: impl FnOnce() -> String) {
        if differs {
            self.impossible.push(note());
        }
    }
}

fn table(old: Side<'_>, new: Side<'_>, was: Option<&Table>, now: Option<&Table>) -> Compared {
    let (Some(was), Some(now)) = (was, now) else {
        return alone(ObjectKind::Table, was.map(|t| &t.preamble), now.map(|t| &t.preamble));
    };
    let mut d = Differences::default();
    fields(&mut d, &was.match_fields, &now.match_fields);
    let names = |side: Side<'_>, t: &Table| -> Vec<String> {
        t.action_refs.iter().map(|r| action_name(side.info, r.id).to_string()).collect()
    };
    actions(&mut d, old, new, &names(old, was), &names(new, now));
    let scopes = |t: &Table| t.action_refs.iter().map(|r| r.scope).collect::<Vec<_>>();
    d.copied(d.copied.is_empty() && scopes(was) != scopes(now), || "actions may have other scopes".to_string());
    d.copied(was.size != now.size, || format!("the size changes from {} to {}", was.size, now.size));
    d.copied(was.idle_timeout != now.idle_timeout, || {
        format!("idle timeouts are {} supported", if now.idle_timeout { "now" } else { "no longer" })
    });
    d.copied(was.restriction != now.restriction, || {
        "its restriction is another; entries against it are lost".to_string()
    });
    d.impossible(was.is_const_table != now.is_const_table, || {
        format!("its entries are {} constant", if now.is_const_table { "now" } else { "no longer" })
    });
    let profile_of = |side: Side<'_>, t: &Table| {
        let id = t.implementation_id?;
        side.info.action_profiles.iter().find(|p| p.preamble.id == id).map(|p| p.preamble.name.clone())
    };
    let profiles = (profile_of(old, was), profile_of(new, now));
    d.impossible(profiles.0 != profiles.1, || match profiles.1 {
        Some(name) => format!("its entries name members of `{name}`"),
        None => "it has no action profile any more".to_string(),
    });
    let (was_ir, now_ir) = (ir_table(old, &was.preamble.name), ir_table(new, &now.preamble.name));
    match (was_ir, now_ir) {
        (Some(a), Some(b)) => {
            let listed = |side: Side<'_>, list: &[ir::TableAction]| -> Vec<(String, Vec<u32>)> {
                let of = |a: &ir::TableAction| &side.program.actions[a.action.index()];
                list.iter().map(|a| (of(a).name.clone(), of(a).params.iter().map(|p| p.1).collect())).collect()
            };
            let beside = |side: Side<'_>, t: &ir::Table| -> BTreeSet<(String, String)> {
                let ext = |e: &ExternId| &side.program.externs[e.index()];
                t.direct.iter().map(|e| (ext(e).name.clone(), unit_of(&ext(e).kind))).collect()
            };
            d.copied(beside(old, a) != beside(new, b), || "its direct counters or meters are others".to_string());
            let keys = |t: &ir::Table| t.keys.iter().map(|k| (k.width, k.kind)).collect::<Vec<_>>();
            let differs = keys(a) != keys(b)
                || listed(old, &a.actions) != listed(new, &b.actions)
                || (a.size, a.idle_timeout, a.const_entries) != (b.size, b.idle_timeout, b.const_entries);
            let default = a.default_action != b.default_action || a.const_default != b.const_default;
            d.copied(a.dynamic != b.dynamic, || "packets write it in another way".to_string());
            d.copied(a.entries != b.entries, || "the program's own entries are others".to_string());
            d.copied(d.copied.is_empty() && default, || "the program's default action is another".to_string());
            d.copied(d.copied.is_empty() && differs, || "it is laid out in another way".to_string());
        }
        (Some(_), None) => d.impossible(true, || "the new program never uses it".to_string()),
        // A table that was never used has no entries.
        (None, _) => {}
    }
    d.into(ObjectKind::Table, &now.preamble.name)
}

fn unit_of(kind: &ExternKind) -> String {
    match kind {
        ExternKind::Counter { unit, .. } => format!("counter of {unit:?}"),
        ExternKind::Meter { unit, .. } => format!("meter of {unit:?}"),
        _ => String::new(),
    }
}

fn ir_table<'a>(side: Side<'a>, name: &str) -> Option<&'a ir::Table> {
    side.program.table_named(name).map(|id| &side.program.tables[id.index()])
}

/// Whether further tables hold members of a value set under masks.
fn is_masked(side: Side<'_>, name: &str) -> bool {
    side.program.table_named(name).is_some_and(|set| !side.program.masked_tables(set).is_empty())
}

fn action_name(info: &P4Info, id: u32) -> &str {
    info.actions.iter().find(|a| a.preamble.id == id).map_or("", |a| &a.preamble.name)
}

fn match_name(kind: &MatchType) -> String {
    match kind {
        MatchType::Known(kind) => kind.name().to_string(),
        MatchType::Other(name) => name.clone(),
    }
}

fn fields(d: &mut Differences, was: &[MatchField], now: &[MatchField]) {
    let exact = |f: &MatchField| match_name(&f.match_type) == "exact";
    for a in was {
        let Some(b) = now.iter().find(|f| f.name == a.name) else {
            d.impossible(true, || format!("the match field `{}` is gone", a.name));
            continue;
        };
        d.impossible(a.match_type != b.match_type, || {
            format!("`{}` is matched {} instead of {}", a.name, match_name(&b.match_type), match_name(&a.match_type))
        });
        d.copied(a.bitwidth != b.bitwidth, || {
            let note = if b.bitwidth < a.bitwidth { "; entries whose values do not fit are lost" } else { "" };
            format!("`{}` has {} bits instead of {}{note}", a.name, b.bitwidth, a.bitwidth)
        });
        d.copied(a.type_name != b.type_name, || format!("`{}` has another type", a.name));
    }
    for b in now.iter().filter(|b| was.iter().all(|f| f.name != b.name)) {
        d.impossible(exact(b), || format!("the match field `{}` is new, and exact", b.name));
        d.copied(!exact(b), || format!("the match field `{}` is new; copied entries do not care", b.name));
    }
    let order = |list: &[MatchField]| list.iter().map(|f| (f.name.clone(), f.id)).collect::<Vec<_>>();
    let differ = d.copied.is_empty() && d.impossible.is_empty() && order(was) != order(now);
    d.copied(differ, || "match fields have another order".to_string());
}

fn actions(d: &mut Differences, old: Side<'_>, new: Side<'_>, was: &[String], now: &[String]) {
    for name in was {
        if !now.contains(name) {
            d.copied(true, || format!("the action `{name}` is gone; entries that run it are lost"));
            continue;
        }
        let find = |side: Side<'_>| side.info.actions.iter().position(|a| a.preamble.name == *name);
        let restriction = |side: Side<'_>| find(side).map(|at| side.info.actions[at].restriction.clone());
        d.copied(restriction(old) != restriction(new), || {
            format!("the restriction of the action `{name}` is another; entries against it are lost")
        });
        let params = |side: Side<'_>| {
            let action = find(side).map(|at| &side.info.actions[at]);
            let params = action.map(|a| a.params.iter().map(|p| (p.name.clone(), p.bitwidth, p.type_name.clone())));
            params.map(|p| p.collect::<Vec<_>>()).unwrap_or_default()
        };
        let (a, b) = (params(old), params(new));
        let names = |list: &[(String, u32, Option<String>)]| {
            list.iter().map(|(name, ..)| name.clone()).collect::<BTreeSet<String>>()
        };
        let others = names(&a) != names(&b);
        d.copied(others, || format!("the action `{name}` has other parameters; entries that run it are lost"));
        d.copied(!others && a != b, || format!("parameters of the action `{name}` have other types or another order"));
    }
    for name in now.iter().filter(|name| !was.contains(name)) {
        d.copied(true, || format!("the action `{name}` is new"));
    }
    d.copied(d.copied.is_empty() && was != now, || "actions have another order".to_string());
}

fn profile(old: Side<'_>, new: Side<'_>, was: Option<&ActionProfile>, now: Option<&ActionProfile>) -> Compared {
    let (Some(was), Some(now)) = (was, now) else {
        return alone(ObjectKind::ActionProfile, was.map(|p| &p.preamble), now.map(|p| &p.preamble));
    };
    let mut d = Differences::default();
    let selects = |with| if with { "a selector" } else { "no selector" };
    d.impossible(was.with_selector && !now.with_selector, || format!("it is {} any more", selects(now.with_selector)));
    d.copied(!was.with_selector && now.with_selector, || format!("it is {} now", selects(now.with_selector)));
    d.copied(was.size != now.size, || format!("the size changes from {} to {}", was.size, now.size));
    let limits = |p: &ActionProfile| (p.max_group_size, p.selector_size, p.weights_disallowed);
    d.copied(limits(was) != limits(now), || "groups have other limits".to_string());
    let empty = |side: Side<'_>, name: &str| {
        let ext = side.program.extern_named(name).map(|e| &side.program.externs[e.index()].kind)?;
        let ExternKind::ActionSelector { empty: Some(call), actions, .. } = ext else { return None };
        let name = |listed: &ir::TableAction| side.program.actions[listed.action.index()].name.clone();
        Some((actions.get(call.action as usize).map(name), call.args.clone()))
    };
    let changes = empty(old, &was.preamble.name) != empty(new, &now.preamble.name);
    d.copied(changes, || "groups without members run something else".to_string());
    let list = |side: Side<'_>, name: &str| {
        let ext = side.program.extern_named(name).map(|e| &side.program.externs[e.index()].kind)?;
        let (ExternKind::ActionProfile { actions, .. } | ExternKind::ActionSelector { actions, .. }) = ext else {
            return None;
        };
        let of = |a: &ir::TableAction| &side.program.actions[a.action.index()];
        Some(actions.iter().map(|a| (of(a).name.clone(), of(a).params.clone())).collect::<Vec<_>>())
    };
    match (list(old, &was.preamble.name), list(new, &now.preamble.name)) {
        (Some(a), Some(b)) => {
            let names = |list: &[(String, Vec<(String, u32)>)]| list.iter().map(|(n, _)| n.clone()).collect::<Vec<_>>();
            actions(&mut d, old, new, &names(&a), &names(&b));
            d.copied(d.copied.is_empty() && a != b, || "its actions are laid out in another way".to_string());
        }
        (Some(_), None) => d.impossible(true, || "the new program never uses it".to_string()),
        (None, _) => {}
    }
    d.into(ObjectKind::ActionProfile, &now.preamble.name)
}

/// Makes tables with a profile and the profile all kept or all copied, because their entries refer to its members.
fn keep_together(old: Side<'_>, new: Side<'_>, tables: &mut [Compared], profiles: &mut [Compared]) {
    let users = |side: Side<'_>, name: &str| -> BTreeSet<String> {
        let profile = side.program.extern_named(name);
        let uses = |t: &&ir::Table| profile.is_some() && t.implementation == profile;
        side.program.tables.iter().filter(uses).map(|t| t.name.clone()).collect()
    };
    for profile in profiles {
        let (a, b) = (users(old, &profile.name), users(new, &profile.name));
        let other = tables.iter().find(|t| a.contains(&t.name) && t.fate != Fate::Kept);
        let why = match other {
            Some(table) => Some(format!("the table `{}` is not kept", table.name)),
            None => (a != b).then(|| "other tables use it".to_string()),
        };
        if let (Fate::Kept, Some(why)) = (profile.fate, why) {
            profile.fate = Fate::Copied;
            profile.notes.push(why);
        }
        if profile.fate != Fate::Kept {
            for table in tables.iter_mut().filter(|t| b.contains(&t.name) && t.fate == Fate::Kept) {
                table.fate = Fate::Copied;
                table.notes.push(format!("its action profile `{}` is not kept", profile.name));
            }
        }
    }
}

fn same_keys(old: Side<'_>, new: Side<'_>, (was, now): (TableId, TableId)) -> bool {
    let keys = |side: Side<'_>, t: TableId| {
        side.program.tables[t.index()].keys.iter().map(|k| (k.name.clone(), k.width, k.kind)).collect::<Vec<_>>()
    };
    keys(old, was) == keys(new, now)
}

/// Whether the target can match the cells of two counters or meters.
fn counts_stay(old: Side<'_>, new: Side<'_>, (was, now): (ExternId, ExternId), keep: &Keep) -> bool {
    let direct = |side: Side<'_>, e: ExternId| match side.program.externs[e.index()].kind {
        ExternKind::Counter { direct, .. } | ExternKind::Meter { direct, .. } => direct,
        _ => None,
    };
    match (direct(old, was), direct(new, now)) {
        (Some(was), Some(now)) => keep.copied_tables.contains(&(was, now)),
        (None, None) => true,
        _ => false,
    }
}

/// Compares direct counters and meters: their state shares the fate of their tables.
fn beside(old: Side<'_>, new: Side<'_>, tables: &[Compared]) -> Vec<Compared> {
    let table_name = |side: Side<'_>, id: u32| {
        side.info.tables.iter().find(|t| t.preamble.id == id).map(|t| t.preamble.name.clone()).unwrap_or_default()
    };
    let judge = |kind, name: &str, was: (String, String), now: (String, String)| {
        let fate_of = |table: &str| tables.iter().find(|t| t.kind == ObjectKind::Table && t.name == table);
        let table = fate_of(&now.0);
        let (fate, note) = if was.0 != now.0 {
            (Fate::Incompatible, Some(format!("it belongs to the table `{}` instead of `{}`", now.0, was.0)))
        } else if was.1 != now.1 {
            (Fate::Incompatible, Some(format!("it counts {} instead of {}", now.1, was.1)))
        } else {
            match table.map_or(Fate::Dropped, |t| t.fate) {
                Fate::Kept => (Fate::Kept, None),
                Fate::Copied => (Fate::Copied, Some(format!("the table `{}` is copied", now.0))),
                _ => (Fate::Incompatible, Some(format!("the table `{}` is incompatible", now.0))),
            }
        };
        Compared { kind, name: name.to_string(), fate, notes: note.into_iter().collect() }
    };
    let mut all = Vec::new();
    for (was, now) in pair(&old.info.direct_counters, &new.info.direct_counters, |c| &c.preamble) {
        let of = |side, c: &p4info::DirectCounter| (table_name(side, c.direct_table_id), format!("{:?}", c.unit));
        all.push(match (was, now) {
            (Some(a), Some(b)) => judge(ObjectKind::DirectCounter, &b.preamble.name, of(old, a), of(new, b)),
            (a, b) => alone(ObjectKind::DirectCounter, a.map(|c| &c.preamble), b.map(|c| &c.preamble)),
        });
    }
    for (was, now) in pair(&old.info.direct_meters, &new.info.direct_meters, |m| &m.preamble) {
        let of = |side, m: &p4info::DirectMeter| (table_name(side, m.direct_table_id), format!("{:?}", m.unit));
        all.push(match (was, now) {
            (Some(a), Some(b)) => judge(ObjectKind::DirectMeter, &b.preamble.name, of(old, a), of(new, b)),
            (a, b) => alone(ObjectKind::DirectMeter, a.map(|m| &m.preamble), b.map(|m| &m.preamble)),
        });
    }
    all
}

/// Compares counters, meters and registers.
fn arrays(old: Side<'_>, new: Side<'_>) -> Vec<Compared> {
    let size = |d: &mut Differences, was: i64, now: i64| {
        d.copied(was != now, || {
            let lost = if now < was { "; the cells above are lost" } else { "" };
            format!("the size changes from {was} to {now}{lost}")
        });
    };
    let there = |d: &mut Differences, name: &str| {
        let has = |side: Side<'_>| side.program.extern_named(name).is_some();
        d.impossible(has(old) && !has(new), || "the new program never uses it".to_string());
    };
    let mut all = Vec::new();
    for (was, now) in pair(&old.info.counters, &new.info.counters, |c| &c.preamble) {
        let (Some(a), Some(b)) = (was, now) else {
            all.push(alone(ObjectKind::Counter, was.map(|c| &c.preamble), now.map(|c| &c.preamble)));
            continue;
        };
        let mut d = Differences::default();
        there(&mut d, &b.preamble.name);
        d.impossible(a.unit != b.unit, || format!("it counts {:?} instead of {:?}", b.unit, a.unit));
        size(&mut d, a.size, b.size);
        all.push(d.into(ObjectKind::Counter, &b.preamble.name));
    }
    for (was, now) in pair(&old.info.meters, &new.info.meters, |m| &m.preamble) {
        let (Some(a), Some(b)) = (was, now) else {
            all.push(alone(ObjectKind::Meter, was.map(|m| &m.preamble), now.map(|m| &m.preamble)));
            continue;
        };
        let mut d = Differences::default();
        there(&mut d, &b.preamble.name);
        d.impossible(a.unit != b.unit, || format!("it measures {:?} instead of {:?}", b.unit, a.unit));
        size(&mut d, a.size, b.size);
        all.push(d.into(ObjectKind::Meter, &b.preamble.name));
    }
    for (was, now) in pair(&old.info.registers, &new.info.registers, |r| &r.preamble) {
        let (Some(a), Some(b)) = (was, now) else {
            all.push(alone(ObjectKind::Register, was.map(|r| &r.preamble), now.map(|r| &r.preamble)));
            continue;
        };
        let mut d = Differences::default();
        there(&mut d, &b.preamble.name);
        let same = same_type(old.info, new.info, &a.type_spec, &b.type_spec);
        d.impossible(!same, || "its cells have another type".to_string());
        size(&mut d, a.size.into(), b.size.into());
        all.push(d.into(ObjectKind::Register, &b.preamble.name));
    }
    all
}

fn value_set(old: Side<'_>, new: Side<'_>, was: &p4info::ValueSet, now: &p4info::ValueSet) -> Compared {
    let mut d = Differences::default();
    let name = &now.preamble.name;
    fields(&mut d, &was.match_fields, &now.match_fields);
    d.copied(was.size != now.size, || format!("the size changes from {} to {}", was.size, now.size));
    match (ir_table(old, name), ir_table(new, name)) {
        (Some(a), Some(b)) => {
            // The tables of masked members are not objects that could be kept separately.
            d.copied([old, new].into_iter().any(|side| is_masked(side, name)), || {
                "members count under masks".to_string()
            });
            let shape = |t: &ir::Table| (t.keys.iter().map(|k| (k.width, k.kind)).collect::<Vec<_>>(), t.size);
            d.copied(d.copied.is_empty() && shape(a) != shape(b), || "it is laid out in another way".to_string());
        }
        (Some(_), None) => d.impossible(true, || "the new program never uses it".to_string()),
        (None, _) => {}
    }
    d.into(ObjectKind::ValueSet, name)
}

/// Whether two types are the same in both programs, their members included.
fn same_type(old: &P4Info, new: &P4Info, was: &DataType, now: &DataType) -> bool {
    if was != now {
        return false;
    }
    let (a, b) = (&old.type_info, &new.type_info);
    match was {
        DataType::Struct(name) => {
            let (Some(x), Some(y)) = (a.structs.get(name), b.structs.get(name)) else { return false };
            x.members.len() == y.members.len()
                && x.members.iter().zip(&y.members).all(|(x, y)| x.0 == y.0 && same_type(old, new, &x.1, &y.1))
        }
        DataType::Header(name) => a.headers.get(name) == b.headers.get(name),
        DataType::HeaderUnion(name) => a.header_unions.get(name) == b.header_unions.get(name),
        DataType::Enum(name) => a.enums.get(name) == b.enums.get(name),
        DataType::SerializableEnum(name) => a.serializable_enums.get(name) == b.serializable_enums.get(name),
        DataType::NewType(name) => a.new_types.get(name) == b.new_types.get(name),
        DataType::Tuple(types) => types.iter().all(|t| same_type(old, new, t, t)),
        _ => true,
    }
}
