//! Access rights: the roles file, and the rules without one (`docs/access.md`).
//!
//! ```text
//! # WHO                            RIGHT        LIMITS
//! CN=ops                           admin
//! DNS=controller.example.net       p4runtime    devices=1,2 roles=default,sdn
//! "CN=Monitoring host"             read-only
//! uid:33                           read-only
//! *                                read-only    devices=1
//! ```
//!
//! WHO is a name in the peer's certificate (`CN`, `DNS`, `URI`, `EMAIL`, `IP`), a user of the Unix socket, or `*` for
//! every certificate. A peer has the rights of all lines that match it. Over TCP, a peer that no line matches may call
//! nothing. Over the Unix socket, whose file mode decides who can connect, a user that no line matches may call
//! everything.
//!
//! Without a file, every TCP peer may use P4Runtime, and none may use the admin service.
//!
//! Threads: any; the rules are replaced as a whole. Tests: below, `tests/py/test_access.py` with certificates.

use crate::peer::{Origin, Peer};
use crate::tls::read_bounded;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use tokio::sync::watch;

/// Limit on the rules of a file.
const RULES_MAX: usize = 4096;
/// The name of P4Runtime's default role in a file.
const DEFAULT_ROLE: &str = "default";

/// Why a roles file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    /// The file does not exist or is not readable.
    #[error("cannot read the roles file {}: {cause}", .file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// The reason.
        cause: std::io::Error,
    },
    /// A line is wrong.
    #[error("{}:{line}: {problem}", .file.display())]
    Bad {
        /// The file.
        file: PathBuf,
        /// The line's number, from 1.
        line: usize,
        /// What is wrong, and what would be valid.
        problem: String,
    },
}

/// The class of a call, by which rights are given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Reads over P4Runtime.
    Reads,
    /// Reads of counters, in the admin service.
    Counters,
    /// Changes over P4Runtime.
    P4Runtime,
    /// The rest of the admin service.
    Admin,
}

impl Kind {
    /// The kind of a method, by its path.
    pub fn of(path: &str) -> Kind {
        match path {
            "/p4.v1.P4Runtime/Read"
            | "/p4.v1.P4Runtime/GetForwardingPipelineConfig"
            | "/p4.v1.P4Runtime/Capabilities" => Kind::Reads,
            "/sluice.v1.Admin/Stats" => Kind::Counters,
            path if path.starts_with("/sluice.v1.Admin/") => Kind::Admin,
            _ => Kind::P4Runtime,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Debug)]
enum Right {
    ReadOnly,
    P4Runtime,
    Admin,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Who {
    Name(String),
    User(u32),
    AnyCertificate,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Rule {
    who: Who,
    right: Right,
    /// Device ids; `None` for all.
    devices: Option<BTreeSet<u64>>,
    /// Role names, or `id:N` for roles without a name; `None` for all.
    roles: Option<BTreeSet<String>>,
}

/// The device and role that a message names.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct About {
    /// The device.
    pub device: Option<u64>,
    /// The role's name, or `id:N`; `default` for the default role.
    pub role: Option<String>,
}

/// The access rules in force.
#[derive(Debug, Default)]
pub struct Access {
    file: Option<PathBuf>,
    rules: RwLock<Arc<Vec<Rule>>>,
    /// Signals that the rules were replaced: open streams are then checked again.
    changed: watch::Sender<()>,
}

impl Access {
    /// Reads a roles file.
    ///
    /// # Errors
    ///
    /// The file is unreadable or too long, or a line is wrong.
    pub fn load(file: &Path) -> Result<Access, AccessError> {
        let rules = read(file)?;
        Ok(Access { file: Some(file.to_path_buf()), rules: RwLock::new(Arc::new(rules)), ..Access::default() })
    }

    /// Reads the file again, if there is one.
    ///
    /// # Errors
    ///
    /// As for [`Access::load`]; the old rules then remain in force.
    pub fn reload(&self) -> Result<(), AccessError> {
        if let Some(file) = &self.file {
            let rules = Arc::new(read(file)?);
            *self.rules.write().unwrap_or_else(PoisonError::into_inner) = rules;
            self.changed.send_replace(());
        }
        Ok(())
    }

    /// Signals that the rules were replaced.
    pub(crate) fn watch(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// Whether there is a roles file.
    pub fn has_roles(&self) -> bool {
        self.file.is_some()
    }

    /// Checks whether a peer may call methods of this kind, for this device and role. The error explains why not.
    pub fn check(&self, peer: &Peer, kind: Kind, about: &About) -> Result<(), String> {
        let local = matches!(peer.origin, Origin::Unix { .. });
        if self.file.is_none() {
            return match kind {
                Kind::Admin | Kind::Counters if !local => Err("the admin service is not open by TCP; it is on the switch's Unix socket, or by TCP for \
                                              client certificates that a roles file (`sluice run --roles`) gives `admin`"
                    .to_string()),
                _ => Ok(()),
            };
        }
        let rules = Arc::clone(&self.rules.read().unwrap_or_else(PoisonError::into_inner));
        let mut named = rules.iter().filter(|rule| rule.names(peer)).peekable();
        if named.peek().is_none() {
            if local {
                return Ok(());
            }
            let names: Vec<String> = peer.names.iter().map(ToString::to_string).collect();
            return Err(match names.is_empty() {
                true => {
                    "the roles file lets clients in by their certificates, and this connection shows none".to_string()
                }
                false => format!("the roles file has no line for {}", names.join(", ")),
            });
        }
        let mut problem = String::new();
        for rule in named {
            match rule.check(kind, about) {
                Ok(()) => return Ok(()),
                Err(why) => problem = why,
            }
        }
        Err(problem)
    }
}

impl Rule {
    fn names(&self, peer: &Peer) -> bool {
        match (&self.who, &peer.origin) {
            (Who::User(uid), Origin::Unix { uid: is, .. }) => uid == is,
            (Who::AnyCertificate, Origin::Tcp(_)) => !peer.names.is_empty(),
            (Who::Name(name), Origin::Tcp(_)) => peer.names.iter().any(|has| has.to_string() == *name),
            _ => false,
        }
    }

    fn check(&self, kind: Kind, about: &About) -> Result<(), String> {
        let needs = match kind {
            Kind::Reads | Kind::Counters => Right::ReadOnly,
            Kind::P4Runtime => Right::P4Runtime,
            Kind::Admin => Right::Admin,
        };
        let names = |right| match right {
            Right::ReadOnly => "`read-only`",
            Right::P4Runtime => "`p4runtime`",
            Right::Admin => "`admin`",
        };
        if self.right < needs {
            let (has, needs) = (names(self.right), names(needs));
            return Err(format!("this client has the right {has} in the roles file, and this needs {needs}"));
        }
        if let (Some(devices), Some(device)) = (&self.devices, about.device)
            && !devices.contains(&device)
        {
            return Err(format!("the roles file gives this client no right on device {device}"));
        }
        if let (Some(roles), Some(role)) = (&self.roles, &about.role)
            && !roles.contains(role)
        {
            return Err(format!("the roles file gives this client no right in the role `{role}`"));
        }
        Ok(())
    }
}

fn read(file: &Path) -> Result<Vec<Rule>, AccessError> {
    let unreadable = |cause| AccessError::Unreadable { file: file.to_path_buf(), cause };
    let not_text = |error| std::io::Error::new(std::io::ErrorKind::InvalidData, error);
    let text = read_bounded(file).and_then(|bytes| String::from_utf8(bytes).map_err(not_text)).map_err(unreadable)?;
    parse(&text).map_err(|(line, problem)| AccessError::Bad { file: file.to_path_buf(), line, problem })
}

/// Parses rules. The error is the number of a line and what is wrong with it.
fn parse(text: &str) -> Result<Vec<Rule>, (usize, String)> {
    let mut rules = Vec::new();
    for (i, line) in text.lines().enumerate() {
        let wrong = |problem: String| (i + 1, problem);
        let words = words(line).map_err(wrong)?;
        let Some((who, rest)) = words.split_first() else { continue };
        if rules.len() == RULES_MAX {
            return Err(wrong(format!("more than {RULES_MAX} lines")));
        }
        rules.push(rule(who, rest).map_err(wrong)?);
    }
    Ok(rules)
}

/// The words of a line: separated by blanks, `"..."` counts as one, `#` starts a comment.
fn words(line: &str) -> Result<Vec<String>, String> {
    let mut found = Vec::new();
    let mut rest = line.trim_start();
    while !rest.is_empty() && !rest.starts_with('#') {
        let word = match rest.strip_prefix('"') {
            Some(quoted) => {
                let (word, after) = quoted.split_once('"').ok_or("a `\"` has no end")?;
                rest = after;
                word
            }
            None => {
                let (word, after) = rest.split_at(rest.find(char::is_whitespace).unwrap_or(rest.len()));
                rest = after;
                word
            }
        };
        found.push(word.to_string());
        rest = rest.trim_start();
    }
    Ok(found)
}

fn rule(who: &str, rest: &[String]) -> Result<Rule, String> {
    const KINDS: [&str; 5] = ["CN", "DNS", "URI", "EMAIL", "IP"];
    let who = match who.split_once('=') {
        Some((kind, value)) if KINDS.contains(&kind) && !value.is_empty() => Who::Name(who.to_string()),
        _ if who == "*" => Who::AnyCertificate,
        _ => match who.strip_prefix("uid:").map(str::parse) {
            Some(Ok(uid)) => Who::User(uid),
            _ => {
                return Err(format!(
                    "`{who}` names nobody: a line begins with CN=NAME, DNS=NAME, URI=NAME, EMAIL=NAME or IP=ADDRESS of a certificate, \
                     uid:NUMBER of a local user, or *"
                ));
            }
        },
    };
    let (right, limits) = rest.split_first().ok_or("a right is missing: admin, p4runtime or read-only")?;
    let right = match right.as_str() {
        "admin" => Right::Admin,
        "p4runtime" => Right::P4Runtime,
        "read-only" => Right::ReadOnly,
        other => return Err(format!("`{other}` is no right; there is admin, p4runtime and read-only")),
    };
    let mut rule = Rule { who, right, devices: None, roles: None };
    for limit in limits {
        match limit.split_once('=') {
            Some((key, _)) if right == Right::Admin => {
                return Err(format!("admin is the whole switch, and takes no `{key}=`"));
            }
            Some(("devices", ids)) => {
                let ids: Result<BTreeSet<u64>, _> = ids.split(',').map(str::parse).collect();
                rule.devices = Some(ids.map_err(|_| format!("`{limit}` is not devices=ID,..., as devices=1,2"))?);
            }
            Some(("roles", names)) => rule.roles = Some(names.split(',').map(str::to_string).collect()),
            _ => return Err(format!("`{limit}` is no limit; there is devices=ID,... and roles=NAME,...")),
        }
    }
    Ok(rule)
}

/// The name of a P4Runtime role in rules.
pub fn role_name(name: &str, id: u64) -> String {
    match (name, id) {
        ("", 0) => DEFAULT_ROLE.to_string(),
        ("", id) => format!("id:{id}"),
        (name, _) => name.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peer::Name;

    fn access(text: &str) -> Access {
        Access { file: Some("roles".into()), rules: RwLock::new(Arc::new(parse(text).unwrap())), ..Access::default() }
    }

    fn holder(names: &[(&'static str, &str)]) -> Peer {
        let names = names.iter().map(|(kind, value)| Name { kind, value: value.to_string() }).collect();
        Peer { origin: Origin::Tcp("192.0.2.1:7".parse().unwrap()), names, private: true }
    }

    fn user(uid: u32) -> Peer {
        Peer { origin: Origin::Unix { uid, gid: 0, pid: None }, names: Arc::new([]), private: true }
    }

    fn on(device: u64, role: &str) -> About {
        About { device: Some(device), role: Some(role.to_string()) }
    }

    #[test]
    fn certificates_get_the_rights_of_their_lines_and_no_others() {
        let access = access(
            "# rights\nCN=ops admin\nDNS=c.example p4runtime devices=1,2 roles=default,sdn\n\"CN=a b\" read-only # who\nuid:33 read-only\n",
        );
        let nothing = About::default();
        assert_eq!(access.check(&holder(&[("CN", "ops")]), Kind::Admin, &nothing), Ok(()));
        let controller = holder(&[("CN", "c"), ("DNS", "c.example")]);
        assert_eq!(access.check(&controller, Kind::P4Runtime, &on(2, "sdn")), Ok(()));
        assert!(access.check(&controller, Kind::P4Runtime, &on(3, "sdn")).unwrap_err().contains("device 3"));
        assert!(access.check(&controller, Kind::Reads, &on(1, "other")).unwrap_err().contains("role `other`"));
        assert!(access.check(&controller, Kind::Admin, &nothing).unwrap_err().contains("needs `admin`"));
        let reader = holder(&[("CN", "a b")]);
        assert_eq!(access.check(&reader, Kind::Reads, &on(9, "x")), Ok(()));
        assert!(access.check(&reader, Kind::P4Runtime, &nothing).unwrap_err().contains("needs `p4runtime`"));
        let stranger = access.check(&holder(&[("CN", "x")]), Kind::Reads, &nothing).unwrap_err();
        assert_eq!(stranger, "the roles file has no line for CN=x");
        assert!(access.check(&holder(&[]), Kind::Reads, &nothing).unwrap_err().contains("shows none"));
        assert_eq!(access.check(&user(0), Kind::Admin, &nothing), Ok(()));
        assert!(access.check(&user(33), Kind::Admin, &nothing).is_err());
    }

    #[test]
    fn without_a_file_the_admin_service_is_local() {
        let access = Access::default();
        let nothing = About::default();
        assert_eq!(access.check(&holder(&[]), Kind::P4Runtime, &nothing), Ok(()));
        assert!(access.check(&holder(&[("CN", "ops")]), Kind::Admin, &nothing).unwrap_err().contains("Unix socket"));
        assert_eq!(access.check(&user(1000), Kind::Admin, &nothing), Ok(()));
    }

    #[test]
    fn a_wrong_line_says_where_and_what_is_right() {
        for (text, line, problem) in [
            ("\nops admin", 2, "names nobody"),
            ("CN=x", 1, "a right is missing"),
            ("CN=x root", 1, "`root` is no right"),
            ("CN=x admin devices=1", 1, "the whole switch"),
            ("CN=x p4runtime devices=a", 1, "devices=1,2"),
            ("CN=x p4runtime ports=1", 1, "`ports=1` is no limit"),
            ("\"CN=x admin", 1, "has no end"),
            ("uid:x admin", 1, "names nobody"),
        ] {
            let (at, why) = parse(text).unwrap_err();
            assert!(at == line && why.contains(problem), "{text}: {at}: {why}");
        }
    }

    #[test]
    fn a_file_that_got_wrong_leaves_the_rules_in_force() {
        let file = std::env::temp_dir().join(format!("sluice-roles-{}", std::process::id()));
        std::fs::write(&file, "CN=ops admin\n").unwrap();
        let access = Access::load(&file).unwrap();
        std::fs::write(&file, "CN=ops\n").unwrap();
        let error = access.reload().unwrap_err().to_string();
        assert!(error.ends_with(":1: a right is missing: admin, p4runtime or read-only"), "{error}");
        assert_eq!(access.check(&holder(&[("CN", "ops")]), Kind::Admin, &About::default()), Ok(()));
        std::fs::write(&file, "CN=ops read-only\n").unwrap();
        access.reload().unwrap();
        assert!(access.check(&holder(&[("CN", "ops")]), Kind::Admin, &About::default()).is_err());
        std::fs::remove_file(&file).unwrap();
        assert!(access.reload().unwrap_err().to_string().starts_with("cannot read the roles file "));
    }
}
