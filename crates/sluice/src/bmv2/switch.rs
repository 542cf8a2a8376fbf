//! `simple_switch` and `simple_switch_grpc`: translates their options into those of `sluice run`.
//!
//! Where bmv2 listens on all addresses by default, this listens on 127.0.0.1. An explicit `--grpc-server-addr
//! 0.0.0.0:50051`, as in Mininet's scripts, is obeyed, without TLS (`--insecure` of `sluice run`); so are nanomsg
//! addresses. `simple_switch` has no P4Runtime. Its thrift port identifies a switch among those of one machine, so it
//! names the admin socket where no P4Runtime port does.

use super::options::{Given, Names, Spec, Takes, help, ignored, read, refused, set};
use super::{Tool, names};
use crate::local;
use crate::nanomsg::Address;
use anyhow::{Context, Result, bail, ensure};
use std::path::Path;
use std::process::ExitCode;

/// bmv2's default port of thrift.
const THRIFT_PORT: u16 = 9090;
/// The suffix that bmv2 appends to the name of a log file, even to one that has it.
const LOG_ENDING: &str = ".txt";
/// The largest of v1model's 9-bit ports, which means «drop» unless --drop-port sets another.
pub(crate) const DROP_PORT: u32 = 511;
/// The newest version of bmv2's JSON that is accepted.
const JSON_VERSION: &str = "2.24";

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Opt {
    Help,
    Version,
    JsonVersion,
    Interface,
    NoP4,
    DeviceId,
    LogConsole,
    LogFile,
    LogLevel,
    Pcap,
    ThriftPort,
    Notifications,
    Events,
    RestoreState,
    PacketData,
    Files,
    Grpc,
    GrpcSsl,
    GrpcCa,
    GrpcCert,
    GrpcKey,
    GrpcClients,
    CpuPort,
    DropPort,
    Queues,
}

const NO_DEBUGGER: &str = "there is no debugger; `sluice trace` shows each step of a packet";

/// The options of all bmv2 switches.
const SPECS: &[Spec<Opt>] = &[
    set(&["--help", "-h"], Takes::Nothing, Opt::Help, "Print this"),
    set(&["--version", "-v"], Takes::Nothing, Opt::Version, "Print the version"),
    set(&["--json-version"], Takes::Nothing, Opt::JsonVersion, "Print the newest version of bmv2's JSON that is read"),
    set(
        &["-i", "--interface"],
        Takes::Value,
        Opt::Interface,
        "A port: NUMBER@INTERFACE, or as `sluice run -i` takes it",
    ),
    set(&["--no-p4"], Takes::Nothing, Opt::NoP4, "Start without a program; a controller sets it"),
    set(&["--device-id"], Takes::Value, Opt::DeviceId, "The device id of P4Runtime, 0 by default"),
    set(&["--log-console"], Takes::Nothing, Opt::LogConsole, "Write a line for each step of each packet on stdout"),
    set(&["--log-file"], Takes::Value, Opt::LogFile, "Write them to this file, with `.txt` behind its name"),
    set(
        &["-L", "--log-level"],
        Takes::Value,
        Opt::LogLevel,
        "trace, debug, info, warn, error or off; trace by default",
    ),
    set(
        &["--pcap"],
        Takes::Optional,
        Opt::Pcap,
        "Record what ports receive and send, as INTERFACE_in.pcap and INTERFACE_out.pcap in a folder, this one by default",
    ),
    set(
        &["--thrift-port"],
        Takes::Value,
        Opt::ThriftPort,
        "The port of the thrift service on 127.0.0.1, 9090 by default",
    ),
    set(&["--dump-packet-data"], Takes::Value, Opt::PacketData, "Bytes of each packet that the log shows"),
    ignored(&["--log-flush"], Takes::Nothing, ""),
    ignored(
        &["--log-file-max-size", "--log-file-max-files"],
        Takes::Value,
        "the file of --log-file grows; logrotate can take its copy",
    ),
    ignored(&["--max-port-count"], Takes::Value, ""),
    set(
        &["--nanolog"],
        Takes::Value,
        Opt::Events,
        "Send a message for each step of each packet to subscribers of nanomsg at ipc://PATH or tcp://ADDR:PORT",
    ),
    ignored(&["--ret-zero-on-invalid-hdr-read"], Takes::Nothing, ""),
    refused(&["--warn-on-invalid-hdr-read"], Takes::Nothing, "`sluice check` warns of such reads"),
    set(
        &["--notifications-addr"],
        Takes::Value,
        Opt::Notifications,
        "Where digests, idle entries and changes of ports are told; simple_switch does at ipc:///tmp/bmv2-DEVICE-notifications.ipc by \
         default",
    ),
    set(
        &["--restore-state"],
        Takes::Value,
        Opt::RestoreState,
        "Begin with the state that `serialize_state` of simple_switch_CLI wrote; bmv2's own files are not read",
    ),
    refused(&["--packet-in"], Takes::Value, "packets come from interfaces, or from files by `-i NUMBER@pcap:IN,OUT`"),
    refused(&["--debugger-addr"], Takes::Value, NO_DEBUGGER),
    refused(&["--debugger"], Takes::Nothing, NO_DEBUGGER),
    set(
        &["--use-files"],
        Takes::Value,
        Opt::Files,
        "Ports are files: X stands for X_in.pcap, which may be a FIFO, and X_out.pcap; packets come after so many seconds",
    ),
];

/// The target-specific options, after `--`.
const TARGET_SPECS: &[Spec<Opt>] = &[
    set(&["--grpc-server-addr"], Takes::Value, Opt::Grpc, "Where P4Runtime listens; 127.0.0.1:9559 by default"),
    set(&["--grpc-server-ssl"], Takes::Nothing, Opt::GrpcSsl, "Serve P4Runtime with TLS"),
    set(&["--grpc-server-cacert"], Takes::Value, Opt::GrpcCa, "The file of the CA's certificate for clients"),
    set(&["--grpc-server-cert"], Takes::Value, Opt::GrpcCert, "The file of the switch's certificate"),
    set(&["--grpc-server-key"], Takes::Value, Opt::GrpcKey, "The file of its key"),
    set(
        &["--grpc-server-with-client-auth"],
        Takes::Nothing,
        Opt::GrpcClients,
        "Only clients with a certificate are let in",
    ),
    set(&["--cpu-port"], Takes::Value, Opt::CpuPort, "The port number that stands for the controller"),
    set(&["--drop-port"], Takes::Value, Opt::DropPort, "The port number that means «drop», 511 by default"),
    set(&["--priority-queues"], Takes::Value, Opt::Queues, "Queues of each port, in strict priority; 1 by default"),
    ignored(&["--enable-swap"], Takes::Nothing, ""),
    refused(
        &["--disable-swap"],
        Takes::Nothing,
        "programs are always replaced; roles (`sluice run --roles`) say who may",
    ),
    refused(&["--dp-grpc-server-addr"], Takes::Value, "packets come from interfaces"),
    refused(
        &["--load-modules"],
        Takes::Value,
        "extern functions of C++ modules are bmv2's own; nothing loads code into a program here",
    ),
    ignored(
        &["--max-mc-groups", "--max-l1-entries", "--max-l2-entries"],
        Takes::Value,
        "memory bounds multicast groups",
    ),
];

/// Runs the switch.
///
/// # Errors
/// If the command line is wrong, or as of `run::main`.
pub fn main(tool: Tool, args: Vec<String>) -> Result<ExitCode> {
    let given = read(SPECS, Names::Beginnings, with_folder(args))?;
    if given.has(Opt::Help) {
        let (general, target) = (help(SPECS), help(TARGET_SPECS));
        println!(
            "Usage: {} [OPTION]... PROGRAM [-- OPTION...]\nThe program is bmv2's JSON, the file of Sluice's p4c-bm2-ss, or P4 \
             source.\n\n{general}\nBehind `--`:\n{}",
            tool.name(),
            target.trim_end()
        );
        return Ok(ExitCode::SUCCESS);
    }
    if given.has(Opt::Version) {
        println!("{} (sluice {})", tool.name(), env!("CARGO_PKG_VERSION"));
        return Ok(ExitCode::SUCCESS);
    }
    if given.has(Opt::JsonVersion) {
        println!("{JSON_VERSION}");
        return Ok(ExitCode::SUCCESS);
    }
    let target = read(TARGET_SPECS, Names::Beginnings, given.behind.clone()).context("behind `--`")?;
    for note in given.notes.iter().chain(&target.notes) {
        eprintln!("{}: {note}", tool.name());
    }
    if let Some(folder) = pcap_folder(&given) {
        ensure!(Path::new(folder).is_dir(), "--pcap: there is no folder {folder}");
    }
    let line = translate(tool, &given, &target)?;
    names::use_those_of(tool);
    crate::run_with(&line)
}

/// Joins `--pcap FOLDER` into `--pcap=FOLDER` if the next argument is a folder.
fn with_folder(args: Vec<String>) -> Vec<String> {
    let mut joined: Vec<String> = Vec::new();
    let mut behind = false;
    for arg in args {
        behind |= arg == "--";
        match joined.last_mut() {
            Some(last)
                if !behind
                    && last.starts_with("--pc")
                    && "--pcap".starts_with(&**last)
                    && !arg.starts_with('-')
                    && Path::new(&arg).is_dir() =>
            {
                *last = format!("--pcap={arg}");
            }
            _ => joined.push(arg),
        }
    }
    joined
}

fn pcap_folder(given: &Given<Opt>) -> Option<&str> {
    given.last(Opt::Pcap).map(|folder| if folder.is_empty() { "." } else { folder })
}

/// Returns the equivalent command line of `sluice run`. Programs follow bmv2's semantics, even those given as P4
/// source.
fn translate(tool: Tool, given: &Given<Opt>, target: &Given<Opt>) -> Result<Vec<String>> {
    let mut run: Vec<String> = Vec::new();
    let mut add =
        |name: &str, value: &str| run.push(if value.is_empty() { name.into() } else { format!("{name}={value}") });
    match (given.has(Opt::NoP4), given.files.as_slice()) {
        (true, []) => {}
        (true, [_, ..]) => eprintln!("{}: the program is not loaded: --no-p4", tool.name()),
        (false, []) => bail!("no program was given; --no-p4 starts without one"),
        (false, [_]) => {}
        (false, [_, more, ..]) => {
            bail!("one program is run, and {more} is another; options of the target stand behind `--`")
        }
    }
    add("--bmv2", "");
    // An address that the command line names is served even if other machines can reach it, as scripts for bmv2 expect.
    // Thrift, which has no certificates, listens on loopback only, even where P4Runtime requires them.
    add("--insecure", "");
    // The switches of an emulated network share a machine, and most of them are idle.
    add("--idle", "interrupt");
    // Switches in separate network namespaces may have the same ports but share the file system; bmv2 has no such
    // socket.
    add("--admin-if-free", "");
    let device = number(given, Opt::DeviceId, "--device-id")?.unwrap_or(0u64);
    add("--device-id", &device.to_string());
    // With simple_switch_grpc controllers get digests over P4Runtime.
    let usual = (tool != Tool::SimpleSwitchGrpc).then(|| format!("ipc:///tmp/bmv2-{device}-notifications.ipc"));
    if let Some(address) = given.last(Opt::Notifications).map(str::to_string).or(usual) {
        check_address("--notifications-addr", &address)?;
        add("--notifications", &address);
    }
    if let Some(file) = given.last(Opt::RestoreState) {
        ensure!(!given.has(Opt::NoP4), "--restore-state: without a program there is no state to restore");
        check_state(file)?;
        add("--entries", file);
    }
    let thrift: Option<u16> = number(given, Opt::ThriftPort, "--thrift-port")?;
    let thrift = thrift.unwrap_or(THRIFT_PORT);
    add("--thrift", &format!("127.0.0.1:{thrift}"));
    grpc(tool, target, thrift, &mut add)?;
    if let Some(port) = number::<u32>(target, Opt::CpuPort, "--cpu-port")? {
        ensure!(port != 0, "--cpu-port: 0 stands for no port");
        add("--cpu-port", &port.to_string());
    }
    if let Some(port) = number::<u32>(target, Opt::DropPort, "--drop-port")? {
        ensure!(
            (1..=DROP_PORT).contains(&port),
            "--drop-port: a port has 9 bits in v1model, and 0 is what a program does not set"
        );
        add("--drop-port", &port.to_string());
    }
    if let Some(queues) = number::<u32>(target, Opt::Queues, "--priority-queues")? {
        ensure!((1..=64).contains(&queues), "--priority-queues: a port has 1 to 64 queues");
        add("--priority-queues", &queues.to_string());
    }
    observe(given, &mut add)?;
    let after: Option<u32> = number(given, Opt::Files, "--use-files")?;
    if after.is_some() {
        ensure!(!given.has(Opt::Pcap), "--use-files: packets are in files already, without --pcap");
        add("--stays", "");
    }
    let ports = given.all(Opt::Interface).map(|port| Ok(format!("-i={}", interface(port.trim(), after)?)));
    let mut line: Vec<String> = ports.collect::<Result<_>>()?;
    line.append(&mut run);
    if !given.has(Opt::NoP4) {
        line.extend(given.files.first().cloned());
    }
    Ok(line)
}

/// Translates a port; with `--use-files` it is a pair of files.
fn interface(port: &str, after: Option<u32>) -> Result<String> {
    let Some(after) = after else { return Ok(port.to_string()) };
    let Some((number, name)) = port.split_once('@') else {
        bail!("--use-files: `-i {port}` is no NUMBER@NAME");
    };
    Ok(format!("{number}@pcap:{name}_in.pcap,{name}_out.pcap,after={after}"))
}

/// The first bytes of bmv2's own state files.
const STATE_OF_BMV2: &str = "06062016_";

/// Checks that a file may have been written by `serialize_state` here.
fn check_state(file: &str) -> Result<()> {
    let text = crate::files::text(Path::new(file)).map_err(|error| anyhow::anyhow!("--restore-state: {error:#}"))?;
    ensure!(
        !text.starts_with(STATE_OF_BMV2),
        "--restore-state: {file} is bmv2's own, in the order of its memory; what `serialize_state` of simple_switch_CLI writes of this \
         switch can be read"
    );
    Ok(())
}

/// Adds the options for P4Runtime's address and the admin socket.
fn grpc(tool: Tool, target: &Given<Opt>, thrift: u16, add: &mut impl FnMut(&str, &str)) -> Result<()> {
    if tool != Tool::SimpleSwitchGrpc {
        for (option, name) in [(Opt::Grpc, "--grpc-server-addr"), (Opt::GrpcSsl, "--grpc-server-ssl")] {
            ensure!(!target.has(option), "{name}: {} has no P4Runtime, simple_switch_grpc has", tool.name());
        }
        add("--grpc", "none");
        if let Some(path) = local::path_for(thrift) {
            add("--admin", &path.display().to_string());
        }
        return Ok(());
    }
    let address = target.last(Opt::Grpc).unwrap_or(local::ADDRESS);
    let is_port = |(_, port): (&str, &str)| port.parse::<u16>().is_ok();
    ensure!(
        !address.starts_with("unix:") && address.rsplit_once(':').is_some_and(is_port),
        "--grpc-server-addr: `{address}` is no ADDRESS:PORT"
    );
    add("--grpc", address);
    let files = [(Opt::GrpcCert, "--tls-cert"), (Opt::GrpcKey, "--tls-key"), (Opt::GrpcCa, "--tls-client-ca")];
    if !target.has(Opt::GrpcSsl) {
        let given =
            [Opt::GrpcCert, Opt::GrpcKey, Opt::GrpcCa, Opt::GrpcClients].iter().any(|option| target.has(*option));
        ensure!(!given, "options of TLS need --grpc-server-ssl");
        return Ok(());
    }
    ensure!(
        target.has(Opt::GrpcCert) && target.has(Opt::GrpcKey),
        "--grpc-server-ssl needs --grpc-server-cert and --grpc-server-key"
    );
    ensure!(
        target.has(Opt::GrpcCa) == target.has(Opt::GrpcClients),
        "--grpc-server-cacert and --grpc-server-with-client-auth belong together: clients are let in by a certificate or without"
    );
    for (option, name) in files {
        if let Some(file) = target.last(option) {
            add(name, file);
        }
    }
    Ok(())
}

/// Adds the options for pcap files, packet logs and events.
fn observe(given: &Given<Opt>, add: &mut impl FnMut(&str, &str)) -> Result<()> {
    if let Some(folder) = pcap_folder(given) {
        add("--pcap", folder);
    }
    if let Some(address) = given.last(Opt::Events) {
        check_address("--nanolog", address)?;
        add("--packet-events", address);
    }
    ensure!(
        !(given.has(Opt::LogConsole) && given.has(Opt::LogFile)),
        "--log-console and --log-file exclude one another"
    );
    let bytes: usize = number(given, Opt::PacketData, "--dump-packet-data")?.unwrap_or(0);
    let steps = match given.last(Opt::LogLevel) {
        None | Some("trace" | "debug") => true,
        Some("info" | "warn" | "error" | "off") => false,
        Some(other) => bail!("--log-level: {other} is none of trace, debug, info, warn, error and off"),
    };
    let shows_data = bytes > 0 && matches!(given.last(Opt::LogLevel), None | Some("trace" | "debug" | "info"));
    let file = match given.last(Opt::LogFile) {
        _ if given.has(Opt::LogConsole) => Some("-".to_string()),
        file => file.map(|file| format!("{file}{LOG_ENDING}")),
    };
    if let Some(file) = file.filter(|_| steps || shows_data) {
        add("--packet-log", &file);
        if !steps {
            add("--packet-log-steps", "false");
        }
        if shows_data {
            add("--packet-log-bytes", &bytes.to_string());
        }
    }
    Ok(())
}

fn check_address(option: &str, address: &str) -> Result<()> {
    address.parse::<Address>().map(drop).map_err(|why| anyhow::anyhow!("{option}: {why}"))
}

fn number<N: std::str::FromStr>(given: &Given<Opt>, option: Opt, name: &str) -> Result<Option<N>> {
    let parse = |text: &str| text.parse().map_err(|_| anyhow::anyhow!("{name}: {text} is not such a number"));
    given.last(option).map(parse).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run_line(tool: Tool, line: &str) -> Result<String> {
        let given =
            read(SPECS, Names::Beginnings, with_folder(line.split_whitespace().map(ToString::to_string).collect()))?;
        let target = read(TARGET_SPECS, Names::Beginnings, given.behind.clone())?;
        Ok(translate(tool, &given, &target)?.join(" "))
    }

    #[test]
    fn the_line_of_the_tutorials() {
        let line = "-i 1@s1-eth1 -i 2@s1-eth2 --pcap /tmp --nanolog ipc:///tmp/bm-0-log.ipc --device-id 3 build/basic.json \
                    --log-console --thrift-port 9093 -- --grpc-server-addr 0.0.0.0:50053 --cpu-port 255";
        assert_eq!(
            run_line(Tool::SimpleSwitchGrpc, line).unwrap(),
            "-i=1@s1-eth1 -i=2@s1-eth2 --bmv2 --insecure --idle=interrupt --admin-if-free --device-id=3 --thrift=127.0.0.1:9093 --grpc=0.0.0.0:50053 \
             --cpu-port=255 --pcap=/tmp --packet-events=ipc:///tmp/bm-0-log.ipc --packet-log=- build/basic.json"
        );
    }

    #[test]
    fn names_may_be_cut_off_where_the_beginning_says_which() {
        let whole =
            run_line(Tool::SimpleSwitchGrpc, "--log-console --pcap /tmp --thrift-port=9191 x.json -- --cpu-port 9");
        let begun = run_line(Tool::SimpleSwitchGrpc, "--log-con --pca /tmp --thrift=9191 x.json -- --cpu 9");
        assert_eq!(begun.unwrap(), whole.unwrap());
        let error = run_line(Tool::SimpleSwitch, "--log-f x.json").unwrap_err().to_string();
        assert_eq!(
            error,
            "--log-f is the beginning of --log-file, --log-flush, --log-file-max-size, --log-file-max-files"
        );
    }

    #[test]
    fn files_stand_for_interfaces() {
        let args = ["--use-files", "2", "-i 0@d/pcap0", "-i", "1@pcap1", "x.json"].map(ToString::to_string);
        let given = read(SPECS, Names::Beginnings, args.to_vec()).unwrap();
        let none = read(TARGET_SPECS, Names::Beginnings, Vec::new()).unwrap();
        let line = translate(Tool::SimpleSwitch, &given, &none).unwrap();
        let ports =
            ["-i=0@pcap:d/pcap0_in.pcap,d/pcap0_out.pcap,after=2", "-i=1@pcap:pcap1_in.pcap,pcap1_out.pcap,after=2"];
        assert_eq!(line[..2], ports);
        assert!(line.contains(&"--stays".to_string()), "{line:?}");
        for (line, said) in [
            ("a.json --use-files 0 -i pcap0", "--use-files: `-i pcap0` is no NUMBER@NAME"),
            ("a.json --use-files 0 --pcap", "--use-files: packets are in files already"),
            ("a.json --use-files soon", "--use-files: soon is not such a number"),
        ] {
            assert_eq!(run_line(Tool::SimpleSwitch, line).unwrap_err().to_string().find(said), Some(0), "{line}");
        }
    }

    #[test]
    fn what_is_not_said_is_safe() {
        assert_eq!(
            run_line(Tool::SimpleSwitchGrpc, "--no-p4").unwrap(),
            "--bmv2 --insecure --idle=interrupt --admin-if-free --device-id=0 --thrift=127.0.0.1:9090 --grpc=127.0.0.1:9559"
        );
        let plain = run_line(Tool::SimpleSwitch, "--thrift-port=9191 x.json --pcap -- --enable-swap").unwrap();
        assert!(plain.contains("--grpc=none") && plain.contains("admin-9191.sock"), "{plain}");
        assert!(plain.ends_with("--pcap=. x.json"), "{plain}");
        assert!(plain.contains("--notifications=ipc:///tmp/bmv2-0-notifications.ipc"), "{plain}");
        let chosen = run_line(Tool::SimpleSwitchGrpc, "--no-p4 --notifications-addr tcp://127.0.0.1:1").unwrap();
        assert!(chosen.contains("--notifications=tcp://127.0.0.1:1"), "{chosen}");
    }

    #[test]
    fn tls_needs_all_its_files() {
        let ssl = "--no-p4 -- --grpc-server-ssl --grpc-server-cert c --grpc-server-key k";
        let line = run_line(Tool::SimpleSwitchGrpc, ssl).unwrap();
        assert!(line.ends_with("--grpc=127.0.0.1:9559 --tls-cert=c --tls-key=k"), "{line}");
        let mutual =
            run_line(Tool::SimpleSwitchGrpc, &format!("{ssl} --grpc-server-cacert a --grpc-server-with-client-auth"));
        assert!(mutual.unwrap().ends_with("--tls-cert=c --tls-key=k --tls-client-ca=a"));
        for (line, said) in [
            ("--no-p4 -- --grpc-server-ssl", "--grpc-server-ssl needs"),
            ("--no-p4 -- --grpc-server-cert c", "options of TLS need"),
            (&format!("{ssl} --grpc-server-cacert a"), "--grpc-server-cacert and"),
        ] {
            assert!(run_line(Tool::SimpleSwitchGrpc, line).unwrap_err().to_string().starts_with(said), "{line}");
        }
    }

    #[test]
    fn log_levels_choose_what_is_logged() {
        let log = |line: &str| run_line(Tool::SimpleSwitch, &format!("--no-p4 {line}")).unwrap();
        assert!(!log("").contains("--packet-log"));
        assert!(log("--log-file f -L debug").ends_with("--packet-log=f.txt"));
        assert!(!log("--log-console -L info").contains("--packet-log"));
        assert!(
            log("--log-console -L info --dump-packet-data 64")
                .ends_with("--packet-log=- --packet-log-steps=false --packet-log-bytes=64")
        );
        assert!(!log("--log-console -L off --dump-packet-data 64").contains("--packet-log"));
    }

    #[test]
    fn state_of_this_switch_is_restored() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path.display().to_string()
        };
        let ours = write("ours", "set MyIngress.t a:1 NoAction()\n");
        let line = run_line(Tool::SimpleSwitch, &format!("a.json --restore-state {ours}")).unwrap();
        assert!(line.contains(&format!("--entries={ours}")), "{line}");
        let theirs = write("theirs", "06062016_0\n0123456789abcdef\nMyIngress.t\n__NULL__\n0\n");
        let error = run_line(Tool::SimpleSwitch, &format!("a.json --restore-state {theirs}")).unwrap_err().to_string();
        assert!(error.contains("is bmv2's own"), "{error}");
    }

    #[test]
    fn what_cannot_be_done_is_said() {
        for (line, said) in [
            ("", "no program was given"),
            ("a.json b.json", "one program is run, and b.json"),
            ("a.json --debugger", "--debugger is not supported"),
            ("a.json --restore-state /none", "--restore-state: cannot read /none"),
            ("--no-p4 --restore-state /none", "--restore-state: without a program"),
            ("a.json --nanolog /tmp/x", "--nanolog: `/tmp/x` is neither ipc://PATH nor tcp://ADDR:PORT"),
            ("a.json --notifications-addr x", "--notifications-addr: `x` is neither"),
            ("a.json --packet-in x", "--packet-in is not supported"),
            ("a.json --device-id x", "--device-id: x is not such a number"),
            ("a.json --log-level loud", "--log-level: loud"),
            ("a.json --log-console --log-file f", "--log-console and --log-file"),
            ("a.json -- --drop-port 512", "--drop-port: a port has 9 bits"),
            ("a.json -- --cpu-port 0", "--cpu-port: 0"),
            ("a.json -- --grpc-server-addr nonsense", "--grpc-server-addr: `nonsense` is no ADDRESS:PORT"),
            ("a.json -- --grpc-server-addr unix:/x:1", "--grpc-server-addr: `unix:/x:1` is no ADDRESS:PORT"),
            ("a.json -- --dp-grpc-server-addr x", "--dp-grpc-server-addr is not supported"),
            ("a.json -- --load-modules=x.so", "--load-modules is not supported: extern functions of C++ modules"),
        ] {
            let error = run_line(Tool::SimpleSwitchGrpc, line).unwrap_err().to_string();
            assert!(error.starts_with(said), "{line}: {error}");
        }
        let error = run_line(Tool::SimpleSwitch, "a.json -- --grpc-server-addr 0.0.0.0:1").unwrap_err().to_string();
        assert!(error.contains("simple_switch has no P4Runtime"), "{error}");
    }
}
