//! Paths of generated programs, against the interpreter. `SLUICE_ROUNDS` runs more of them.

mod common;

use common::{Outcome, Script, Subject, matches, rounds, script};
use ir::Program;
use random::Random;
use std::collections::BTreeMap;

/// Frames of few different bytes, so that decisions agree.
fn frame(random: &mut Random) -> Vec<u8> {
    let len = random.range(0, 90);
    (0..len)
        .map(|_| if random.one_in(2) { random.next_u64() as u8 } else { *random.pick(&[0, 1, 2, 3, 0xff]) })
        .collect()
}

/// The program without what no path can have, mostly.
fn without(program: &mut Program, random: &mut Random) {
    use ir::Op;
    let keeps = random.one_in(8);
    for block in program.stages.iter_mut().flat_map(|stage| &mut stage.blocks) {
        for inst in &mut block.insts {
            let dst = match &inst.op {
                Op::Digest { .. } | Op::Log { .. } | Op::Assert { .. } | Op::RegisterWrite { .. } => None,
                Op::RegisterRead { dst, .. } | Op::Random { dst, .. } | Op::Meter { dst, .. } => Some(*dst),
                Op::Hash { dst, payload: true, .. } => Some(*dst),
                Op::Hash { dst, algorithm: ir::HashAlgorithm::Random, .. } => Some(*dst),
                Op::Apply { hit, .. } => Some(*hit),
                _ => continue,
            };
            if keeps || matches!(inst.op, Op::Apply { .. }) {
                continue;
            }
            inst.op = match dst {
                Some(dst) => Op::Mov { dst, src: base::Bits::zero(program.slots[dst.index()].width).into() },
                None => Op::Mark(ir::Mark::Block("left out".to_string())),
            };
        }
    }
}

#[test]
fn paths_of_generated_programs_do_what_the_programs_do() {
    let (mut traced, mut refused, mut others, mut sent) = (0, BTreeMap::new(), 0, 0);
    for seed in 0..rounds(300) {
        let mut random = Random::stream(seed, 1);
        let choices: Vec<u8> = (0..1200).map(|_| random.next_u64() as u8).collect();
        let mut program = ir::generate::generate(&choices);
        without(&mut program, &mut random);
        let subject = Subject::new(program);
        for _ in 0..8 {
            let (frame, script) = (frame(&mut random), script(&subject, &mut random));
            match subject.trace(&frame, &script, None) {
                Ok(path) => {
                    traced += 1;
                    sent += u32::from(matches!(subject.run(&frame, &script), Outcome::Sent(..)));
                    others += subject.check(&frame, &script, &path, &mut random, 12);
                }
                Err(why) => {
                    let text: String = why.to_string().chars().filter(|c| !c.is_ascii_digit()).collect();
                    *refused.entry(text).or_insert(0) += 1;
                }
            }
        }
    }
    println!("{traced} paths, {sent} of frames that are sent, {others} other frames; refused: {refused:#?}");
    assert!(traced > 300 && sent > 100 && others > 1000, "{traced} {sent} {others}");
}

#[test]
fn a_frame_that_is_sent_as_it_came_is_any_frame() {
    let subject = Subject::new(ir::generate::generate(&[]));
    let script = Script { commands: Vec::new(), is_modified: true };
    let path = subject.trace(&[1, 2, 3], &script, None).expect("it is traced");
    assert!(matches(&path.pattern, &[1, 2, 3]));
}
