//! Manual pages and completions, which need no daemon.

use clap::CommandFactory;
use dolmen_api::ExitCode;

use super::fake::{NOBODY, Person, run};
use crate::arguments::Arguments;

#[test]
fn commands_that_ask_nobody_need_no_daemon() {
    let nobody = Person { ..NOBODY };
    let ended = run(&["dolmen", "--socket", "/nowhere", "completion", "bash"], &nobody);
    assert_eq!(ended.code, ExitCode::Ok);
    assert!(ended.results.contains("_dolmen()"));
    let folder = tempfile::tempdir().unwrap();
    let pages = folder.path().join("man1");
    assert_eq!(run(&["dolmen", "man", pages.to_str().unwrap()], &nobody).code, ExitCode::Ok);
    let main = std::fs::read_to_string(pages.join("dolmen.1")).unwrap();
    assert!(main.contains("Exit codes") && main.contains("not now: busy"), "{main}");
    assert!(pages.join("dolmen-space-create.1").exists());
}

/// A page for each command, and each of its options on it; every shell completes every command and every long option.
#[test]
fn manual_and_completion_know_every_command_and_option() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(run(&["dolmen", "man", folder.path().to_str().unwrap()], &NOBODY).code, ExitCode::Ok);
    let shells = ["bash", "elvish", "fish", "powershell", "zsh"];
    let scripts = shells.map(|shell| run(&["dolmen", "completion", shell], &NOBODY).results);
    let mut options = 0;
    let mut root = Arguments::command();
    root.build();
    let mut waiting = vec![("dolmen".to_owned(), root)];
    while let Some((name, command)) = waiting.pop() {
        let page = std::fs::read_to_string(folder.path().join(format!("{name}.1"))).unwrap();
        let page = page.replace("\\*(Aq", "'").replace('\\', "");
        assert!(page.contains(&format!("{name} -")), "the page of {name} begins with its name: {page}");
        let lines = crate::manual::synopsis(&command).replace('\n', "\n.br\n");
        assert!(page.contains(&format!(".SH SYNOPSIS\n{lines}\n.SH ")), "{name}: {page}");
        for argument in command.get_arguments().filter(|one| !one.is_hide_set()) {
            let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
            assert!(!help.is_empty(), "{name}: {} has no text", argument.get_id());
            let begin = help.split_whitespace().take(3).collect::<Vec<_>>().join(" ");
            assert!(page.contains(&begin), "{name}: the page has no text of {}: {begin}", argument.get_id());
        }
        let is_needed = |one: &&clap::Arg| one.is_required_set() && one.get_action().takes_values();
        for argument in command.get_arguments().filter(is_needed) {
            let value = argument.get_value_names().unwrap()[0].as_str();
            assert!(lines.contains(value), "{name}: {value} is not in {lines}");
        }
        for long in command.get_arguments().filter(|one| !one.is_hide_set()).filter_map(clap::Arg::get_long) {
            assert!(page.contains(&format!("--{long}")), "{name}: --{long}");
            for (shell, script) in shells.iter().zip(&scripts) {
                assert!(script.contains(long), "{shell}: {name} --{long}");
            }
            options += 1;
        }
        for one in command.get_subcommands() {
            for (shell, script) in shells.iter().zip(&scripts) {
                assert!(script.contains(one.get_name()), "{shell}: {name} {}", one.get_name());
            }
            waiting.push((format!("{name}-{}", one.get_name()), one.clone()));
        }
    }
    assert!(options > 80, "{options} options were looked for");
}

#[test]
fn a_folder_for_pages_that_cannot_be_used_is_named_with_its_reason() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    for (path, finding) in
        [(file.clone(), "it is no folder"), (folder.path().join("a/b"), "the folder above it does not exist")]
    {
        let ended = run(&["dolmen", "man", path.to_str().unwrap()], &NOBODY);
        assert_eq!(ended.code, ExitCode::Usage);
        let path = path.display();
        assert!(
            ended.messages.contains(&format!("{path}: {finding}; no page was written\nhint: ")),
            "{}",
            ended.messages
        );
    }
}
