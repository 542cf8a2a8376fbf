//! What an entry was compiled to, for people: Cranelift's form and machine code, with the parts of the P4 program that they
//! come from as comments.
//!
//! The code is that of `compile`; it is made and never linked, so calls go to the runtime's addresses and nothing can run.
//! On processors other than x86-64 the assembly is Cranelift's own text, which has no places.

use crate::places::{CodePlace, Place};
use crate::stage::report::Stages;
use base::Span;
use ir::EntryKind;
use std::fmt::Write;

/// An entry, compiled.
#[derive(Debug)]
pub struct Listing {
    /// Which.
    pub kind: EntryKind,
    /// How packets go through it.
    pub stages: Stages,
    /// Machine code.
    pub code: Vec<u8>,
    /// What part of the program each byte comes from, without gaps.
    pub places: Vec<CodePlace>,
    /// Cranelift's text form before its optimisations, with source locations that are numbers of `numbered`.
    pub(crate) clif: String,
    pub(crate) numbered: Vec<Place>,
    /// Cranelift's assembly.
    pub(crate) vcode: String,
}

impl Listing {
    /// Cranelift's form. `source` gives the text of a place in the source, if there is one.
    pub fn clif(&self, source: &dyn Fn(Span) -> Option<String>) -> String {
        let mut out = String::new();
        let mut last = None;
        for line in self.clif.lines() {
            let located = line.trim_start().strip_prefix('@').and_then(|l| l.split_once(' '));
            let Some((number, text)) = located else {
                let _ = writeln!(out, "{line}");
                continue;
            };
            let place = u32::from_str_radix(number, 16).ok().and_then(|n| self.numbered.get(n as usize));
            if let Some(place) = place.filter(|p| last != Some(*p)) {
                let _ = writeln!(out, "{}", comment(place, source));
                last = Some(place);
            }
            let _ = writeln!(out, "    {}", text.trim_start());
        }
        out
    }

    /// Machine code: offset, instruction. `source` as for [`Listing::clif`].
    #[cfg(target_arch = "x86_64")]
    pub fn asm(&self, source: &dyn Fn(Span) -> Option<String>) -> String {
        use iced_x86::{Decoder, DecoderOptions, Formatter, Instruction, IntelFormatter};
        let mut decoder = Decoder::new(64, &self.code, DecoderOptions::NONE);
        let mut formatter = IntelFormatter::new();
        let options = formatter.options_mut();
        options.set_hex_prefix("0x");
        options.set_hex_suffix("");
        options.set_branch_leading_zeros(false);
        options.set_space_after_operand_separator(true);
        options.set_small_hex_numbers_in_decimal(true);
        let mut instruction = Instruction::default();
        let (mut out, mut text) = (String::new(), String::new());
        let mut places = self.places.iter().peekable();
        let mut last = None;
        while decoder.can_decode() {
            decoder.decode_out(&mut instruction);
            let at = instruction.ip() as u32;
            while places.next_if(|p| p.end <= at).is_some() {}
            if let Some(place) = places.peek().map(|p| &p.place).filter(|p| last != Some(*p)) {
                let _ = writeln!(out, "{}", comment(place, source));
                last = Some(place);
            }
            text.clear();
            formatter.format(&instruction, &mut text);
            let _ = writeln!(out, "  {at:6x}  {text}");
        }
        out
    }

    /// Cranelift's assembly.
    #[cfg(not(target_arch = "x86_64"))]
    pub fn asm(&self, _: &dyn Fn(Span) -> Option<String>) -> String {
        self.vcode.clone()
    }

    /// Cranelift's assembly, with its names of blocks and registers.
    pub fn vcode(&self) -> &str {
        &self.vcode
    }
}

fn comment(place: &Place, source: &dyn Fn(Span) -> Option<String>) -> String {
    match source(place.span) {
        Some(text) => format!("; {}  {text}", place.region),
        None => format!("; {}", place.region),
    }
}
