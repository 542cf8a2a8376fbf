//! Listings of an entry point's code for display: Cranelift's IR and machine code, commented with the parts of the P4
//! program that they come from.
//!
//! The code is that of `compile`. It is generated and never linked, so calls go to the runtime's addresses and nothing
//! can run. On other processors than x86-64 the assembly is Cranelift's own text, without locations.

use crate::source_map::{CodeRange, Location};
use crate::stage::report::Stages;
use base::Span;
use ir::EntryKind;
use std::fmt::Write;

/// The compiled code of an entry point.
#[derive(Debug)]
pub struct Listing {
    /// The kind of the entry point.
    pub kind: EntryKind,
    /// How packets go through it.
    pub stages: Stages,
    /// Machine code.
    pub code: Vec<u8>,
    /// The part of the program that each byte comes from, without gaps.
    pub locations: Vec<CodeRange>,
    /// Cranelift's text form before its optimisations, with indices in `numbered` as source locations.
    pub(crate) clif: String,
    pub(crate) numbered: Vec<Location>,
    /// Cranelift's assembly.
    pub(crate) vcode: String,
}

impl Listing {
    /// Cranelift's IR. `source` returns the text of a location in the source, if there is one.
    pub fn clif(&self, source: &dyn Fn(Span) -> Option<String>) -> String {
        let mut out = String::new();
        let mut last = None;
        for line in self.clif.lines() {
            let located = line.trim_start().strip_prefix('@').and_then(|l| l.split_once(' '));
            let Some((number, text)) = located else {
                let _ = writeln!(out, "{line}");
                continue;
            };
            let location = u32::from_str_radix(number, 16).ok().and_then(|n| self.numbered.get(n as usize));
            if let Some(location) = location.filter(|p| last != Some(*p)) {
                let _ = writeln!(out, "{}", comment(location, source));
                last = Some(location);
            }
            let _ = writeln!(out, "    {}", text.trim_start());
        }
        out
    }

    /// Machine code: offset and instruction. `source` as for [`Listing::clif`].
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
        let mut locations = self.locations.iter().peekable();
        let mut last = None;
        while decoder.can_decode() {
            decoder.decode_out(&mut instruction);
            let at = instruction.ip() as u32;
            while locations.next_if(|p| p.end <= at).is_some() {}
            if let Some(location) = locations.peek().map(|p| &p.location).filter(|p| last != Some(*p)) {
                let _ = writeln!(out, "{}", comment(location, source));
                last = Some(location);
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

fn comment(location: &Location, source: &dyn Fn(Span) -> Option<String>) -> String {
    match source(location.span) {
        Some(text) => format!("; {}  {text}", location.region),
        None => format!("; {}", location.region),
    }
}
