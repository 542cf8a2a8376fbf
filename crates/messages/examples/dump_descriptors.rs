//! Writes the embedded descriptor set to the file named as the only argument, for `tests/py/test_descriptors.py` and for
//! tools that take one (`grpcurl -protoset`).

fn main() -> std::process::ExitCode {
    let Some(path) = std::env::args_os().nth(1) else {
        eprintln!("usage: dump_descriptors <file>");
        return std::process::ExitCode::from(2);
    };
    match std::fs::write(&path, messages::FILE_DESCRIPTOR_SET) {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("cannot write {}: {error}", path.display());
            std::process::ExitCode::FAILURE
        }
    }
}
