//! Paths of the protocols of OpenFlow bridges, with random writes and header actions, against the interpreter.

mod common;

use common::{Command, Outcome, Script, Subject, compile, rounds, script};
use flowcache::path::Step;
use random::Random;
use std::collections::BTreeMap;

const PROTOCOLS: &str = include_str!("../../bridge/p4/openflow.p4");

/// As lowered, and optimised.
fn subjects() -> [Subject; 2] {
    compile(PROTOCOLS).map(Subject::new)
}

fn be(value: u64, bytes: usize) -> Vec<u8> {
    value.to_be_bytes()[8 - bytes..].to_vec()
}

fn some(random: &mut Random, len: usize) -> Vec<u8> {
    (0..len).map(|_| random.next_u64() as u8).collect()
}

fn transport(random: &mut Random, protocol: u8) -> Vec<u8> {
    let mut all = some(random, 4);
    match protocol {
        6 => all.extend(some(random, 16)),
        17 => {
            all.extend(some(random, 2));
            all.extend(if random.one_in(3) { vec![0, 0] } else { some(random, 2) });
        }
        1 => all[0] = 8,
        58 => {
            all[0] = *random.pick(&[128, 135, 136]);
            all[1] = u8::from(random.one_in(5));
            all.extend(some(random, 20));
            if random.one_in(3) {
                all.extend([14, 1, 0, 0, 0, 0, 0, 0]);
            }
            all.extend([*random.pick(&[1, 2]), 1]);
            all.extend(some(random, 6));
        }
        _ => {}
    }
    all
}

fn ip(random: &mut Random) -> (u64, Vec<u8>) {
    let protocol = *random.pick(&[6, 6, 17, 17, 1, 58, 132, 89]);
    let ttl = *random.pick(&[0, 1, 2, 64, 64, 63, 255]);
    let mut all = Vec::new();
    if random.one_in(2) {
        let options = if random.one_in(4) { random.range(0, 3) } else { 0 };
        all.push(0x45 + options as u8);
        all.extend(some(random, 5));
        all.extend(*random.pick(&[[0, 0], [0x40, 0], [0x20, 0], [0, 7]]));
        all.extend([ttl, protocol]);
        all.extend(some(random, 10 + 4 * options as usize));
        all.extend(transport(random, protocol));
        return (0x0800, all);
    }
    let extensions = if random.one_in(3) { 1 + random.below(2) } else { 0 };
    all.extend([0x60, 0, 1, 2, 0, 40]);
    let kinds: Vec<u8> = (0..extensions).map(|_| *random.pick(&[0, 43, 44, 51, 60])).chain([protocol]).collect();
    all.extend([kinds[0], ttl]);
    all.extend(some(random, 32));
    for pair in kinds.windows(2) {
        let mut option = some(random, 8);
        option[..4].copy_from_slice(&[pair[1], u8::from(pair[0] == 51), 0, random.below(2) as u8]);
        if pair[0] == 51 {
            option.extend(some(random, 4));
        }
        all.extend(option);
    }
    all.extend(transport(random, protocol));
    (0x86dd, all)
}

fn frame(random: &mut Random) -> Vec<u8> {
    let mut all = some(random, 12);
    for _ in 0..*random.pick(&[0, 0, 0, 1, 1, 2, 3]) {
        all.extend(be(*random.pick(&[0x8100, 0x8100, 0x88a8]), 2));
        all.extend(some(random, 2));
    }
    let (kind, payload) = match random.below(10) {
        0 => (0x0806, some(random, 28)),
        1 => (*random.pick(&[0, 20, 0x5ff]), some(random, 20)),
        2 => {
            let (kind, payload) = ip(random);
            (60, [vec![0xaa, 0xaa, 3, 0, 0, 0], be(kind, 2), payload].concat())
        }
        3 | 4 => {
            let labels = 1 + random.index(3);
            let label = |i: usize, random: &mut Random| {
                let mut label = some(random, 4);
                label[2] = label[2] & !1 | u8::from(i + 1 == labels);
                label
            };
            let labels: Vec<u8> = (0..labels).flat_map(|i| label(i, random)).collect();
            (0x8847, [labels, ip(random).1].concat())
        }
        _ => ip(random),
    };
    all.extend(be(kind, 2));
    all.extend(payload);
    all.extend(some(random, 24));
    if random.one_in(10) {
        all.truncate(random.index(all.len()));
    }
    all
}

/// Random commands, with header actions among them.
fn commands(subject: &Subject, random: &mut Random) -> Script {
    let openflow = subject.program.openflow.as_ref().expect("it is of the model");
    let (_, table) = openflow.actions.expect("it has header actions");
    let actions = subject.program.tables[table.index()].actions.len() as u64;
    let mut all = script(subject, random);
    for _ in 0..random.below(4) {
        let args = vec![*random.pick(&[0x8100, 0x8847, 0x0800, 0x86dd, 7, 1])];
        let at = random.index(all.commands.len() + 1);
        let action = random.below(actions) as u32;
        all.commands.insert(at, Command::Act { action, args });
    }
    // Fields of headers that are there are what flows write.
    for _ in 0..random.below(4) {
        let field = random.pick(&openflow.fields).clone();
        let at = random.index(all.commands.len() + 1);
        let part = field.parts[0];
        let word = subject.tracer.layout().offset(part.slot) as u32 + part.lo / 64;
        let mask = u64::MAX >> (64 - part.width.min(64 - part.lo % 64)) << (part.lo % 64);
        let command = match random.below(3) {
            0 => Command::Unless { word, mask, value: 0, skip: 1 },
            _ => Command::Write { word, mask, value: random.next_u64() },
        };
        all.commands.insert(at, command);
    }
    all
}

#[test]
fn paths_with_random_commands_do_what_the_program_does() {
    let (mut traced, mut refused, mut others, mut sent, mut steps) = (0, BTreeMap::new(), 0, 0, 0);
    for (i, subject) in subjects().iter().enumerate() {
        for seed in 0..rounds(700) {
            let mut random = Random::stream(seed, 2 + i as u64);
            let (frame, script) = (frame(&mut random), commands(subject, &mut random));
            match subject.trace(&frame, &script, None) {
                Ok(path) => {
                    traced += 1;
                    steps += path.rewrite.steps.len();
                    sent += u32::from(matches!(subject.run(&frame, &script), Outcome::Sent(..)));
                    others += subject.check(&frame, &script, &path, &mut random, 8);
                }
                Err(why) => *refused.entry(why.to_string()).or_insert(0) += 1,
            }
        }
    }
    println!(
        "{traced} paths of {steps} steps, {sent} of frames that are sent, {others} other frames; refused: {refused:#?}"
    );
    assert!(refused.is_empty() && traced > 300 && sent > 100 && others > 500, "{traced} {sent} {others} {refused:?}");
}

/// The words of a match field, and a mask.
fn place(subject: &Subject, name: &str) -> (u32, u64) {
    let openflow = subject.program.openflow.as_ref().expect("it is of the model");
    let part = openflow.fields.iter().find(|field| field.name == name).expect("it is a field").parts[0];
    let word = subject.tracer.layout().offset(part.slot) as u32 + part.lo / 64;
    (word, u64::MAX >> (64 - part.width) << (part.lo % 64))
}

fn action(subject: &Subject, name: &str) -> u32 {
    let openflow = subject.program.openflow.as_ref().expect("it is of the model");
    let (_, table) = openflow.actions.expect("it has header actions");
    let actions = &subject.program.tables[table.index()].actions;
    let is_it = |full: &str| full.rsplit('.').next() == Some(name);
    actions.iter().position(|a| is_it(&subject.program.actions[a.action.index()].name)).expect("it is there") as u32
}

fn tcp(ttl: u8) -> Vec<u8> {
    let mut random = Random::new(7);
    let mut all = some(&mut random, 12);
    all.extend([8, 0, 0x45, 0, 0, 60, 1, 2, 0x40, 0, ttl, 6, 0x12, 0x34, 10, 0, 0, 1, 10, 0, 0, 2]);
    all.extend(some(&mut random, 60));
    all
}

/// What the steps are, in words.
fn kinds(steps: &[Step]) -> Vec<String> {
    let name = |step: &Step| format!("{step:?}").split([' ', '{']).next().unwrap_or("").to_string();
    steps.iter().map(name).collect()
}

#[test]
fn a_router_writes_addresses_ttl_and_checksum() {
    for subject in subjects() {
        let write = |name: &str, value| {
            let (word, mask) = place(&subject, name);
            Command::Write { word, mask, value }
        };
        let commands = vec![
            write("eth_dst", 0x0200_0000_0001),
            write("eth_src", 0x0200_0000_0002),
            Command::Act { action: action(&subject, "dec_nw_ttl"), args: vec![] },
        ];
        let script = Script { commands, is_modified: true };
        let path = subject.trace(&tcp(64), &script, None).expect("it is traced");
        println!("{:02x?}\n{:#?}", path.pattern, path.rewrite);
        println!("{:?}", kinds(&path.rewrite.steps));
        subject.check(&tcp(64), &script, &path, &mut Random::new(1), 200);
    }
}

#[test]
fn a_tag_is_pushed_before_the_ethertype() {
    for subject in subjects() {
        let commands = vec![Command::Act { action: action(&subject, "push_vlan"), args: vec![0x8100] }];
        let script = Script { commands, is_modified: true };
        let path = subject.trace(&tcp(64), &script, None).expect("it is traced");
        assert_eq!((path.rewrite.replaced, path.rewrite.head), (12, 16));
        assert_eq!(kinds(&path.rewrite.steps), ["Copy", "Bytes"], "{:?}", path.rewrite);
        subject.check(&tcp(64), &script, &path, &mut Random::new(1), 200);
    }
}
