//! Compiles verified programs: lowering to machine-level IR, its passes, code generation.

use crate::code::Compiled;
use crate::lower::lower;
use crate::verified::Verified;
use codegen::{Error, Options};

/// The machine code of a program; `None` if the machine has no code generator.
pub(crate) fn compile(program: &Verified) -> Result<Option<Compiled>, String> {
    let mut module = lower(program);
    mir::passes::optimise(&mut module, &[]);
    match codegen::compile(&module, &Options::default()) {
        Ok(code) => Ok(Some(Compiled::new(code))),
        Err(Error::Machine(_)) => Ok(None),
        Err(error) => Err(error.to_string()),
    }
}
