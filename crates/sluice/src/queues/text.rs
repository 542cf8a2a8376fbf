//! Queue configs as text: parses JSON, with line, column and path of errors, and prints JSON or a tree.
//!
//! serde reports the line and column at which it stopped; a scan of the text up to there finds the path of the setting.
//! Tests: below.

use serde::de::DeserializeOwned;
use traffic::{Config, Ecn, Kind, Level, Limit, Node, Policy, Problem, Size, TenantConfig};

/// The longest text, in bytes. A config of 64 queues with every setting takes about ten thousand bytes; the rest is
/// room for white space.
pub const BYTES_MAX: usize = 256 << 10;

/// Parses a config without checking that its settings are consistent.
///
/// # Errors
/// If the text is too long, is not JSON, or is no config; the message names line, column and path.
pub fn parse(text: &str) -> Result<Config, String> {
    read(text)
}

/// The same for a tenant.
///
/// # Errors
/// As [`parse`].
pub fn parse_tenant(text: &str) -> Result<TenantConfig, String> {
    read(text)
}

fn read<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    if text.len() > BYTES_MAX {
        return Err(format!("{} bytes; a config of queues has at most {BYTES_MAX}", text.len()));
    }
    serde_json::from_str(text).map_err(|error| {
        let message = error.to_string();
        // Drop serde's own position; it is added in another form below.
        let message = message.rsplit_once(" at line ").map_or(message.as_str(), |(message, _)| message);
        if error.line() == 0 {
            return message.to_string();
        }
        let path = path_at(text, error.line(), error.column());
        let path = if path.is_empty() { String::new() } else { format!("{path}: ") };
        format!("line {}, column {}: {path}{message}", error.line(), error.column())
    })
}

/// Returns the config as JSON on one line.
pub fn to_text(config: &Config) -> String {
    serde_json::to_string(config).unwrap_or_default()
}

/// The same for a tenant.
pub fn tenant_to_text(config: &TenantConfig) -> String {
    serde_json::to_string(config).unwrap_or_default()
}

/// Formats problems, one on each line.
pub fn problems(problems: &[Problem]) -> String {
    problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

/// Returns the path of the setting at a position in a JSON text: `root.strict[1].weight`.
fn path_at(text: &str, line: usize, column: usize) -> String {
    enum Inside {
        Object(String),
        Array(usize),
    }
    let before: usize = text.split_inclusive('\n').take(line.saturating_sub(1)).map(str::len).sum();
    let end = (before + column).min(text.len());
    let mut stack: Vec<Inside> = Vec::new();
    // serde reports a wrong element after its end.
    let read = text.as_bytes()[..end].trim_ascii_end();
    let read = read.strip_suffix(b",").or(read.strip_suffix(b"]")).unwrap_or(read);
    let mut bytes = read.iter().copied();
    let mut string = Vec::new();
    let mut is_key = false;
    while let Some(byte) = bytes.next() {
        match byte {
            b'{' => {
                stack.push(Inside::Object(String::new()));
                is_key = true;
            }
            b'[' => stack.push(Inside::Array(0)),
            b'}' | b']' => drop(stack.pop()),
            b',' => match stack.last_mut() {
                Some(Inside::Array(at)) => *at += 1,
                Some(Inside::Object(key)) => {
                    key.clear();
                    is_key = true;
                }
                None => {}
            },
            b':' => is_key = false,
            b'"' => {
                string.clear();
                while let Some(byte) = bytes.next().filter(|byte| *byte != b'"') {
                    string.push(byte);
                    if byte == b'\\' {
                        string.extend(bytes.next());
                    }
                }
                if let Some(Inside::Object(key)) = stack.last_mut().filter(|_| is_key) {
                    *key = String::from_utf8_lossy(&string).into_owned();
                }
            }
            _ => {}
        }
    }
    let mut path = String::new();
    for level in stack {
        match level {
            Inside::Object(key) if key.is_empty() => {}
            Inside::Object(key) => {
                path += if path.is_empty() { "" } else { "." };
                path += &key;
            }
            Inside::Array(at) => path += &format!("[{at}]"),
        }
    }
    path
}

/// Returns the tree of schedulers and queues, one on each line.
pub fn tree(config: &Config) -> Vec<String> {
    let mut lines = Vec::new();
    node(config, &config.root, 0, false, &mut lines);
    if !config.classes.is_empty() {
        let classes: Vec<String> = config.classes.iter().map(|(class, queue)| format!("{class} to {queue}")).collect();
        lines.push(format!("classes to queues: {}", classes.join(", ")));
    }
    if let Some(tenant) = &config.tenant {
        lines.push(format!("all queues belong to tenant {tenant}"));
    }
    if config.overhead > 0 {
        lines.push(format!("each frame counts {} bytes more", config.overhead));
    }
    lines
}

fn node(config: &Config, node_: &Node, depth: usize, is_weighted: bool, lines: &mut Vec<String>) {
    let mut words = vec![match &node_.kind {
        Kind::Queue(number) => format!("queue {number}"),
        Kind::Strict(_) => "strict priority, the most urgent first".to_string(),
        Kind::Weighted(_) => "weighted round robin".to_string(),
    }];
    if is_weighted {
        words.push(format!("weight {}", node_.weight));
    }
    if let Some(shaper) = node_.shaper {
        words.push(format!("at most {}, burst {}", shaper.rate, Size(shaper.burst_bytes(config.frame_cost()))));
    }
    if let Some(shaper) = node_.packet_shaper {
        words.push(format!("at most {} packets/s, burst {}", shaper.packets_per_s, shaper.burst));
    }
    words.extend(node_.min_rate.map(|rate| format!("at least {rate}")));
    if let Kind::Queue(number) = node_.kind
        && let Some(queue) = config.queues.get(usize::from(number))
    {
        words.push(format!("limit {}", limit(&queue.limit)));
        words.extend(queue.tenant.as_ref().map(|tenant| format!("of tenant {tenant}")));
        if let Policy::Red(red) = &queue.policy {
            let marks = match red.ecn {
                Ecn::Off => "",
                Ecn::Mark => ", marks ECN",
                Ecn::MarkAlways => ", marks ECN up to the limit",
            };
            words.push(format!("RED from {} to {}{marks}", level(red.min), level(red.max)));
        }
    }
    lines.push(format!("{}{}", "  ".repeat(depth), words.join(", ")));
    let is_weighted = matches!(node_.kind, Kind::Weighted(_));
    node_.children().iter().for_each(|child| node(config, child, depth + 1, is_weighted, lines));
}

/// Formats a level with its unit.
fn level(level: Level) -> String {
    match level {
        Level::Packets(packets) => format!("{packets} packets"),
        level => level.to_string(),
    }
}

fn limit(limit: &Limit) -> String {
    let none = *limit == Limit::default();
    let packets = if none { Some(limit.packets_max()) } else { limit.packets };
    let packets = packets.map(|packets| level(Level::Packets(packets)));
    let all = [packets, limit.bytes.map(|bytes| bytes.to_string()), limit.time.map(|time| time.to_string())];
    all.into_iter().flatten().collect::<Vec<_>>().join(" or ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"{
        "queues": [ {}, { "limit": { "time": "5ms", "bytes": "64KB" } }, { "policy": { "red": { "min": "30KB", "max": "90KB", "ecn": "mark" } }, "tenant": "red" } ],
        "root": { "shaper": { "rate": "1Gbit", "burst": "64KB" },
                  "strict": [ { "queue": 2, "shaper": { "rate": "100Mbit" } },
                              { "weighted": [ { "queue": 1, "weight": 3 }, { "queue": 0, "min_rate": "10Mbit" } ] } ] },
        "classes": { "46": 2 } }"#;

    #[test]
    fn what_is_wrong_is_named_by_its_path() {
        let config = parse(GOOD).unwrap();
        assert_eq!(parse(&to_text(&config)), Ok(config));
        for (from, to, path, message) in [
            (r#""5ms""#, r#""5 parsecs""#, "queues[1].limit.time", "the unit `parsecs` is unknown"),
            (r#""time""#, r#""thyme""#, "queues[1].limit.thyme", "unknown field `thyme`, expected one of"),
            (r#""1Gbit""#, r#""1Gbps""#, "root.shaper.rate", "may mean bits or bytes per second"),
            (r#""weight": 3"#, r#""weight": "3""#, "root.strict[1].weighted[0].weight", "invalid type: string"),
            (r#"{ "queue": 1, "#, "{ ", "root.strict[1].weighted[0]", "a node needs one of"),
            (r#"{ "queue": 0, "min_rate": "10Mbit" }"#, "{}", "root.strict[1].weighted[1]", "a node needs one of"),
            (r#""mark""#, r#""marked""#, "queues[2].policy.red.ecn", "unknown variant `marked`, expected one of"),
            (r#""46": 2"#, r#""46": -2"#, "classes.46", "invalid value"),
        ] {
            assert!(GOOD.contains(from), "{from}");
            let wrong = parse(&GOOD.replacen(from, to, 1)).unwrap_err();
            assert!(wrong.starts_with("line ") && wrong.contains(&format!(": {path}")), "{to}: {wrong}");
            assert!(wrong.contains(message), "{to}: {wrong}");
        }
        for cut in (0..GOOD.len()).filter(|at| GOOD.is_char_boundary(*at)) {
            parse(&GOOD[..cut]).unwrap_err();
        }
        assert!(parse("{}").unwrap_err().contains("missing field `queues`"));
        assert!(parse(&" ".repeat(BYTES_MAX + 1)).unwrap_err().contains("at most"));
        assert!(parse(&"[".repeat(10_000)).is_err());
        assert!(parse(&format!(r#"{{"queues":[],"root":{}"#, r#"{"strict":["#.repeat(10_000))).is_err());
    }

    #[test]
    fn a_tree_is_told_in_lines() {
        let lines = tree(&parse(GOOD).unwrap());
        assert_eq!(
            lines,
            [
                "strict priority, the most urgent first, at most 1Gbit, burst 64KB",
                "  queue 2, at most 100Mbit, burst 12500B, limit 1024 packets, of tenant red, RED from 30KB to 90KB, marks ECN",
                "  weighted round robin",
                "    queue 1, weight 3, limit 64KB or 5ms",
                "    queue 0, weight 1, at least 10Mbit, limit 1024 packets",
                "classes to queues: 46 to 2",
            ]
        );
    }
}
