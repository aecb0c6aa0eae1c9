//! What codes mean: the texts of the API, without asking a daemon.

use dolmen_api::{CodeKind, ExitCode, Explanation, SCHEMA, all_codes};
use dolmen_check::{EXPLAINED, Explained};
use serde::Serialize;

use crate::arguments::ExplainArguments;
use crate::arguments::common::Format;
use crate::error::CliError;
use crate::terminal::out::Out;
use crate::terminal::paint::Tone;

/// Codes that are offered in the place of one that there is not, at most.
const NEAREST_MAX: usize = 3;
/// The kind of what a check of disks finds.
const CHECK: &str = "check";

/// A code, for programs.
#[derive(Debug, Serialize)]
struct Code {
    code: &'static str,
    kind: &'static str,
    /// Of findings of a check.
    #[serde(skip_serializing_if = "Option::is_none")]
    number: Option<u16>,
    means: &'static str,
    by_itself: &'static str,
    to_do: &'static str,
}

#[derive(Debug, Serialize)]
struct Codes {
    schema: u32,
    codes: Vec<Code>,
}

fn code((kind, code, text): (CodeKind, &'static str, Explanation)) -> Code {
    let kind = kind_word(kind);
    Code { code, kind, number: None, means: text.means, by_itself: text.by_itself, to_do: text.to_do }
}

fn check_code(of: &Explained) -> Code {
    let Explained { number, name, means, by_itself, to_do } = *of;
    Code { code: name, kind: CHECK, number: Some(number), means, by_itself, to_do }
}

impl Code {
    /// Whether this is what somebody asks for: a word, or the number of a finding of a check.
    fn is_called(&self, wanted: &str) -> bool {
        wanted == self.code || self.number.is_some_and(|number| wanted == format!("d{number}"))
    }
}

/// Carries out `dolmen explain`.
pub(crate) fn run(
    arguments: &ExplainArguments,
    format: Format,
    out: &mut Out<'_>,
) -> Result<ExitCode, CliError> {
    let wanted = arguments.code.as_deref().map(|word| word.to_ascii_lowercase().replace('-', "_"));
    let codes: Vec<Code> = all_codes()
        .map(code)
        .chain(EXPLAINED.iter().map(check_code))
        .filter(|code| wanted.as_deref().is_none_or(|wanted| code.is_called(wanted)))
        .collect();
    if codes.is_empty() {
        let found = arguments.code.clone().unwrap_or_default();
        return Err(CliError::NoSuchCode { nearest: nearest(wanted.as_deref().unwrap_or_default()), found });
    }
    match format {
        Format::Json => {
            let document = Codes { schema: SCHEMA, codes };
            // A document of texts can always be written down.
            out.line(serde_json::to_string(&document).unwrap_or_default());
        }
        Format::Text if wanted.is_none() => show_list(&codes, out),
        Format::Text => codes.iter().for_each(|code| show(code, out)),
    }
    Ok(ExitCode::Ok)
}

fn kind_word(kind: CodeKind) -> &'static str {
    match kind {
        CodeKind::Finding => "finding",
        CodeKind::Event => "event",
        CodeKind::Error => "error",
    }
}

fn show(code: &Code, out: &mut Out<'_>) {
    let head = out.paint_results.tone(code.code, Tone::Heading);
    match code.number {
        Some(number) => out.line(format_args!("{head} (D{number}, {})", code.kind)),
        None => out.line(format_args!("{head} ({})", code.kind)),
    }
    for (label, text) in [("means", code.means), ("by itself", code.by_itself), ("to do", code.to_do)] {
        out.labelled(&format!("  {label:<9}  "), text);
    }
}

/// All of them, with the first sentence of what each means.
fn show_list(codes: &[Code], out: &mut Out<'_>) {
    let mut kind = None;
    for code in codes {
        if kind.replace(code.kind) != Some(code.kind) {
            let head = match code.kind {
                "finding" => "what is the matter:",
                "event" => "what has happened:",
                CHECK => "what a check of disks finds:",
                _ => "what went wrong with a command:",
            };
            out.line(out.paint_results.tone(head, Tone::Heading));
        }
        let first = code.means.split_inclusive(". ").next().unwrap_or(code.means);
        let word =
            code.number.map_or_else(|| code.code.to_owned(), |number| format!("D{number} {}", code.code));
        out.labelled(&format!("  {word:<22}  "), first.trim_end());
    }
    out.line("`dolmen explain CODE` says what is done by itself, and what to do");
}

/// Words that are most like this one.
fn nearest(wanted: &str) -> Vec<String> {
    let distance = |word: &str| {
        let is_part = !wanted.is_empty() && (word.contains(wanted) || wanted.contains(word));
        if is_part { 1 } else { edits(word, wanted) }
    };
    let all = all_codes().map(|(_, word, _)| word).chain(EXPLAINED.iter().map(|of| of.name));
    let mut words: Vec<(usize, &str)> = all.map(|word| (distance(word), word)).collect();
    words.sort_unstable();
    words.into_iter().take(NEAREST_MAX).map(|(_, word)| word.to_owned()).collect()
}

/// How many letters have to be put in, left out or exchanged to get from one word to the other (Levenshtein's distance).
fn edits(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().take(64).collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (number, letter) in one.chars().enumerate() {
        let mut next = vec![number + 1];
        for (at, (pair, wanted)) in row.windows(2).zip(&other).enumerate() {
            let [across, above] = pair else { continue };
            let left = next.get(at).copied().unwrap_or(0);
            let exchanged = across + usize::from(letter != *wanted);
            next.push(exchanged.min(above + 1).min(left + 1));
        }
        row = next;
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_word_with_a_slip_is_found() {
        for (slip, word) in [
            ("disk_absnet", "disk_absent"),
            ("absent", "disk_absent"),
            ("spacefull", "space_full"),
            ("pool_stoped", "pool_stopped"),
            ("no_such_pol", "no_such_pool"),
        ] {
            assert!(nearest(slip).contains(&word.to_owned()), "{slip}: {:?}", nearest(slip));
        }
        assert_eq!((edits("kitten", "sitting"), edits("", "abc"), edits("abc", "")), (3, 3, 3));
    }

    /// No word stands for two things of one kind, and none is without a text in whole sentences or a command.
    #[test]
    fn every_code_has_a_word_of_its_own_and_a_text() {
        let words: BTreeSet<(&str, &str)> =
            all_codes().map(|(kind, word, _)| (kind_word(kind), word)).collect();
        assert_eq!(words.len(), all_codes().count());
        let of_check = EXPLAINED.iter().map(|of| (of.name, [of.means, of.by_itself, of.to_do]));
        let all = all_codes().map(|(_, word, text)| (word, [text.means, text.by_itself, text.to_do]));
        for (word, parts) in all.chain(of_check) {
            for part in parts {
                assert!(part.len() > 5 && part.ends_with(['.', '`']), "{word}: {part}");
            }
        }
    }
}
