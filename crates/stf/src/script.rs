//! Parser of scripts: one command per line, `#` starts a comment. The commands of p4c's STF:
//!
//! ```text
//! packet PORT HEX                         a frame arrives; spaces in HEX are ignored
//! expect PORT [HEX]                       a frame leaves: `*` matches any nibble, a `$` at the end means «and no more
//!                                         bytes»; without HEX: any number of any frames
//! no_packet                               the last packet caused no output
//! wait [MICROSECONDS]                     the clock advances (one second)
//! add TABLE [PRIORITY] KEY:VALUE... ACTION(ARG:VALUE, ...)
//! setdefault TABLE ACTION(ARG:VALUE, ...)
//! mc_mgrp_create GROUP | mc_node_create RID PORT... | mc_node_associate GROUP NODE | mc_node_update NODE PORT...
//! mirroring_add SESSION PORT | mirroring_add_mc SESSION GROUP | mirroring_delete SESSION | mirroring_get SESSION
//! register_write NAME INDEX VALUE | register_read NAME INDEX | register_reset NAME
//! counter_write NAME INDEX PACKETS BYTES | counter_read NAME INDEX
//! meter_set_rates NAME INDEX RATE:BURST RATE:BURST | meter_array_set_rates NAME RATE:BURST RATE:BURST
//! meter_get_rates NAME INDEX              rates in units per microsecond, the committed rate first
//! check_counter NAME(INDEX) [packets|bytes ==|!=|<|<=|>|>= NUMBER]
//! check_counter NAME($HANDLE) ...         the counter of the entry that `add ... = $HANDLE` created
//! ```
//!
//! Any name may be written in double quotes and may then contain any character; names of parameters, too. Without
//! quotes a name ends at white space, and that of a key at its colon.
//!
//! A VALUE is a number (decimal, `0x`, `0b`, `0o`), a number with `*` for nibbles or bits that are not compared, or
//! `VALUE/PREFIX_LENGTH`. Extensions of this project: `VALUE&&&MASK`, `LOW..HIGH`, a single `*`, IPv4 addresses such as
//! `10.0.0.1`, MAC addresses such as `02:00:00:00:00:01` without quotes after the key's colon; and
//!
//! ```text
//! set TABLE [PRIORITY] KEY:VALUE... ACTION(...)   adds an entry or changes the existing one; `modify` only changes
//! delete TABLE [PRIORITY] KEY:VALUE...            clear TABLE: removes all entries that are not constant
//! member PROFILE ID ACTION(ARG:VALUE, ...)        group PROFILE ID [max_size=N] MEMBER[:WEIGHT][@PORT]...
//! add TABLE KEY:VALUE... member(ID)               add TABLE KEY:VALUE... group(ID)
//! add TABLE KEY:VALUE... one_of(ACTION(...) [*WEIGHT] [@PORT]; ...) [mode=hash|random] [size=weights|members]
//!                                                 `first ACTION(...)`: the group action, which runs before the
//!                                                 selected one
//! multicast GROUP PORT[:INSTANCE][|PORT[:INSTANCE]]... [metadata=0xHEX]     a `|` precedes a backup of the replica
//! clone SESSION PORT[:INSTANCE][|PORT[:INSTANCE]]... [class_of_service=N] [packet_length=BYTES]
//! value_set NAME VALUE...                       one or several members: a value for each field, member by member
//! digest NAME [max_timeout=TIME] [max_list_size=N] [ack_timeout=TIME]
//! meter_write NAME INDEX CIR CBURST PIR PBURST [EBURST]                     units per second
//! expect_register NAME INDEX VALUE             a check
//! expect_digest NAME [VALUE...]                the oldest digest message not yet checked
//! expect_log TEXT                              the oldest line of the log not yet checked
//! check_drops "REASON" ==|!=|<|<=|>|>= NUMBER  packets dropped for a reason
//! set_crc16_parameters [CALCULATION] POLYNOMIAL INITIAL XOR_OUT REFLECT_IN REFLECT_OUT
//!                                                  sets the parameters of a calculation (or of all custom CRCs);
//! set_crc32_parameters ...                         the last two are true or false
//! set_toeplitz_key [CALCULATION] HEX               the key of a Toeplitz hash (or of all)
//! ```
//!
//! After the action of an entry, a line may have `metadata=0xHEX`, `timeout=TIME` (the idle timeout),
//! `meter=CIR,CBURST,PIR,PBURST[,EBURST]` and `counter=PACKETS,BYTES`; a `setdefault` all but the timeout. A TIME is an
//! integer with `ns`, `us`, `ms` or `s`. An INDEX of `register_write`, `counter_write` and `meter_write` may be `all`.

mod command;
mod parts;

use parts::*;

pub use command::*;
pub use parts::time_text;
pub(crate) use parts::{number, radix_of};

/// Parses a whole script.
///
/// # Errors
///
/// All lines that are wrong.
pub fn parse(text: &str) -> Result<Vec<Line>, Vec<ScriptError>> {
    let mut lines = Vec::new();
    let mut errors = Vec::new();
    for (i, raw) in text.lines().enumerate() {
        let line = match outside_quotes(raw, |c| c == '#') {
            Some(comment) => &raw[..comment],
            None => raw,
        };
        let line = line.trim();
        if line.is_empty() {
            continue;
        }
        match command(line) {
            Ok(command) => lines.push(Line { number: i + 1, command }),
            Err(message) => errors.push(ScriptError { line: i + 1, message }),
        }
    }
    if errors.is_empty() { Ok(lines) } else { Err(errors) }
}

fn command(line: &str) -> Result<Command, String> {
    let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let rest = rest.trim();
    let words: Vec<&str> = words_of(rest);
    let arg = |i: usize, what: &str| words.get(i).copied().ok_or(format!("`{word}` needs {what}"));
    let num = |i: usize, what: &str| arg(i, what).and_then(|w| number(w, what));
    let small = |i: usize, what: &str| num(i, what).and_then(|n| narrow(n, what));
    let ports = |from: usize| {
        let list = words.get(from..).unwrap_or_default();
        list.iter().map(|w| number(w, "a port").and_then(|n| narrow(n, "a port"))).collect::<Result<Vec<u32>, _>>()
    };
    let at_most = |n: usize| match words.get(n) {
        None => Ok(()),
        Some(extra) => Err(format!("`{extra}` is one word too many for `{word}`")),
    };
    Ok(match word.to_ascii_lowercase().as_str() {
        "packet" => {
            let (port, data) = port_and_data(rest)?;
            let data: String = data.split_whitespace().collect();
            if data.is_empty() {
                return Err(format!("`packet {port}` has no bytes: write them in hexadecimal behind the port"));
            }
            let nibbles = nibbles(&data)?;
            let bytes: Option<Vec<u8>> = nibbles.chunks(2).map(|c| Some(c[0]? << 4 | c.get(1).copied()??)).collect();
            let frame = bytes.ok_or_else(|| match nibbles.contains(&None) {
                true => "a packet has no `*`: all its digits are sent".to_string(),
                false => format!("a packet is whole bytes, and this has {} hexadecimal digits", nibbles.len()),
            })?;
            Command::Packet { port, frame }
        }
        "expect" => {
            let (port, data) = port_and_data(rest)?;
            let data: String = data.split_whitespace().collect();
            let frame = match data.strip_suffix('$') {
                _ if data.is_empty() => None,
                Some(exact) => Some(Pattern { nibbles: nibbles(exact)?, exact_length: true }),
                None => Some(Pattern { nibbles: nibbles(&data)?, exact_length: false }),
            };
            Command::Expect { port, frame }
        }
        "no_packet" => Command::NoPacket,
        "wait" => Command::Wait { microseconds: if words.is_empty() { 1_000_000 } else { num(0, "microseconds")? } },
        verb @ ("add" | "set" | "modify") => {
            let verb = match verb {
                "add" => EntryVerb::Add,
                "set" => EntryVerb::Set,
                _ => EntryVerb::Modify,
            };
            let TableLine { table, priority, key, action, options, handle } = table_line(rest)?;
            let action = action.ok_or(format!("`{word}` needs an action with parentheses at the end"))?;
            Command::Entry { verb, table, priority, key, action, options, handle }
        }
        "clear" => {
            at_most(1)?;
            Command::Clear { table: name(arg(0, "a table")?)? }
        }
        "delete" => {
            let TableLine { table, priority, key, action, .. } = table_line(rest)?;
            if let Some(action) = action {
                return Err(format!("`delete` takes no action, but there is `{}`", action.name));
            }
            Command::Delete { table, priority, key }
        }
        "setdefault" => {
            let table = arg(0, "a table and an action")?;
            let action = rest[table.len()..].trim();
            if action.is_empty() {
                return Err("`setdefault` needs a table and an action".to_string());
            }
            let (action, options, _) = split_behind(action)?;
            Command::SetDefault { table: name(table)?, action: action_text(action)?, options }
        }
        "member" => Command::Member {
            profile: name(arg(0, "an action profile")?)?,
            id: small(1, "a member id")?,
            action: match words.get(2..).unwrap_or_default() {
                [] => None,
                action => Some(action_text(action.join(" ").trim())?),
            },
        },
        "group" => {
            let (profile, id) = (name(arg(0, "an action selector")?)?, small(1, "a group id")?);
            let (options, members) = split_options(words.get(2..).unwrap_or_default());
            let mut max_size = 0;
            for (key, value) in options {
                match key {
                    "max_size" => max_size = narrow(number(value, "a size")?, "a size")?,
                    _ => return Err(no_option(word, key, &["max_size"])),
                }
            }
            Command::Group {
                profile,
                id,
                max_size,
                members: members.into_iter().map(group_part).collect::<Result<_, _>>()?,
            }
        }
        "multicast" => {
            let (options, copies) = split_options(words.get(1..).unwrap_or_default());
            let mut metadata = Vec::new();
            for (key, value) in options {
                match key {
                    "metadata" => metadata = bytes_of(value)?,
                    _ => return Err(no_option(word, key, &["metadata"])),
                }
            }
            let replicas = copies.into_iter().map(replica).collect::<Result<_, _>>()?;
            Command::Multicast { group: small(0, "a multicast group")?, replicas, metadata }
        }
        "clone" => {
            let (options, copies) = split_options(words.get(1..).unwrap_or_default());
            let (mut class_of_service, mut packet_length_bytes) = (0, 0);
            for (key, value) in options {
                match key {
                    "class_of_service" => class_of_service = narrow(number(value, "a class")?, "a class")?,
                    "packet_length" => packet_length_bytes = narrow(number(value, "a length")?, "a length")?,
                    _ => return Err(no_option(word, key, &["class_of_service", "packet_length"])),
                }
            }
            let replicas = copies.into_iter().map(replica).collect::<Result<_, _>>()?;
            Command::Clone { session: small(0, "a session")?, replicas, class_of_service, packet_length_bytes }
        }
        "digest" => {
            let (options, rest) = split_options(words.get(1..).unwrap_or_default());
            if let Some(extra) = rest.first() {
                return Err(format!("`{extra}` is one word too many for `digest`"));
            }
            let (mut max_timeout_ns, mut max_list_size, mut ack_timeout_ns) = (0, 0, 0);
            for (key, value) in options {
                match key {
                    "max_timeout" => max_timeout_ns = time_ns(value)?,
                    "max_list_size" => max_list_size = narrow(number(value, "a size")?, "a size")?,
                    "ack_timeout" => ack_timeout_ns = time_ns(value)?,
                    _ => return Err(no_option(word, key, &["max_timeout", "max_list_size", "ack_timeout"])),
                }
            }
            Command::Digest { name: name(arg(0, "a digest")?)?, max_timeout_ns, max_list_size, ack_timeout_ns }
        }
        "value_set" => Command::ValueSet {
            name: name(arg(0, "a value set")?)?,
            values: words.get(1..).unwrap_or_default().iter().map(|w| w.to_string()).collect(),
        },
        "mc_mgrp_create" => {
            at_most(1)?;
            Command::GroupCreate { group: small(0, "a multicast group")? }
        }
        "mc_node_create" => Command::NodeCreate { rid: small(0, "a replica id")?, ports: ports(1)? },
        "mc_node_update" => Command::NodeUpdate { node: small(0, "a node")?, ports: ports(1)? },
        "mc_node_associate" => {
            at_most(2)?;
            Command::NodeAssociate { group: small(0, "a multicast group")?, node: small(1, "a node")? }
        }
        "mirroring_add" => {
            at_most(2)?;
            Command::MirroringAdd { session: small(0, "a session")?, port: small(1, "a port")? }
        }
        "mirroring_add_mc" => {
            at_most(2)?;
            Command::MirroringAddGroup { session: small(0, "a session")?, group: small(1, "a multicast group")? }
        }
        "mirroring_delete" => Command::MirroringDelete { session: small(0, "a session")? },
        "mirroring_get" => Command::MirroringGet { session: small(0, "a session")? },
        "register_write" => Command::RegisterWrite {
            name: name(arg(0, "a register")?)?,
            index: index_or_all(arg(1, "an index")?)?,
            values: match words.get(2..).unwrap_or_default() {
                [] => return Err(format!("`{word}` needs a value")),
                values => values.iter().map(|w| w.to_string()).collect(),
            },
        },
        "register_read" => Command::RegisterRead { name: name(arg(0, "a register")?)?, index: num(1, "an index")? },
        "register_reset" => Command::RegisterReset { name: name(arg(0, "a register")?)? },
        "counter_write" => Command::CounterWrite {
            name: name(arg(0, "a counter")?)?,
            index: index_or_all(arg(1, "an index")?)?,
            packets: num(2, "packets")?,
            bytes: num(3, "bytes")?,
        },
        "counter_read" => Command::CounterRead { name: name(arg(0, "a counter")?)?, index: num(1, "an index")? },
        "meter_set_rates" => Command::MeterSetRates {
            name: name(arg(0, "a meter")?)?,
            index: Some(num(1, "an index")?),
            rates: rates(words.get(2..).unwrap_or_default())?,
        },
        "meter_array_set_rates" => Command::MeterSetRates {
            name: name(arg(0, "a meter")?)?,
            index: None,
            rates: rates(words.get(1..).unwrap_or_default())?,
        },
        "meter_write" => {
            let [cir, cburst, pir, pburst, eburst @ ..] = words.get(2..).unwrap_or_default() else {
                return Err("`meter_write` needs NAME INDEX CIR CBURST PIR PBURST [EBURST]".to_string());
            };
            at_most(7)?;
            let figures = [*cir, *cburst, *pir, *pburst, eburst.first().copied().unwrap_or("0")];
            Command::MeterWrite {
                name: name(arg(0, "a meter")?)?,
                index: index_or_all(arg(1, "an index")?)?,
                rates: meter_rates(&figures)?,
            }
        }
        "meter_get_rates" => Command::MeterGetRates { name: name(arg(0, "a meter")?)?, index: num(1, "an index")? },
        "check_counter" => check_counter(rest)?,
        "expect_register" => Command::ExpectRegister {
            name: name(arg(0, "a register")?)?,
            index: num(1, "an index")?,
            value: arg(2, "a value")?.to_string(),
        },
        "expect_digest" => Command::ExpectDigest {
            name: name(arg(0, "a digest")?)?,
            values: words.get(1..).unwrap_or_default().iter().map(|w| w.to_string()).collect(),
        },
        "expect_log" => Command::ExpectLog { text: rest.trim().to_string() },
        "check_drops" => check_drops(rest)?,
        "set_crc16_parameters" => set_crc(16, &words)?,
        "set_crc32_parameters" => set_crc(32, &words)?,
        "set_toeplitz_key" => set_toeplitz_key(&words)?,
        other => return Err(format!("there is no command `{other}`")),
    })
}

#[cfg(test)]
mod tests;
