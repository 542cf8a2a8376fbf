//! Verified programs to machine code: machine-level IR, its passes, and its back end.

use crate::code::Compiled;
use crate::lower::lower;
use crate::verified::Verified;
use codegen::{Error, Options};

/// Compiles a program. `None` if no code is made for this machine.
pub(crate) fn compile(program: &Verified) -> Result<Option<Compiled>, String> {
    let mut module = lower(program);
    mir::passes::optimise(&mut module, &[]);
    match codegen::compile(&module, &Options::default()) {
        Ok(code) => Ok(Some(Compiled::new(code))),
        Err(Error::Machine(_)) => Ok(None),
        Err(error) => Err(error.to_string()),
    }
}
