//! Paths of generated programs, against the interpreter. `SLUICE_ROUNDS` runs more of them.

mod common;

use common::{Outcome, Script, Subject, few_bytes, left_out, matches, rounds, script};
use flowcache::trace::Entries;
use random::Random;
use std::collections::BTreeMap;

#[test]
fn paths_of_generated_programs_do_what_the_programs_do() {
    let (mut traced, mut refused, mut others, mut sent) = (0, BTreeMap::new(), 0, 0);
    for seed in 0..rounds(150) {
        let mut random = Random::stream(seed, 1);
        let choices: Vec<u8> = (0..1200).map(|_| random.next_u64() as u8).collect();
        let mut program = ir::generate::generate(&choices);
        left_out(&mut program, random.one_in(8));
        let mut entries = Entries::new(&program);
        let subject = Subject::new(program);
        for _ in 0..8 {
            let (frame, script) = (few_bytes(&mut random, 90), script(&subject, &mut random));
            match subject.trace(&frame, &script, Some(&mut entries)) {
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
