//! Option names for messages, as on the command line that started this process.

use std::sync::OnceLock;

/// The bmv2 switch that this process was started as; unset for `sluice run`.
static CALLED_AS: OnceLock<super::Tool> = OnceLock::new();

/// Options of `sluice run` that messages may name, each with the bmv2 option that is translated into it.
const OPTIONS: &[(&str, &str)] =
    &[("--grpc", "--grpc-server-addr"), ("--thrift", "--thrift-port"), ("--notifications", "--notifications-addr")];

/// Makes messages use the option names of this switch.
pub fn use_those_of(tool: super::Tool) {
    let _ = CALLED_AS.set(tool);
}

/// Whether the command line is that of a bmv2 switch.
pub fn are_bmv2s() -> bool {
    CALLED_AS.get().is_some()
}

/// Returns the name, on the actual command line, of an option of `sluice run`.
pub fn option(name: &'static str) -> &'static str {
    of(name, are_bmv2s())
}

fn of(name: &'static str, are_bmv2s: bool) -> &'static str {
    let known = OPTIONS.iter().filter(|_| are_bmv2s).find(|(ours, _)| *ours == name);
    known.map_or(name, |(_, theirs)| theirs)
}

/// Returns why clear text to other machines is allowed, for warnings: with bmv2's command lines the address alone
/// requests it.
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
