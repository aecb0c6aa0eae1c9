//! Rule: the project speaks the language of its field. Words that were invented for what has a standard term are refused,
//! with the term that replaces them.
//!
//! Whole words are refused in names: of files, modules, types, functions and tests, and of what the API and the command
//! line take and give. In prose and messages only phrases without an ordinary meaning are refused. Words that have one
//! are refused only where they were misused ([`Invented::only`]); single names that stay are in `words_allowed.toml`,
//! each with a reason. An entry there that allows nothing is a finding, too.

use crate::finding::Finding;
use crate::modules::RustFile;
use crate::source::split;
use crate::tokens::Token;
use crate::tree::Tree;
use serde::Deserialize;
use std::collections::BTreeSet;

/// The list of names that stay.
const ALLOWED: &str = "tools/tidy/words_allowed.toml";
/// Files that name what is refused, and data under names that were given to it elsewhere.
const EXEMPT: [&str; 5] =
    ["tools/tidy/src/invented.rs", ALLOWED, "tools/fuzz/corpus/", "docs/proof/ledger/", "Cargo.lock"];
/// Folders whose files are named by their subject.
const NAMED: [&str; 4] = ["crates/", "tools/", "scripts/", "docs/"];

/// A word, in all its forms, and the term that replaces it.
struct Invented {
    /// Separated by spaces; a form of several words has `_` between them.
    forms: &'static str,
    instead: &'static str,
    /// Where it was misused; everywhere if empty.
    only: &'static [&'static str],
}

const fn word(forms: &'static str, instead: &'static str) -> Invented {
    Invented { forms, instead, only: &[] }
}

const fn word_in(only: &'static [&'static str], forms: &'static str, instead: &'static str) -> Invented {
    Invented { forms, instead, only }
}

const SPACE: &[&str] = &["crates/space/src/"];
const ENGINE: &[&str] =
    &["crates/block_io/", "crates/journal/", "crates/store/", "crates/pool/", "crates/space/"];
const SIMULATED: &[&str] = &["crates/space/tests/", "tools/fuzz/", "tools/sim/"];

/// Refused in names.
const WORDS: [Invented; 40] = [
    word("heir heirs draft drafts drafted", "shadow row, with its purpose"),
    word("take_over takes_over took_over taken_over", "promote, or adopt"),
    word("give_back gives_back gave_back given_back", "drop, free or release"),
    word("undecided unresolved", "in doubt, or deferred"),
    word("said saying say_again", "re-log, log forwarding, or what the message is"),
    word("settled unsettled", "durable; unflushed"),
    word("bell bells rung", "notify, event"),
    word("gone", "detached, deleted, freed or lost"),
    word("give_up gives_up gave_up given_up", "release (a lease), abandon (a job), declare lost (data)"),
    word("write_off writes_off written_off writing_off", "declare lost"),
    word("outlive outlives outlived", "survive; surviving client"),
    word("seat seats seated", "attachment"),
    word("strike strikes struck", "evict (a member), remove (a record)"),
    word("sick ailing", "failing, degraded"),
    word("plight crowded", "backing-store state; backing store full"),
    word("silent patience haste", "unresponsive; timeout or hedge delay; read hedging"),
    word("pace paces paced", "throttle, rate or latency"),
    word("effort efforts", "priority"),
    word("usher looker asker scribe", "device worker, watcher, SMART worker, file I/O worker"),
    word("porter carrier lobby", "TLS acceptor, proxy, pending connections"),
    word("door doors guest guests", "listener; connection"),
    word("crew hire hired", "worker pool; spawn"),
    word("ways", "transports"),
    word("planted bug bugs", "mutant, mutation test"),
    word("liver deed deeds tape plot plots", "driver, operation, trace or recording, scenario"),
    word("judge judges wish wishes mishap", "oracle, settings or request, fault"),
    word("accident accidents remedy", "incident scenario; safeguard"),
    word("rotten lying_flush", "corrupt; dropped flush"),
    word("as_found as_it_was_found", "accepted unverified"),
    word("grain grains", "allocation unit"),
    word("keeper keepers", "descriptor holder"),
    word("behind", "after, stale or beyond"),
    word("beside", "in addition to, or concurrently with"),
    word("anew alike told", "again; the same; reported, logged or notified"),
    word("stands stood", "is; held"),
    word_in(SPACE, "line lines", "stripe"),
    word_in(SPACE, "stretch stretches home homes", "extent or run; main location"),
    word_in(ENGINE, "turn turns moment moments", "mutex; LSN, flush point or `Instant`"),
    word_in(SIMULATED, "life lives", "simulation run"),
    word_in(&["crates/space/", "tools/proof/"], "flip flips flipped", "alternating slots, switch of a slot"),
];

/// Refused in prose and messages: words side by side, lower case.
const PHRASES: [(&str, &str); 32] = [
    ("heir", "shadow row"),
    ("heirs", "shadow rows"),
    ("drafts", "shadow rows"),
    ("draft of", "shadow row of"),
    ("its row s place", "is promoted"),
    ("their rows places", "are promoted"),
    ("said again", "relogged"),
    ("says again", "relogs"),
    ("to and fro", "alternating"),
    ("undecided", "in doubt, or deferred"),
    ("unsettled", "unflushed"),
    ("written off", "declared lost"),
    ("writing off", "declaring lost"),
    ("outlive", "survive"),
    ("outlives", "survives"),
    ("outlived", "survived"),
    ("struck from", "removed from"),
    ("strike from", "remove from"),
    ("plight", "backing-store state"),
    ("usher", "device worker"),
    ("porter", "TLS acceptor"),
    ("lobby", "pending connections"),
    ("planted bug", "mutant"),
    ("planted bugs", "mutants"),
    ("mishap", "fault"),
    ("rotten", "corrupt"),
    ("lying flush", "dropped flush"),
    ("as found", "accepted unverified"),
    ("grain", "allocation unit"),
    ("grains", "allocation units"),
    ("keeper", "descriptor holder"),
    ("anew", "again"),
];

/// Names that stay although a word of them is refused.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Allowed {
    word: String,
    /// The names, or words of prose around it; empty where all are meant.
    #[serde(default)]
    names: Vec<String>,
    /// Beginnings of paths; empty where all are meant.
    #[serde(default)]
    paths: Vec<String>,
    reason: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    #[serde(default)]
    allow: Vec<Allowed>,
}

/// A name, and where it stands.
struct Named<'a> {
    path: &'a str,
    line: usize,
    name: String,
}

/// Checks the names of files and of what Rust files define, and the prose of all.
pub(crate) fn check(tree: &Tree, files: &[RustFile]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let list = match toml::from_str::<List>(tree.text(ALLOWED).unwrap_or_default()) {
        Ok(list) => list,
        Err(error) => {
            findings.push(Finding::new(ALLOWED, 0, format!("this cannot be read: {error}"), "mend it"));
            List::default()
        }
    };
    let mut used = BTreeSet::new();
    for named in names(tree, files).iter().filter(|named| !is_exempt(named.path)) {
        let words = words_of(&named.name);
        for (form, instead) in refused(named.path, &words) {
            if !is_allowed(&list, named.path, &form, &named.name, &mut used) {
                let what =
                    format!("{:?} in the name `{}` is an invented word", form.replace('_', " "), named.name);
                findings.push(Finding::new(named.path, named.line, what, format!("say {instead}")));
            }
        }
    }
    for (path, line, text) in prose(tree, files).iter().filter(|(path, ..)| !is_exempt(path)) {
        for (phrase, instead) in PHRASES.iter().filter(|(phrase, _)| text.contains(&format!(" {phrase} "))) {
            if !is_allowed(&list, path, phrase, text.trim(), &mut used) {
                let what = format!("{phrase:?} is an invented word");
                findings.push(Finding::new(path, *line, what, format!("say {instead}")));
            }
        }
    }
    for (at, entry) in list.allow.iter().enumerate() {
        if entry.reason.trim().is_empty() {
            findings.push(Finding::new(
                ALLOWED,
                0,
                format!("{:?} is allowed without a reason", entry.word),
                "say why",
            ));
        }
        if !used.contains(&at) {
            let what = format!(
                "the entry for {:?} in {:?} {:?} allows nothing",
                entry.word, entry.names, entry.paths
            );
            findings.push(Finding::new(ALLOWED, 0, what, "delete it"));
        }
    }
    findings
}

fn is_exempt(path: &str) -> bool {
    EXEMPT.iter().any(|start| path.starts_with(start))
}

fn is_allowed(list: &List, path: &str, form: &str, name: &str, used: &mut BTreeSet<usize>) -> bool {
    let mut is_allowed = false;
    for (at, entry) in list.allow.iter().enumerate() {
        let fits = entry.word == form
            && (entry.paths.is_empty() || entry.paths.iter().any(|start| path.starts_with(start)))
            && (entry.names.is_empty()
                || entry
                    .names
                    .iter()
                    .any(|allowed| name == allowed || name.contains(' ') && name.contains(allowed.as_str())));
        if fits {
            used.insert(at);
            is_allowed = true;
        }
    }
    is_allowed
}

/// The forms that a name holds and that are refused there, with what to say instead.
fn refused(path: &str, words: &[String]) -> Vec<(String, &'static str)> {
    let mut found = Vec::new();
    for invented in &WORDS {
        if !invented.only.is_empty() && !invented.only.iter().any(|start| path.starts_with(start)) {
            continue;
        }
        for form in invented.forms.split(' ') {
            let parts: Vec<&str> = form.split('_').collect();
            if words
                .windows(parts.len())
                .any(|some| some.iter().map(String::as_str).eq(parts.iter().copied()))
            {
                found.push((form.to_owned(), invented.instead));
            }
        }
    }
    found
}

/// The words of a name in snake, kebab or camel case, lower case.
fn words_of(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut before = ' ';
    for c in name.chars() {
        if !c.is_alphanumeric() || c.is_uppercase() && (before.is_lowercase() || before.is_numeric()) {
            words.push(String::new());
        }
        if let (true, Some(word)) = (c.is_alphanumeric(), words.last_mut()) {
            word.extend(c.to_lowercase());
        }
        before = c;
    }
    words.retain(|word| !word.is_empty());
    words
}

/// The names of files, of what Rust files define, and of the words of API and command line.
fn names<'a>(tree: &'a Tree, files: &'a [RustFile]) -> Vec<Named<'a>> {
    let mut names = Vec::new();
    for (path, _) in tree.all().filter(|(path, _)| NAMED.iter().any(|start| path.starts_with(start))) {
        let parts = path.split('/').skip(1);
        names.extend(parts.map(|part| Named { path, line: 0, name: part.to_owned() }));
    }
    for file in files {
        let defined = defined(&file.tokens).into_iter();
        names.extend(defined.map(|(line, name)| Named { path: &file.path, line, name }));
        let is_api = file.path.starts_with("crates/api/src/");
        if is_api || file.path.starts_with("crates/cli/src/arguments/") {
            let words = interface_words(&file.tokens).into_iter();
            names.extend(words.map(|(line, name)| Named { path: &file.path, line, name }));
        }
    }
    names
}

/// The modules, types, functions and macros that a file defines.
fn defined(tokens: &[Token]) -> Vec<(usize, String)> {
    let mut names = Vec::new();
    for pair in tokens.windows(2) {
        let [keyword, name] = pair else { continue };
        let defines =
            matches!(keyword.text.as_str(), "fn" | "struct" | "enum" | "trait" | "type" | "mod" | "union");
        if defines && name.text.starts_with(|c: char| c.is_alphabetic() || c == '_') {
            names.push((name.line, name.text.clone()));
        }
    }
    names
}

/// Fields, variants and words in quotes: what documents and command lines hold.
fn interface_words(tokens: &[Token]) -> Vec<(usize, String)> {
    let mut words = Vec::new();
    for three in tokens.windows(3) {
        let [before, token, after] = three else { continue };
        let is_field = before.text == "pub" && after.text == ":";
        let is_variant = matches!(before.text.as_str(), "{" | "," | "]")
            && token.text.starts_with(char::is_uppercase)
            && matches!(after.text.as_str(), "," | "(" | "{" | "=" | "}");
        let is_word = token.text.starts_with('"') && !token.text.contains(' ');
        if is_field || is_variant || is_word {
            words.push((token.line, token.text.trim_matches('"').to_owned()));
        }
    }
    words
}

/// Comments and strings of Rust files, documents and scripts, by line: the words in lower case with a space on each side.
fn prose<'a>(tree: &'a Tree, files: &'a [RustFile]) -> Vec<(&'a str, usize, String)> {
    let mut prose = Vec::new();
    for file in files {
        for (at, line) in split(&file.text).iter().enumerate() {
            let text = spaced(&format!("{} {}", outside_ticks(&line.comment), line.string));
            prose.push((file.path.as_str(), at + 1, text));
        }
    }
    let ending =
        |path: &str| [".md", ".sh", ".py", ".txt", ".toml"].iter().any(|ending| path.ends_with(ending));
    for (path, text) in
        tree.all().filter(|(path, _)| ending(path) || matches!(*path, "test" | "demo" | "Makefile"))
    {
        for (at, line) in text.lines().enumerate() {
            prose.push((path, at + 1, spaced(&outside_ticks(line))));
        }
    }
    prose
}

fn outside_ticks(line: &str) -> String {
    line.split('`').step_by(2).collect::<Vec<_>>().join(" ")
}

fn spaced(line: &str) -> String {
    let words: Vec<&str> =
        line.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty()).collect();
    format!(" {} ", words.join(" ").to_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(allowed: &str, path: &str, text: &str) -> Vec<String> {
        found_in(allowed, &[(path, text)])
    }

    fn found_in(allowed: &str, files: &[(&str, &str)]) -> Vec<String> {
        let roots =
            [("crates/space/Cargo.toml", ""), ("crates/api/Cargo.toml", ""), ("crates/cli/Cargo.toml", "")];
        let files = [&roots[..], &[(ALLOWED, allowed)], files].concat();
        let tree = Tree::of(&files);
        let house = crate::house::House::read(&tree).0;
        let (files, _) = crate::modules::read(&tree, &house);
        check(&tree, &files).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn invented_words_are_found_in_names_of_all_kinds() {
        for text in [
            "struct Heirs;",
            "fn strike_heir_not() {}",
            "mod haste {}",
            "#[test]\nfn what_was_settled_stays() {}",
            "enum Plight { A }",
            "trait Usher {}",
            "type Tape = u8;",
            "fn f() { fn is_given_up() {} }",
            "fn line_of() {}",
        ] {
            assert!(!found("", "crates/space/src/lib.rs", text).is_empty(), "{text}");
        }
        assert_eq!(
            found("", "crates/space/src/lib.rs", "\nfn write_off() {}"),
            [
                "crates/space/src/lib.rs:2: \"write off\" in the name `write_off` is an invented word; say declare lost"
            ]
        );
    }

    #[test]
    fn invented_words_are_found_in_file_names() {
        assert_eq!(found("", "docs/design/0007-heirs.md", "").len(), 1);
        assert_eq!(found("", "scripts/bugs.sh", "").len(), 1);
    }

    #[test]
    fn invented_words_are_found_in_the_api_and_on_the_command_line() {
        assert_eq!(found("", "crates/api/src/lib.rs", "pub struct A { pub plight: u8 }").len(), 1);
        assert_eq!(found("", "crates/api/src/lib.rs", "codes! { A = \"door_closed\" { } }").len(), 1);
        let arguments = "struct A { pub give_up: bool }";
        let tree =
            [("crates/cli/src/main.rs", "mod arguments;"), ("crates/cli/src/arguments/mod.rs", arguments)];
        assert_eq!(found_in("", &tree).len(), 1);
    }

    #[test]
    fn phrases_without_an_ordinary_meaning_are_found_in_prose() {
        assert_eq!(
            found("", "docs/x.md", "the keeper is `keeper`"),
            ["docs/x.md:1: \"keeper\" is an invented word; say descriptor holder"]
        );
        assert_eq!(
            found("", "crates/space/src/lib.rs", "// made anew\nconst A: &str = \"no heir\";").len(),
            2
        );
        assert_eq!(found("", "docs/x.md", "the line says what is left behind; in turn"), [] as [String; 0]);
    }

    #[test]
    fn words_that_are_part_of_others_are_left_alone() {
        let text = "fn theirs() {} fn outlined() {} fn brushed() {} struct Turnip; fn taken() {}";
        assert_eq!(found("", "crates/space/src/lib.rs", text), [] as [String; 0]);
    }

    #[test]
    fn an_entry_allows_its_names_alone_and_has_a_reason_and_a_use() {
        let entry = "[[allow]]\nword = \"line\"\nnames = [\"read_line\"]\nreason = \"a line of text\"\n";
        let text = "fn read_line() {}";
        assert_eq!(found(entry, "crates/space/src/lib.rs", text), [] as [String; 0]);
        assert_eq!(found(entry, "crates/space/src/lib.rs", "fn read_line() {} fn line_of() {}").len(), 1);
        assert_eq!(found(entry, "crates/space/src/lib.rs", "").len(), 1);
        assert_eq!(found(&entry.replace("a line of text", " "), "crates/space/src/lib.rs", text).len(), 1);
    }
}
