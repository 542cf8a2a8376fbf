//! The child process: reads a request, enters the sandbox, compiles, writes the response and exits.
//!
//! Nothing is freed, because the process exits after the response. Exit codes: 0 responded, or there was no request; 3
//! no memory for a thread; 101 the compiler panicked, with the message on stderr.

use super::cage;
use super::protocol::{Request, Response, Source, source_texts};
use control::forwarding::Refusal;
use frontend::form::Embedded;
use frontend::{Compiled, Input, Until, self_contained};
use std::io::Write;
use std::process::ExitCode;

/// The message on stderr of a child that cannot start its compiling thread.
pub const NO_MEMORY: &str = "no memory for the compiler's thread";

/// Runs the child.
pub fn main() -> ExitCode {
    datapath::descriptors::close_inherited();
    // The name in `top` and `ps`; otherwise it would be `exe`, from the link that was executed.
    let _ = rustix::thread::set_name(c"sluice-compile");
    let Some(request) = Request::read(std::io::stdin().lock()) else {
        // The switch has ended, or does not need this child.
        return ExitCode::SUCCESS;
    };
    if let Some(limits) = request.limits() {
        cage::enter(&request, &limits);
    }
    let compile = move || {
        cage::allow_no_process();
        answer(&request, true).encode()
    };
    let thread = std::thread::Builder::new().name("compile".into()).stack_size(frontend::STACK_BYTES).spawn(compile);
    let Ok(thread) = thread else {
        eprintln!("{NO_MEMORY}");
        std::process::exit(3);
    };
    match thread.join() {
        Ok(bytes) => {
            let mut out = std::io::stdout().lock();
            // An error means that the parent no longer wants the response.
            let _ = out.write_all(&bytes).and_then(|()| out.flush());
            std::process::exit(0);
        }
        // The panic message is on stderr.
        Err(_) => std::process::exit(101),
    }
}

/// Compiles in this process, on a thread with a large enough stack.
///
/// # Errors
/// If the thread cannot be started.
pub fn run_on_a_thread(request: Request) -> Result<Response, Refusal> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("compile".into()).stack_size(frontend::STACK_BYTES);
        let started = thread.spawn_scoped(scope, move || answer(&request, false));
        let thread = started.map_err(|error| Refusal::Unavailable(format!("no thread to compile in: {error}")))?;
        Ok(thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}

/// Compiles a request into a response. `last` says that the process exits afterwards, so nothing is freed.
fn answer(request: &Request, last: bool) -> Response {
    let options = request.options();
    let input = match &request.source {
        Source::Text { name, text } => Input::Text { name, text },
        Source::File(path) => Input::File(path),
    };
    let compiled = match frontend::compile_on_this_stack(input, &options, Until::Ir) {
        Ok(compiled) => compiled,
        Err(error) => {
            let name = match &request.source {
                Source::Text { name, .. } => name.clone(),
                Source::File(path) => path.display().to_string(),
            };
            return Response { unreadable: Some(format!("cannot read {name}: {error}")), ..Response::default() };
        }
    };
    let wants = request.wants;
    let program = if wants.raw { &compiled.raw } else { &compiled.optimised };
    let mut response = Response {
        failed: compiled.failed(),
        messages: compiled.render(wants.colour),
        first_error: first_error(&compiled),
        unloadable: compiled.render_unloadable(wants.colour),
        program: program.as_ref().map(ir::print),
        p4info: compiled.p4info.as_deref().cloned(),
        sources: if wants.sources { source_texts(&compiled.sources) } else { Vec::new() },
        ..Response::default()
    };
    if let (true, Source::File(path)) = (wants.self_contained && !response.failed, &request.source) {
        match self_contained(path, &compiled.sources, &options) {
            Ok(text) => {
                // Embedded include files are the same for a text, so they need not be part of it.
                let says_it = |main: &base::span::SourceFile| {
                    let carried =
                        Embedded { source: main.text.to_string(), name: main.name.clone(), bmv2: options.bmv2 };
                    options.bmv2 && carried.to_json() == text
                };
                let main = compiled.sources.files().next();
                response.same_as_text = main.is_some_and(|main| *main.text == *text || says_it(main));
                response.self_contained = Some(text.into_bytes());
            }
            Err(error) => response.unreadable = Some(format!("cannot read {}: {error}", path.display())),
        }
    }
    if let (true, Source::Text { name, text }) = (wants.described && !response.failed, &request.source) {
        response.described = crate::bmv2::compiler::json(&compiled, name, text, options.bmv2).ok();
    }
    if last {
        // Freeing a large program takes as long as some passes.
        std::mem::forget(compiled);
    }
    response
}

fn first_error(compiled: &Compiled) -> Option<String> {
    let first = compiled.diagnostics.iter().find(|d| d.severity == base::Severity::Error);
    first.map(|d| d.code.to_string())
}
