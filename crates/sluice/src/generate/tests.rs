use super::{completions, manual_pages};
use clap::CommandFactory;

#[test]
fn each_subcommand_that_help_lists_has_a_manual_page() {
    let folder = tempfile::tempdir().unwrap();
    manual_pages(crate::Cli::command(), folder.path()).unwrap();
    let command = crate::Cli::command();
    let names: Vec<&str> = command.get_subcommands().filter(|c| !c.is_hide_set()).map(|c| c.get_name()).collect();
    assert!(names.len() > 15, "{names:?}");
    for name in names {
        let page = std::fs::read_to_string(folder.path().join(format!("sluice-{name}.1"))).unwrap();
        assert!(page.contains(".SH OPTIONS") || page.contains(".SH SYNOPSIS"), "{name}: {page}");
    }
    assert!(std::fs::read_to_string(folder.path().join("sluice.1")).unwrap().contains("sluice\\-run(1)"));
}

#[test]
fn completion_files_call_the_command() {
    let folder = tempfile::tempdir().unwrap();
    completions(folder.path()).unwrap();
    for (file, asks) in [("sluice.bash", "COMPLETE"), ("_sluice", "#compdef sluice"), ("sluice.fish", "COMPLETE")] {
        let text = std::fs::read_to_string(folder.path().join(file)).unwrap();
        assert!(text.contains(asks), "{file}: {text}");
    }
}
