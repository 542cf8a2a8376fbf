//! Properties of generated modules.

mod support;

use mir::{Module, parse, print, verify};
use random::Random;
use support::{arena, generated, run};

fn violations(module: &Module) -> String {
    verify(module).iter().map(|violation| format!("{violation}\n")).collect()
}

#[test]
fn generated_modules_are_well_formed() {
    for (seed, module) in generated(0..1500) {
        let violations = violations(&module);
        assert!(violations.is_empty(), "seed {seed}: {violations}{module}");
    }
}

#[test]
fn what_is_printed_is_read_as_the_same() {
    for (seed, module) in generated(0..1500) {
        let text = print(&module);
        let again = parse(&text).unwrap_or_else(|e| panic!("seed {seed}: {e}\n{text}"));
        assert_eq!(print(&again), text, "seed {seed}");
        assert_eq!(violations(&again), "", "seed {seed}");
        for numbers in [[1, 2], [u64::MAX, 1 << 40]] {
            assert_eq!(run(&module, numbers, arena(seed)), run(&again, numbers, arena(seed)), "seed {seed}\n{text}");
        }
    }
}

#[test]
fn damaged_texts_are_refused_or_read() {
    let mut random = Random::new(5);
    let (mut refused, mut read) = (0, 0);
    for (_, module) in generated(0..300) {
        let mut text: Vec<u8> = print(&module).into_bytes();
        for _ in 0..1 + random.below(3) {
            let at = random.index(text.len());
            match random.below(6) {
                0 => text[at] = *random.pick(b"v0 @,+.:bi#-9x\n"),
                // Changes a number, of a value or block for example.
                1..=3 => {
                    let digits: Vec<usize> = (0..text.len()).filter(|i| text[*i].is_ascii_digit()).collect();
                    text[*random.pick(&digits)] = b'0' + random.below(10) as u8;
                }
                4 => _ = text.remove(at),
                _ => text.insert(at, *random.pick(b"v0 @,+.:bi#-9x\n")),
            }
        }
        // Neither parsing nor verifying panics.
        match parse(&String::from_utf8_lossy(&text)) {
            Ok(module) => {
                if verify(&module).is_empty() && module.functions.iter().all(|f| f.params().len() == 3) {
                    _ = run(&module, [1, 2], arena(0));
                }
                read += 1;
            }
            Err(_) => refused += 1,
        }
    }
    assert!(refused > 20 && read > 20, "{refused} {read}");
}
