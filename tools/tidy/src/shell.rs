//! Rule: scripts are POSIX sh, because Debian's `/bin/sh` is dash; `.ci/run` and the field cases, which
//! need root and bash anyway, may be bash.
//!
//! Simple patterns, not a parser: they catch what a bash user writes by habit.

use crate::finding::Finding;
use crate::tree::Tree;

const EXEMPT: [&str; 2] = [".ci/run", "scripts/field_cases/"];

/// Pieces of text that no POSIX shell gives a meaning, with what to write.
const PIECES: [(&str, &str); 13] = [
    ("[[", "use [ ] or case"),
    ("&>", "write >file 2>&1"),
    ("|&", "write 2>&1 |"),
    ("<<<", "use a here-document"),
    ("<(", "use a temporary file"),
    ("$'", "use printf"),
    ("$RANDOM", "read a number from od or awk"),
    ("$BASH", "write for every shell"),
    ("pipefail", "check each part by itself"),
    ("/dev/tcp/", "use a program"),
    ("{1..", "use seq"),
    (";;&", "write the case out"),
    ("echo -e", "use printf"),
];
/// Commands that only bash has, as the first word of a command.
const COMMANDS: [(&str, &str); 9] = [
    ("function", "write name() { … }"),
    ("source", "write . file"),
    ("local", "give the variable a name of its own"),
    ("declare", "assign plainly"),
    ("typeset", "assign plainly"),
    ("select", "write the loop out"),
    ("let", "use $(( ))"),
    ("shopt", "write for every shell"),
    ("mapfile", "use while read"),
];

/// Checks every script of the project.
pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let scripts = tree.all().filter(|(path, text)| {
        is_script(path, text) && !EXEMPT.iter().any(|exempt| path.starts_with(exempt))
    });
    for (path, text) in scripts {
        if !text.starts_with("#!/bin/sh\n") && text.starts_with("#!") {
            findings.push(Finding::new(
                path,
                1,
                "this script asks for another shell than /bin/sh",
                "write it for sh",
            ));
        }
        for (at, line) in code_lines(text).iter().enumerate() {
            for (what, advice) in breaches(line) {
                findings.push(Finding::new(path, at + 1, format!("{what} is no POSIX sh"), advice));
            }
        }
    }
    findings
}

fn is_script(path: &str, text: &str) -> bool {
    let first = text.lines().next().unwrap_or("");
    path.ends_with(".sh") || first.starts_with("#!") && first.ends_with("sh")
}

fn breaches(line: &str) -> Vec<(String, &'static str)> {
    let mut found: Vec<(String, &'static str)> = PIECES
        .iter()
        .filter(|(piece, _)| line.contains(piece))
        .map(|(piece, advice)| ((*piece).to_owned(), *advice))
        .collect();
    // `$((` is arithmetic everywhere, `((` alone only in bash; a character class such as [[:digit:]] needs quotes anyway.
    if line.match_indices("((").any(|(at, _)| !line.get(..at).unwrap_or("").ends_with(['$', '('])) {
        found.push(("((".to_owned(), "use [ ] and $(( ))"));
    }
    if line.contains("[ ") && line.split(" ]").next().is_some_and(|test| test.contains(" == ")) {
        found.push(("== in [ ]".to_owned(), "write ="));
    }
    if line.split(['$', '}']).any(|piece| piece.starts_with('{') && is_odd_expansion(piece)) {
        found.push(("this ${…}".to_owned(), "use sed, cut or ${x#…}, ${x%…}"));
    }
    for command in line
        .split([';', '|', '&', '(', '{'])
        .flat_map(|part| part.split("then ").flat_map(|p| p.split("do ")))
    {
        let mut words = command.split_whitespace();
        let first = words.next().unwrap_or("");
        found.extend(
            COMMANDS
                .iter()
                .filter(|(name, _)| *name == first)
                .map(|(name, advice)| ((*name).to_owned(), *advice)),
        );
        if first.ends_with("=(") || first.contains("+=") {
            found.push(("an array or +=".to_owned(), "use $@ or a string"));
        }
    }
    if line.contains("=(") {
        found.push(("an array".to_owned(), "use $@ or a string"));
    }
    found.sort();
    found.dedup();
    found
}

/// `{x/a/b`, `{x:1:2`, `{x^^`, `{x[0]`, `{!x`: what follows the name of a parameter tells.
fn is_odd_expansion(piece: &str) -> bool {
    let inside = piece.get(1..).unwrap_or("");
    if inside.starts_with('!') {
        return true;
    }
    let after = inside.trim_start_matches(|c: char| c.is_alphanumeric() || c == '_');
    let substring = after.strip_prefix(':').is_some_and(|rest| !rest.starts_with(['-', '=', '?', '+']));
    after.len() < inside.len() && (after.starts_with(['/', '^', ',', '[', '@']) || substring)
}

/// The lines with comments and single-quoted text blanked; quotes may reach over several lines.
fn code_lines(text: &str) -> Vec<String> {
    let mut quote: Option<char> = None;
    let mut lines = Vec::new();
    for line in text.lines() {
        let mut kept = String::new();
        let mut before = ' ';
        let mut escaped = false;
        for c in line.chars() {
            match quote {
                Some('\'') if c == '\'' => quote = None,
                Some('\'') => {}
                Some(_) if c == '"' && !escaped => quote = None,
                Some(_) => kept.push(c),
                None if c == '#' && before.is_whitespace() => break,
                None if (c == '"' || c == '\'') && !escaped => {
                    if c == '\'' && before == '$' {
                        kept.push(c);
                    }
                    quote = Some(c);
                }
                None => kept.push(c),
            }
            escaped = c == '\\' && !escaped && quote != Some('\'');
            before = c;
        }
        lines.push(kept);
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(line: &str) -> Vec<Finding> {
        check(&Tree::of(&[("scripts/x.sh", &format!("#!/bin/sh\n{line}\n"))]))
    }

    #[test]
    fn habits_of_bash_are_found() {
        for line in [
            "if [[ -n $a ]]; then b; fi",
            "[ \"$a\" == b ]",
            "function f() { :; }",
            "f() { local a=1; }",
            "source ./lib.sh",
            "a=(1 2)",
            "echo ${a[0]}",
            "echo ${a//x/y}",
            "echo ${a:0:3}",
            "echo ${a^^}",
            "cmd &> log",
            "cat <<< x",
            "diff <(a) <(b)",
            "set -o pipefail",
            "((a++))",
            "for i in {1..3}; do :; done",
            "if true; then declare a; fi",
            "printf $'a\\n'",
        ] {
            assert!(found(line).iter().all(|finding| finding.line == 2) && !found(line).is_empty(), "{line}");
        }
        assert_eq!(check(&Tree::of(&[("x", "#!/bin/bash\n:\n")])).len(), 1);
    }

    #[test]
    fn plain_sh_is_left_alone() {
        for line in [
            "[ \"$a\" = b ] && c=$((d + (1 << 2)))",
            "e=${f:-g} h=${i%%.*} j=${k##*/} l=${#m} n=${o:+p}",
            "awk '{ if ($1 == 2) { a[1] = (3) } }' file # [[ not code ]]",
            "( cd x && y ) >log 2>&1",
            "case $q in a) r ;; esac",
            "sed 's/[[:space:]]//'",
            "echo \"a source of local colour\"",
            "awk '\n  function f(x) { return x }\n  local\n' file",
        ] {
            assert_eq!(found(line), [], "{line}");
        }
        assert_eq!(check(&Tree::of(&[(EXEMPT[0], "#!/usr/bin/env bash\n[[ a ]]\n")])), []);
    }
}
