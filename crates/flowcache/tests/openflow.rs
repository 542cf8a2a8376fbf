//! Paths of the protocols of OpenFlow bridges, with random writes and header actions, against the interpreter.

mod common;

use common::{Command, Outcome, PORT, Script, Subject, compile, matches, other, packet, rounds, script, tcp};
use flowcache::path::Step;
use interp::SeededHost;
use random::Random;
use std::collections::BTreeMap;

const PROTOCOLS: &str = include_str!("../../bridge/p4/openflow.p4");

/// As lowered, and optimised.
fn subjects() -> [Subject; 2] {
    compile(PROTOCOLS).map(Subject::new)
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
        for seed in 0..rounds(150) {
            let mut random = Random::stream(seed, 2 + i as u64);
            let (frame, script) = (packet(&mut random), commands(subject, &mut random));
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
    assert!(refused.is_empty() && traced > 250 && sent > 100 && others > 500, "{traced} {sent} {others} {refused:?}");
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

/// Words that lookups may read, in ascending order: the match fields, some of them or all.
fn some_words(subject: &Subject, random: &mut Random) -> Vec<u32> {
    let openflow = subject.program.openflow.as_ref().expect("it is of the model");
    let layout = subject.tracer.layout();
    let (some, all) = (random.range(1, 6), random.one_in(4));
    let mut words = Vec::new();
    for part in openflow.fields.iter().flat_map(|field| &field.parts) {
        if all || random.below(6) < u64::from(some) {
            words.push(layout.offset(part.slot) as u32 + part.lo / 64);
        }
    }
    words.sort_unstable();
    words.dedup();
    words
}

#[test]
fn shapes_give_the_records_of_all_frames_of_their_patterns() {
    let (mut shapes, mut refused, mut others, mut differ) = (0, BTreeMap::new(), 0, 0);
    for (i, subject) in subjects().iter().enumerate() {
        for seed in 0..rounds(400) {
            let mut random = Random::stream(seed, 12 + i as u64);
            let (first, words) = (packet(&mut random), some_words(subject, &mut random));
            let (pattern, mut shape) = match subject.tracer.shape(&first, PORT, &words) {
                Ok(made) => made,
                Err(why) => {
                    *refused.entry(why.to_string()).or_insert(0) += 1;
                    continue;
                }
            };
            shapes += 1;
            assert!(matches(&pattern, &first), "the frame is not in its pattern");
            let mut frame = first.clone();
            let mut before = None;
            for _ in 0..12 {
                if matches(&pattern, &frame) {
                    let parsed = subject.parsed(&frame, &mut SeededHost::new(1));
                    let (record, _) = parsed.expect("all frames of a shape are handed over");
                    let mut buffer = frame.clone();
                    // What is behind a frame in its buffer is no part of it.
                    buffer.extend((0..random.below(24)).map(|_| random.next_u64() as u8));
                    let (got, _) = shape.read(&buffer, 1);
                    let at = |record: &[u64]| words.iter().map(|word| record[*word as usize]).collect::<Vec<_>>();
                    assert_eq!(at(got), at(&record), "seed {seed}: {words:?} of {frame:02x?}\n{pattern:02x?}");
                    others += u32::from(frame != first);
                    differ += u32::from(before.is_some_and(|before| before != at(&record)));
                    before = Some(at(&record));
                }
                frame = other(&pattern, &first, &mut random);
            }
        }
    }
    println!("{shapes} shapes, {others} other frames, {differ} with another record; refused: {refused:#?}");
    assert!(
        refused.is_empty() && shapes > 700 && others > 3000 && differ > 1500,
        "{shapes} {others} {differ} {refused:?}"
    );
}
