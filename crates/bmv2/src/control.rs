//! The two pipelines: tables, conditionals, calls of actions, and their order; action profiles.
//!
//! The nodes of a pipeline form an acyclic graph. A table's next node depends on the action that ran, or on whether an
//! entry matched (`__HIT__`, `__MISS__`).

use crate::codes;
use crate::expressions::hex;
use crate::model::{Entry, Expr, Key, Next, Node, Pipeline, Profile, Selector, Table};
use crate::names::{Names, Reader};
use crate::read::{At, Read};
use crate::state::algorithm;
use crate::states::sole;
use base::Bits;
use base::entry::{KeyMatch, MatchKind};
use ir::HashAlgorithm;
use num_bigint::BigInt;
use std::collections::HashMap;

/// Size of a table for which none is given.
const TABLE_SIZE: u64 = 1024;
/// Prefix of the names of tables that the compiler generates for direct calls of actions.
const HIDDEN_PREFIX: &str = "tbl_";

impl Reader {
    pub fn pipelines(&mut self, root: &At<'_>) -> Read<()> {
        let mut tables = Names::default();
        self.m.ingress = self.pipeline(root, "ingress", &mut tables)?;
        self.m.egress = self.pipeline(root, "egress", &mut tables)?;
        Ok(())
    }

    fn pipeline(&mut self, root: &At<'_>, name: &str, tables: &mut Names) -> Read<Pipeline> {
        let Some(object) = sole(root, "pipelines", name)? else { return Ok(Pipeline::default()) };
        for profile in object.list_of("action_profiles")? {
            self.profile(&profile)?;
        }
        // All names are registered before the nodes are read, since nodes refer to one another.
        let mut names = Names::default();
        let kinds = ["tables", "conditionals", "action_calls"];
        let mut objects = Vec::new();
        for kind in kinds {
            for node in object.list_of(kind)? {
                let index = objects.len();
                let node_name = node.name()?;
                if names.get(node_name).is_some() {
                    return node.fail(codes::TWICE, format!("there is another node `{node_name}`"));
                }
                names.add_name(node_name, index);
                objects.push((kind, node));
            }
        }
        let mut nodes = Vec::new();
        let (mut conditionals, mut action_calls) = (Names::default(), Names::default());
        for (kind, node) in &objects {
            nodes.push(match *kind {
                "tables" => {
                    tables.add("table", node, nodes.len())?;
                    Node::Table(Box::new(self.table(node, &names)?))
                }
                "conditionals" => {
                    conditionals.add_id("conditional", node, nodes.len())?;
                    if node.get("true_next").is_none() && node.get("false_next").is_none() {
                        // Both branches end the pipeline.
                        self.condition(&node.need("expression")?)?;
                    }
                    Node::Conditional {
                        name: node.name()?.to_string(),
                        condition: self.condition(&node.need("expression")?)?,
                        location: self.locations.of(node)?,
                        then: next(node, "true_next", &names)?,
                        other: next(node, "false_next", &names)?,
                    }
                }
                _ => {
                    action_calls.add_id("action call", node, nodes.len())?;
                    let id = node.need("action_id")?;
                    let action = self.actions.with_id("action", &id)?;
                    if !self.m.actions[action].params.is_empty() {
                        return id
                            .fail(codes::CONTRADICTION, "an action with parameters is called from the control flow");
                    }
                    Node::Action { action, next: next(node, "next_node", &names)? }
                }
            });
        }
        let first = next(&object, "init_table", &names)?;
        if let Some(node) = cycle(&nodes) {
            let name = objects[node].1.name()?;
            return objects[node].1.fail(codes::CYCLE, format!("the control flow has a cycle through `{name}`"));
        }
        Ok(Pipeline { nodes, first })
    }

    fn profile(&mut self, object: &At<'_>) -> Read<()> {
        let index = self.m.profiles.len();
        self.profiles.add("action profile", object, index)?;
        let location = self.locations.of(object)?;
        let size = object.get("max_size").map(|s| s.number()).transpose()?;
        let size = size.filter(|s| *s > 0).map_or(TABLE_SIZE, u64::from);
        let selector = match object.get("selector") {
            Some(selector) => Some(self.selector(&selector)?),
            None => None,
        };
        self.m.profiles.push(Profile { name: object.name()?.to_string(), location, size, selector });
        Ok(())
    }

    fn table(&mut self, object: &At<'_>, names: &Names) -> Read<Table> {
        let name = object.name()?.to_string();
        let location = self.locations.of(object)?;
        let mut keys = Vec::new();
        for key in object.list_of("key")? {
            keys.push(self.key(&key)?);
        }
        if let Some(kind) = object.get("match_type") {
            let strength = |kind: &str| ["exact", "lpm", "ternary", "range"].iter().position(|k| *k == kind);
            let text = kind.text()?;
            let Some(most) = strength(if text == "optional" { "ternary" } else { text }) else {
                return kind.fail(codes::UNSUPPORTED, format!("match type `{text}` is not supported"));
            };
            let of_key =
                |key: &Key| strength(if key.kind == MatchKind::Optional { "ternary" } else { key.kind.name() });
            if let Some(key) = keys.iter().find(|key| of_key(key) > Some(most)) {
                let message =
                    format!("a table of match type `{text}` has the `{}` key `{}`", key.kind.name(), key.name);
                return kind.fail(codes::CONTRADICTION, message);
            }
        }
        if keys.iter().filter(|k| k.kind == MatchKind::Lpm).count() > 1 {
            return object.need("key")?.fail(codes::CONTRADICTION, "two `lpm` keys: no prefix is the longest");
        }
        let (actions, action_names) = self.table_actions(object)?;
        let next = table_next(object, &actions, &action_names, names)?;
        let ty = object.get("type").map_or(Ok("simple"), |t| t.text())?;
        let profile = match ty {
            "simple" => match object.get("action_profile") {
                Some(at) => return at.fail(codes::CONTRADICTION, "a table of type `simple` has no action profile"),
                None => None,
            },
            "indirect" | "indirect_ws" => {
                let at = match object.get("action_profile") {
                    Some(at) => at,
                    None => match object.get("act_prof_name") {
                        Some(at) => {
                            self.own_profile(object, &at)?;
                            at
                        }
                        None => object.need("action_profile")?,
                    },
                };
                let profile = self.profiles.named("action profile", &at)?;
                if (ty == "indirect_ws") != self.m.profiles[profile].selector.is_some() {
                    return at.fail(codes::CONTRADICTION, format!("a table of type `{ty}` with this action profile"));
                }
                Some(profile)
            }
            other => {
                return object
                    .need("type")?
                    .fail(codes::UNSUPPORTED, format!("tables of type `{other}` are not supported"));
            }
        };
        let positions: HashMap<usize, usize> = actions.iter().enumerate().rev().map(|(at, a)| (*a, at)).collect();
        let position = |id: &At<'_>| -> Read<usize> {
            let action = self.actions.with_id("action", id)?;
            match positions.get(&action) {
                Some(position) => Ok(*position),
                None => id.fail(codes::CONTRADICTION, "the action is not one of the table's"),
            }
        };
        let (mut default, mut const_default, mut const_action) = (None, false, false);
        if let Some(entry) = object.get("default_entry") {
            let id = entry.need("action_id")?;
            let at = position(&id)?;
            const_action = entry.flag("action_const", false)?;
            const_default = entry.flag("action_entry_const", false)? || const_action;
            let args = self.arguments(&entry, actions[at])?;
            default = Some((at, args));
        }
        let size = object.get("max_size").map(|s| s.number()).transpose()?.filter(|s| *s > 0);
        let entries = match object.get("entries") {
            None => None,
            Some(list) => {
                if profile.is_some() {
                    return list.fail(codes::CONTRADICTION, "entries in a table with an action profile");
                }
                let mut entries = Vec::new();
                for entry in list.list()? {
                    let call = entry.need("action_entry")?;
                    let action = position(&call.need("action_id")?)?;
                    entries.push(Entry {
                        key: entry_key(&entry.need("match_key")?, &keys)?,
                        priority: entry.get("priority").map_or(Ok(0), |p| p.number())?,
                        action,
                        args: self.arguments(&call, actions[action])?,
                    });
                }
                Some(entries)
            }
        };
        let size = match &entries {
            Some(entries) => entries.len() as u64,
            None => size.map_or(TABLE_SIZE, u64::from),
        };
        let meter = match object.get("direct_meters") {
            Some(at) => {
                let meter = self.meters.named("meter array", &at)?;
                if !self.m.meters[meter].direct {
                    return at.fail(codes::CONTRADICTION, "this meter array is not one of a table");
                }
                Some(meter)
            }
            None => None,
        };
        let with_counters = object.flag("with_counters", false)?;
        let idle_timeout = object.flag("support_timeout", false)?;
        let plain = meter.is_none() && profile.is_none() && entries.is_none() && !with_counters && !idle_timeout;
        let sole_action = keys.is_empty() && actions.len() == 1 && default.is_some() && const_action;
        let hidden = plain && sole_action && name.starts_with(HIDDEN_PREFIX);
        Ok(Table {
            name,
            location,
            keys,
            actions,
            next,
            default,
            const_default,
            entries,
            size,
            with_counters,
            idle_timeout,
            meter,
            profile,
            hidden,
        })
    }

    fn selector(&self, object: &At<'_>) -> Read<Selector> {
        let algo = object.need("algo")?;
        let input = object.need("input")?.list()?;
        // Only a calculation has a name by which the Toeplitz key can be set: a selector's key stays zero, and so does
        // its hash of any data.
        if algo.text()? == "toeplitz" {
            return Ok(Selector { algorithm: HashAlgorithm::Identity, input: Vec::new() });
        }
        let algorithm = algorithm(&algo)?;
        if algorithm == HashAlgorithm::Random {
            return algo.fail(codes::UNSUPPORTED, "a selector cannot choose at random: a flow stays together");
        }
        let mut fields = Vec::new();
        for part in input {
            let ty = part.need("type")?;
            if ty.text()? != "field" {
                return ty.fail(codes::UNSUPPORTED, "a selector's input has fields only");
            }
            fields.extend(self.fixed_or_empty(&part.need("value")?)?);
        }
        Ok(Selector { algorithm, input: fields })
    }

    /// Old JSON: the table has an action profile of its own.
    fn own_profile(&mut self, object: &At<'_>, name: &At<'_>) -> Read<()> {
        let text = name.text()?.to_string();
        if self.profiles.get(&text).is_some() {
            return Ok(());
        }
        let selector = match object.get("selector") {
            Some(selector) => Some(self.selector(&selector)?),
            None => None,
        };
        let index = self.m.profiles.len();
        self.profiles.add_name(&text, index);
        self.m.profiles.push(Profile { name: text, location: Default::default(), size: TABLE_SIZE, selector });
        Ok(())
    }

    /// The actions of a table, and their names in `next_tables`.
    fn table_actions(&self, object: &At<'_>) -> Read<(Vec<usize>, Vec<String>)> {
        let mut actions = Vec::new();
        let list = match object.get("action_ids") {
            Some(ids) => {
                for id in ids.list()? {
                    let action = self.actions.with_id("action", &id)?;
                    actions.push(action);
                }
                if let Some(names) = object.get("actions") {
                    self.are_named(&actions, &names)?;
                }
                ids
            }
            None => {
                let names = object.need("actions")?;
                for name in names.list()? {
                    let text = name.text()?;
                    match self.m.actions.iter().position(|a| a.name == text) {
                        Some(action) => actions.push(action),
                        None => return name.fail(codes::UNKNOWN, format!("there is no action `{text}`")),
                    }
                }
                names
            }
        };
        let names: Vec<String> = actions.iter().map(|a| self.m.actions[*a].name.clone()).collect();
        for (i, name) in names.iter().enumerate() {
            if names[..i].contains(name) {
                return list.fail(codes::TWICE, format!("the table has two actions `{name}`"));
            }
        }
        if actions.is_empty() {
            return list.fail(codes::RANGE, "a table without actions");
        }
        Ok((actions, names))
    }

    /// Refuses names other than those of the actions.
    fn are_named(&self, actions: &[usize], names: &At<'_>) -> Read<()> {
        let list = names.list()?;
        if list.len() != actions.len() {
            let message = format!("{} names for the {} actions of `action_ids`", list.len(), actions.len());
            return names.fail(codes::CONTRADICTION, message);
        }
        for (name, action) in list.iter().zip(actions) {
            let other = &self.m.actions[*action].name;
            if name.text()? != other {
                return name.fail(codes::CONTRADICTION, format!("`action_ids` has action `{other}` here"));
            }
        }
        Ok(())
    }

    /// The arguments of an action.
    fn arguments(&self, call: &At<'_>, action: usize) -> Read<Vec<Bits>> {
        let list = call.need("action_data")?;
        let values = list.list()?;
        let params = &self.m.actions[action].params;
        if values.len() != params.len() {
            let message = format!("{} arguments for an action with {} parameters", values.len(), params.len());
            return list.fail(codes::CONTRADICTION, message);
        }
        let mut args = Vec::new();
        for (value, (name, width)) in values.iter().zip(params) {
            let number = hex(value)?;
            let bits = Bits::from_bigint(*width, &number);
            if number >= BigInt::ZERO && BigInt::from(bits.to_biguint()) != number {
                return value.fail(codes::RANGE, format!("{number} does not fit parameter `{name}` of {width} bits"));
            }
            args.push(bits);
        }
        Ok(args)
    }

    fn key(&self, key: &At<'_>) -> Read<Key> {
        let kind = key.need("match_type")?;
        let target = key.need("target")?;
        let match_kind = match kind.text()? {
            "exact" | "valid" => MatchKind::Exact,
            "lpm" => MatchKind::Lpm,
            "ternary" => MatchKind::Ternary,
            "range" => MatchKind::Range,
            "optional" => MatchKind::Optional,
            other => return kind.fail(codes::UNSUPPORTED, format!("match type `{other}` is not supported")),
        };
        let mut empty = false;
        let (value, width, own_name) = if kind.text()? == "valid" {
            // A header is given by its name; older compilers wrote a pair.
            let header = match target.is_list() {
                true => target.tuple::<2>()?[0].clone(),
                false => target.clone(),
            };
            let index = self.headers.named("header", &header)?;
            (Expr::ValidField(index), 1, format!("{}.$valid$", header.text()?))
        } else if target.is_object() {
            let value = self.number(&target)?;
            let Some(width) = self.width_of(&value) else {
                return target.fail(codes::UNSUPPORTED, "a key is a field or the validity of a header");
            };
            (value, width, format!("key {}", target.path()))
        } else {
            let [header, field] = target.tuple()?;
            if field.text()? == "$valid$" {
                let index = self.headers.named("header", &header)?;
                (Expr::ValidField(index), 1, format!("{}.$valid$", header.text()?))
            } else {
                match self.fixed_or_empty(&target)? {
                    Some(field) => (Expr::Field(field), self.m.field(field).width, self.m.field_name(field)),
                    None => {
                        empty = true;
                        (Expr::Number(BigInt::ZERO), 1, format!("{}.{}", header.text()?, field.text()?))
                    }
                }
            }
        };
        let mask = match key.get("mask") {
            Some(mask) => Some(Bits::from_bigint(width, &hex(&mask)?)).filter(|m| !empty && *m != Bits::ones(width)),
            None => None,
        };
        let name = key.get("name").map_or(Ok(own_name.as_str()), |n| n.text())?.to_string();
        Ok(Key { name, kind: match_kind, width, value, mask, empty })
    }
}

/// The node that an attribute names; `None` ends the pipeline.
fn next(object: &At<'_>, attribute: &str, names: &Names) -> Read<Option<usize>> {
    object.get(attribute).map(|at| names.named("node", &at)).transpose()
}

fn table_next(object: &At<'_>, actions: &[usize], action_names: &[String], names: &Names) -> Read<Next> {
    let nodes = object.need("next_tables")?;
    if !nodes.is_object() {
        return nodes.fail(codes::SHAPE, "`next_tables` is an object");
    }
    if nodes.has("__HIT__") || nodes.has("__MISS__") {
        return Ok(Next::HitMiss(next(&nodes, "__HIT__", names)?, next(&nodes, "__MISS__", names)?));
    }
    let mut targets = Vec::with_capacity(actions.len());
    for name in action_names {
        if !nodes.has(name) {
            return nodes.fail(codes::CONTRADICTION, format!("nothing follows action `{name}`"));
        }
        targets.push(next(&nodes, name, names)?);
    }
    Ok(Next::Actions(targets, next(object, "base_default_next", names)?))
}

/// The key of an entry. Values are in whole bytes; bits beyond the key's width are ignored.
fn entry_key(list: &At<'_>, keys: &[Key]) -> Read<Vec<KeyMatch>> {
    let fields = list.list()?;
    if fields.len() != keys.len() {
        return list.fail(codes::CONTRADICTION, format!("{} key fields for a key of {}", fields.len(), keys.len()));
    }
    let mut key = Vec::new();
    for (field, of) in fields.iter().zip(keys) {
        let kind = field.need("match_type")?;
        let bits = |name: &str| -> Read<Bits> {
            let at = field.need(name)?;
            if of.empty {
                at.text()?;
                return Ok(Bits::zero(of.width));
            }
            let number = hex(&at)?;
            let bytes = u64::from(of.width).div_ceil(8);
            if number < BigInt::ZERO || number.bits() > bytes * 8 {
                return at.fail(codes::RANGE, format!("more than the {bytes} bytes of key `{}`", of.name));
            }
            Ok(Bits::from_bigint(of.width, &number))
        };
        key.push(match (kind.text()?, of.kind) {
            ("exact", MatchKind::Exact) => KeyMatch::Exact(bits("key")?),
            ("valid", MatchKind::Exact) => {
                KeyMatch::Exact(Bits::from_bool(field.need("key")?.boolean()?).resize_u(of.width))
            }
            ("lpm", MatchKind::Lpm) => {
                let length = field.need("prefix_length")?;
                let prefix_len = length.number()?;
                let Some(rest) = of.width.checked_sub(prefix_len) else {
                    return length.fail(codes::RANGE, format!("a prefix of {prefix_len} of {} bits", of.width));
                };
                let value = bits("key")?.lshr(rest.into()).shl(rest.into());
                KeyMatch::Lpm { value, prefix_len }
            }
            ("ternary", MatchKind::Ternary) => {
                let mask = bits("mask")?;
                KeyMatch::Ternary { value: bits("key")?.and(&mask), mask }
            }
            ("range", MatchKind::Range) => {
                let (low, high) = (bits("start")?, bits("end")?);
                if high.ult(&low) {
                    return field.fail(codes::RANGE, "a range that ends before it starts");
                }
                KeyMatch::Range { low, high }
            }
            ("optional", MatchKind::Optional) => KeyMatch::Optional(field.get("key").map(|_| bits("key")).transpose()?),
            (found, wanted) => {
                return kind.fail(codes::CONTRADICTION, format!("`{found}` for a key that is `{}`", wanted.name()));
            }
        });
    }
    Ok(key)
}

/// A node on a cycle of the control flow. Iterative, since chains may be long.
fn cycle(nodes: &[Node]) -> Option<usize> {
    let successors = |node: usize| -> Vec<usize> {
        match &nodes[node] {
            Node::Table(table) => match &table.next {
                Next::HitMiss(hit, miss) => [*hit, *miss].into_iter().flatten().collect(),
                Next::Actions(next, miss) => next.iter().chain([miss]).copied().flatten().collect(),
            },
            Node::Conditional { then, other, .. } => [*then, *other].into_iter().flatten().collect(),
            Node::Action { next, .. } => next.iter().copied().collect(),
        }
    };
    // 0 unseen, 1 on the current path, 2 done.
    let mut state = vec![0u8; nodes.len()];
    for start in 0..nodes.len() {
        if state[start] != 0 {
            continue;
        }
        let mut path = vec![(start, successors(start))];
        state[start] = 1;
        while let Some((node, rest)) = path.last_mut() {
            match rest.pop() {
                None => {
                    state[*node] = 2;
                    path.pop();
                }
                Some(next) if state[next] == 1 => return Some(next),
                Some(next) if state[next] == 0 => {
                    state[next] = 1;
                    path.push((next, successors(next)));
                }
                Some(_) => {}
            }
        }
    }
    None
}
