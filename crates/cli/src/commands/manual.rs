//! The manual pages and completion scripts, made of the same definition as the parser.
//!
//! Names of pools, spaces, disks, jobs and codes are added to the scripts of bash, zsh and fish: see `complete`.

use std::io;
use std::path::{Path, PathBuf};

use clap::CommandFactory;
use clap_complete::Shell;
use dolmen_api::ExitCode;

use crate::arguments::Arguments;
use crate::error::{CliError, Failure};

/// Returns the completion script of a shell: of commands and options by the definition, of names by asking `complete`.
pub(crate) fn completion(shell: clap_complete::Shell) -> String {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), "dolmen", &mut script);
    let script = String::from_utf8_lossy(&script).into_owned();
    match shell {
        Shell::Bash => script.replace("-F _dolmen ", "-F _dolmen_names ") + BASH_NAMES,
        // Its last lines call the function, or register it.
        Shell::Zsh => script
            .replacen("\n_dolmen() {", &format!("\n{ZSH_NAMES}\n_dolmen() {{"), 1)
            .replace(":_default", ":_dolmen_names"),
        // An option with a value that is no path offers what is its own alone.
        Shell::Fish => script.replace(" -r\n", " -r -f -a \"(__dolmen_names)\"\n") + FISH_NAMES,
        _ => script,
    }
}

/// Asks for names first; without any, words that are placeholders of arguments are dropped from the others. A word may hold a
/// colon, at which bash has cut it.
const BASH_NAMES: &str = r#"
_dolmen_names() {
    local line="${COMP_LINE:0:COMP_POINT}" name prefix
    local -a words names=() kept=()
    read -a words <<< "$line"
    [[ $line == *[[:space:]] ]] && words+=("")
    while (( ${#words[@]} )) && [[ ${words[0]##*/} != dolmen ]]; do words=("${words[@]:1}"); done
    if (( ${#words[@]} > 1 )); then
        prefix="${words[-1]%"$2"}"
        while IFS= read -r name; do
            names+=("${name#"$prefix"}")
        done < <(command "${words[0]}" completion bash -- "${words[@]:1}" 2>/dev/null)
    fi
    if (( ${#names[@]} )); then
        COMPREPLY=()
        for name in "${names[@]}"; do COMPREPLY+=("$(printf %q "$name")"); done
        [[ ${#names[@]} == 1 && ${names[0]} == */ ]] && compopt -o nospace 2>/dev/null
        return 0
    fi
    _dolmen "$@"
    for name in "${COMPREPLY[@]}"; do [[ $name == [\<\[]* ]] || kept+=("$name"); done
    COMPREPLY=("${kept[@]}")
}
"#;

/// Asks for names where the definition knows no values, and leaves the rest to the shell.
const ZSH_NAMES: &str = r#"
_dolmen_names() {
    local -a typed names
    local at
    typed=("${(@Q)${(z)LBUFFER}}")
    [[ $LBUFFER == *[[:space:]] ]] && typed+=("")
    at=${typed[(I)(*/|)dolmen]}
    (( at )) && names=("${(@f)$(command "${typed[at]}" completion zsh -- "${(@)typed[at+1,-1]}" 2>/dev/null)}")
    if [[ -z $names[1] ]]; then
        _default
    elif [[ $names[1] == */ ]]; then
        compadd -S "" -a names
    else
        compadd -a names
    fi
}
"#;

/// Asks for names; where there are any, files are not offered.
const FISH_NAMES: &str = r#"
function __dolmen_names
    set -l typed (commandline -opc)
    set -l current (commandline -ct)
    command $typed[1] completion fish -- $typed[2..] "$current" 2>/dev/null
end
function __dolmen_has_names
    set -l names (__dolmen_names)
    test (count $names) -gt 0
end
complete -c dolmen -n __dolmen_has_names -f -k -a "(__dolmen_names)"
"#;

/// The folder for the manual pages cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("writing the manual pages into {}: {}; no page was written", folder.display(), finding(reason))]
pub(crate) struct FolderError {
    /// The folder.
    folder: PathBuf,
    /// The system's reason.
    reason: io::Error,
}

fn finding(reason: &io::Error) -> String {
    match reason.kind() {
        io::ErrorKind::NotFound => "the folder above it does not exist".to_owned(),
        io::ErrorKind::AlreadyExists | io::ErrorKind::NotADirectory => "it is no folder".to_owned(),
        _ => reason.to_string(),
    }
}

impl Failure for FolderError {
    fn exit(&self) -> ExitCode {
        match self.reason.kind() {
            io::ErrorKind::PermissionDenied => ExitCode::Permission,
            io::ErrorKind::NotFound | io::ErrorKind::AlreadyExists | io::ErrorKind::NotADirectory => {
                ExitCode::Usage
            }
            _ => ExitCode::Io,
        }
    }

    fn hint(&self) -> Option<String> {
        let what = match self.reason.kind() {
            io::ErrorKind::PermissionDenied => "run it as root, or name a folder of yours",
            io::ErrorKind::NotFound => "make the folder above it first, or name one that exists",
            _ => "name a folder, such as /usr/local/share/man/man1",
        };
        Some(what.to_owned())
    }
}

/// Writes a page for each command into a folder, which is made if need be, and returns the number of pages.
pub(crate) fn write_pages(folder: &Path) -> Result<usize, CliError> {
    let unwritable = |source| CliError::Write { path: folder.to_path_buf(), source };
    match std::fs::create_dir(folder) {
        Err(reason) if !folder.is_dir() => {
            return Err(FolderError { folder: folder.to_path_buf(), reason }.into());
        }
        Err(_) | Ok(()) => {}
    }
    let mut pages = 0;
    let mut root = Arguments::command();
    root.build();
    let mut waiting = vec![root];
    while let Some(command) = waiting.pop() {
        waiting.extend(command.get_subcommands().filter(|one| !one.is_hide_set()).cloned());
        // The generator leaves the text of options out that a short help hides.
        let man = clap_mangen::Man::new(command.clone().mut_args(|option| option.hide_short_help(false)));
        let mut page = Vec::new();
        man.render(&mut page).map_err(unwritable)?;
        let page = with_synopsis(&String::from_utf8_lossy(&page), &synopsis(&command));
        std::fs::write(folder.join(man.get_filename()), page).map_err(unwritable)?;
        pages += 1;
    }
    Ok(pages)
}

/// Returns the lines of usage, as errors and help print them: with the values of options that are needed.
pub(crate) fn synopsis(command: &clap::Command) -> String {
    let usage = command.clone().render_usage().to_string();
    let lines = usage.trim_start_matches("Usage:").lines().map(str::trim);
    lines.filter(|line| !line.is_empty()).collect::<Vec<_>>().join("\n")
}

/// Returns a page with this synopsis in the place of the one that it has, which names options without their values.
fn with_synopsis(page: &str, synopsis: &str) -> String {
    let lines = synopsis.replace('\\', "\\\\").replace('-', "\\-").replace('\n', "\n.br\n");
    match page.split_once(".SH SYNOPSIS\n") {
        Some((before, after)) => {
            let rest = after.find(".SH ").and_then(|end| after.get(end..)).unwrap_or_default();
            format!("{before}.SH SYNOPSIS\n{lines}\n{rest}")
        }
        None => page.to_owned(),
    }
}
