//! What options are called on the command line that started this process, for messages.

use std::sync::OnceLock;

/// The switch of bmv2 that this process was started as; unset for `sluice run`.
static CALLED_AS: OnceLock<super::Tool> = OnceLock::new();

/// Options of `sluice run` in messages that bmv2's command lines can lead to, and those that become them.
const OPTIONS: &[(&str, &str)] =
    &[("--grpc", "--grpc-server-addr"), ("--thrift", "--thrift-port"), ("--notifications", "--notifications-addr")];

/// From now on messages have the names of this switch's options.
pub fn use_those_of(tool: super::Tool) {
    let _ = CALLED_AS.set(tool);
}

/// Whether the command line is one of bmv2's.
pub fn are_bmv2s() -> bool {
    CALLED_AS.get().is_some()
}

/// What an option of `sluice run` is called.
pub fn option(name: &'static str) -> &'static str {
    of(name, are_bmv2s())
}

fn of(name: &'static str, are_bmv2s: bool) -> &'static str {
    let known = OPTIONS.iter().filter(|_| are_bmv2s).find(|(ours, _)| *ours == name);
    known.map_or(name, |(_, theirs)| theirs)
}

/// How clear text may be sent to other machines: bmv2's command lines ask for it by the address alone.
pub fn insecure() -> &'static str {
    if are_bmv2s() { "the command line asks for it" } else { "--insecure" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_bmv2_are_its_own() {
        assert_eq!(of("--grpc", true), "--grpc-server-addr");
        assert_eq!(of("--grpc", false), "--grpc");
        assert_eq!(of("--cpu-port", true), "--cpu-port");
    }
}
