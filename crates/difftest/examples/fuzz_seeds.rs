//! Writes the first inputs of each fuzz target to a folder per target below the one named: `cargo xtask fuzz` does this
//! before it fuzzes. Inputs that are there already stay.

use std::path::Path;
use std::process::ExitCode;

fn main() -> std::io::Result<ExitCode> {
    let Some(root) = std::env::args_os().nth(1) else {
        eprintln!("usage: fuzz_seeds <folder>");
        return Ok(ExitCode::from(2));
    };
    for (target, name, bytes) in difftest::fuzz::seeds() {
        let folder = Path::new(&root).join(target);
        std::fs::create_dir_all(&folder)?;
        std::fs::write(folder.join(name), bytes)?;
    }
    Ok(ExitCode::SUCCESS)
}
