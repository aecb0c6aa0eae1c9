//! Words of other systems, and the command here that does the same: a hint behind an error of the parser.
//!
//! Invariants:
//! - A hint is only text: no word of another system is carried out.
//! - Each entry names a command that exists, and no word that is a command itself (a test reads both from the parser).

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// A word that people try, and what does it here.
#[derive(Debug, Clone, Copy)]
struct Habit {
    /// The command in front of the word; empty for `dolmen` itself.
    group: &'static str,
    /// The word.
    word: &'static str,
    /// The command here.
    command: &'static str,
}

const fn habit(group: &'static str, word: &'static str, command: &'static str) -> Habit {
    Habit { group, word, command }
}

/// Commands of other systems.
const COMMANDS: [Habit; 67] = [
    habit("", "help", "dolmen --help"),
    habit("", "list", "dolmen pool list"),
    habit("", "show", "dolmen pool show POOL"),
    habit("", "create", "dolmen pool create POOL DISK..."),
    habit("", "destroy", "dolmen pool destroy POOL"),
    habit("", "import", "dolmen pool import"),
    habit("", "export", "dolmen pool export POOL"),
    habit("", "add", "dolmen pool add POOL DISK..."),
    habit("", "remove", "dolmen pool remove POOL DISK"),
    habit("", "rebalance", "dolmen pool rebalance POOL"),
    habit("", "balance", "dolmen pool rebalance POOL"),
    habit("", "clear", "dolmen pool acknowledge POOL"),
    habit("", "replace", "dolmen disk replace POOL OLD NEW"),
    habit("", "offline", "dolmen disk offline POOL DISK"),
    habit("", "online", "dolmen disk online POOL DISK"),
    habit("", "attach", "dolmen space attach POOL/SPACE"),
    habit("", "mount", "dolmen volume mount POOL/SPACE"),
    habit("", "umount", "dolmen volume unmount POOL/SPACE"),
    habit("", "volumes", "dolmen volume list"),
    habit("", "shares", "dolmen share list"),
    habit("", "quota", "dolmen volume quota list POOL/SPACE"),
    habit("", "detach", "dolmen space detach POOL/SPACE"),
    habit("", "resize", "dolmen space resize POOL/SPACE SIZE"),
    habit("", "convert", "dolmen space convert POOL/SPACE"),
    habit("", "rename", "dolmen space set POOL/SPACE --name NAME"),
    habit("", "delete", "dolmen space delete POOL/SPACE"),
    habit("", "restore", "dolmen trash restore POOL/SPACE"),
    habit("", "undelete", "dolmen trash restore POOL/SPACE"),
    habit("", "log", "dolmen events"),
    habit("", "usage", "dolmen df"),
    habit("", "pools", "dolmen pool list"),
    habit("", "disks", "dolmen disk list"),
    habit("", "spaces", "dolmen space list"),
    habit("pool", "help", "dolmen pool --help"),
    habit("pool", "status", "dolmen status"),
    habit("pool", "replace", "dolmen disk replace POOL OLD NEW"),
    habit("pool", "offline", "dolmen disk offline POOL DISK"),
    habit("pool", "online", "dolmen disk online POOL DISK"),
    habit("pool", "scrub", "dolmen scrub POOL"),
    habit("pool", "clear", "dolmen pool acknowledge POOL"),
    habit("pool", "attach", "dolmen pool add POOL DISK..."),
    habit("pool", "detach", "dolmen pool remove POOL DISK"),
    habit("pool", "delete", "dolmen pool destroy POOL"),
    habit("pool", "rename", "dolmen pool import --pool POOL --as NAME"),
    habit("pool", "iostat", "dolmen iostat POOL"),
    habit("pool", "events", "dolmen events --pool POOL"),
    habit("pool", "history", "dolmen events --pool POOL"),
    habit("pool", "df", "dolmen df POOL"),
    habit("disk", "help", "dolmen disk --help"),
    habit("disk", "status", "dolmen disk list"),
    habit("disk", "show", "dolmen why POOL/NUMBER"),
    habit("disk", "add", "dolmen pool add POOL DISK..."),
    habit("disk", "remove", "dolmen pool remove POOL DISK"),
    habit("disk", "fail", "dolmen disk offline POOL DISK"),
    habit("disk", "spare", "dolmen disk set POOL DISK --spare"),
    habit("space", "help", "dolmen space --help"),
    habit("space", "status", "dolmen space list"),
    habit("space", "rename", "dolmen space set POOL/SPACE --name NAME"),
    habit("space", "destroy", "dolmen space delete POOL/SPACE"),
    habit("space", "remove", "dolmen space delete POOL/SPACE"),
    habit("space", "restore", "dolmen trash restore POOL/SPACE"),
    habit("space", "extend", "dolmen space resize POOL/SPACE SIZE"),
    habit("space", "grow", "dolmen space resize POOL/SPACE SIZE"),
    habit("space", "serve", "dolmen serve POOL/SPACE"),
    habit("job", "list", "dolmen jobs"),
    habit("job", "cancel", "dolmen job stop JOB"),
    habit("trash", "empty", "dolmen trash purge --all POOL"),
];

/// Levels of other systems, as options of `space create` and as a kind of `plan`.
const LEVELS: [(&str, &str, &str); 17] = [
    ("raid0", "--resiliency simple", "simple"),
    ("stripe", "--resiliency simple", "simple"),
    ("striped", "--resiliency simple", "simple"),
    ("jbod", "--resiliency span", "span"),
    ("linear", "--resiliency span", "span"),
    ("single", "--resiliency span", "span"),
    ("raid1", "--resiliency mirror", "mirror:2"),
    ("raid10", "--resiliency mirror", "mirror:2"),
    ("raid1c3", "--resiliency mirror --copies 3", "mirror:3"),
    ("raid1c4", "--resiliency mirror --copies 4", "mirror:4"),
    ("raid5", "--resiliency parity", "parity:1"),
    ("raidz", "--resiliency parity", "parity:1"),
    ("raidz1", "--resiliency parity", "parity:1"),
    ("raid6", "--resiliency parity --parity 2", "parity:2"),
    ("raidz2", "--resiliency parity --parity 2", "parity:2"),
    ("raidz3", "--resiliency mirror --copies 4", "mirror:4"),
    ("dual", "--resiliency parity --parity 2", "parity:2"),
];

/// Returns what the line would be here, where it is a line of another system.
pub(crate) fn hint(error: &clap::Error, line: impl Iterator<Item = OsString>) -> Option<String> {
    let words: Vec<String> = line.map(|word| word.to_string_lossy().into_owned()).collect();
    match error.kind() {
        ErrorKind::InvalidSubcommand => of_command(&words, string_of(error, ContextKind::InvalidSubcommand)?),
        ErrorKind::InvalidValue | ErrorKind::ValueValidation => {
            let value = string_of(error, ContextKind::InvalidValue)?;
            let argument = string_of(error, ContextKind::InvalidArg)?;
            of_level(&words, argument, value).or_else(|| of_difference(&words, value))
        }
        ErrorKind::UnknownArgument => of_size(&words, string_of(error, ContextKind::InvalidArg)?),
        _ => None,
    }
}

fn string_of(error: &clap::Error, kind: ContextKind) -> Option<&str> {
    match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text),
        _ => None,
    }
}

/// The command for a word that is none, by what stands in front of it.
fn of_command(words: &[String], word: &str) -> Option<String> {
    let at = words.iter().position(|one| one == word)?;
    let before = at.checked_sub(1).and_then(|at| words.get(at)).map(String::as_str).unwrap_or_default();
    let in_group = |group: &str| COMMANDS.iter().find(|habit| habit.group == group && habit.word == word);
    let found = match COMMANDS.iter().any(|habit| habit.group == before) {
        true => in_group(before),
        // An option of every command and its value may stand there.
        false => in_group(""),
    };
    found.map(|habit| format!("that is `{}` here", habit.command))
}

/// The resiliency for a level of another system.
fn of_level(words: &[String], argument: &str, value: &str) -> Option<String> {
    if !argument.starts_with("--resiliency") {
        return None;
    }
    let value = value.to_ascii_lowercase();
    let (_, options, kind) = LEVELS.iter().find(|(level, ..)| *level == value)?;
    let here = match words.iter().any(|word| word == "plan") {
        true => format!("`--resiliency {kind}`"),
        false => format!("`{options}`"),
    };
    Some(match value.as_str() {
        "raidz3" => format!("there are no three parities; {here} survives three lost disks as well"),
        _ => format!("{value} is {here} here"),
    })
}

/// A size with a sign in front.
fn of_difference(words: &[String], value: &str) -> Option<String> {
    let is_difference = value.starts_with(['+', '-']) && value.contains(|one: char| one.is_ascii_digit());
    (is_difference && words.iter().any(|word| word == "resize")).then(|| {
        "write the whole size that the space is to have; `dolmen space show POOL/SPACE` prints the present one"
            .to_owned()
    })
}

/// A size where the command has an option for it, or an option where it has none.
fn of_size(words: &[String], argument: &str) -> Option<String> {
    let has = |word: &str| words.iter().any(|one| one == word);
    let is_size = |text: &str| text.parse::<dolmen_units::Bytes>().is_ok();
    if !has("space") {
        return None;
    }
    if has("create") && is_size(argument) {
        return Some(format!("a new space gets its size by an option: --size {argument}"));
    }
    let is_option = argument.starts_with("--size") || (has("--size") && is_size(argument));
    (has("resize") && is_option)
        .then(|| "the size stands alone: `dolmen space resize POOL/SPACE SIZE`".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::*;
    use crate::arguments::Arguments;

    fn hint_of(line: &str) -> Option<String> {
        let error = Arguments::try_parse_from(line.split_whitespace()).unwrap_err();
        hint(&error, line.split_whitespace().skip(1).map(OsString::from))
    }

    /// Every entry: the word is no command, and the command that is named exists with its options.
    #[test]
    fn each_habit_names_a_command_that_exists() {
        for Habit { group, word, command } in COMMANDS {
            let mut at = Arguments::command();
            for name in group.split_whitespace().chain([word]) {
                let next = at.get_subcommands().find(|one| one.get_name() == name).cloned();
                assert_eq!(next.is_none(), name == word, "dolmen {group} {word}");
                at = next.unwrap_or(at);
            }
            let mut at = Arguments::command();
            for name in command.split_whitespace().skip(1) {
                if let Some(option) = name.strip_prefix("--") {
                    let has = at.get_arguments().any(|one| one.get_long() == Some(option));
                    assert!(has || option == "help", "{command}");
                } else if name.starts_with(|one: char| one.is_ascii_lowercase()) {
                    let next = at.get_subcommands().find(|one| one.get_name() == name).cloned();
                    at = next.expect(command);
                }
            }
            let line = format!("dolmen {group} {word}");
            assert_eq!(hint_of(&line), Some(format!("that is `{command}` here")), "{line}");
            let line = format!("dolmen -o json {group} {word} tank");
            assert_eq!(hint_of(&line), Some(format!("that is `{command}` here")), "{line}");
        }
    }

    /// Every level: the options that are named make a space, the kind that is named can be planned for.
    #[test]
    fn each_level_names_a_resiliency_that_exists() {
        for (level, options, kind) in LEVELS {
            let line = format!("dolmen space create tank/x --size 1G --resiliency {level}");
            assert!(hint_of(&line).unwrap().contains(&format!("`{options}`")), "{line}");
            let line = format!("dolmen space create tank/x --size 1G {options}");
            assert!(crate::arguments::parse::parse(line.split_whitespace()).is_ok(), "{line}");
            let line = format!("dolmen plan 4x8TB -r {level}");
            assert!(hint_of(&line).unwrap().contains(&format!("`--resiliency {kind}`")), "{line}");
            let line = format!("dolmen plan 4x8TB -r {kind}");
            assert!(crate::arguments::parse::parse(line.split_whitespace()).is_ok(), "{line}");
        }
    }

    #[test]
    fn sizes_of_other_systems_get_a_hint() {
        for (line, expected) in [
            ("dolmen space resize tank/x +500M", "the whole size"),
            ("dolmen space resize tank/x --size 3G", "stands alone"),
            ("dolmen space create tank/x 1G", "--size 1G"),
        ] {
            let found = hint_of(line);
            assert!(found.as_ref().is_some_and(|hint| hint.contains(expected)), "{line}: {found:?}");
        }
    }

    /// What no other system calls so has no hint, and neither has a line that only lacks something.
    #[test]
    fn other_errors_get_no_hint() {
        for line in [
            "dolmen frobnicate",
            "dolmen pool",
            "dolmen space create tank/x --size",
            "dolmen space create tank/x --size 1G --resiliency marble",
            "dolmen space show",
            "dolmen df --marble",
        ] {
            assert_eq!(hint_of(line), None, "{line}");
        }
    }
}
