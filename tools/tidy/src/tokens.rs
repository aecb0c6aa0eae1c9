//! A Rust file as a flat list of tokens, with what is compiled for tests only marked as such.
//!
//! Tokens, unlike a syntax tree, also show what stands inside macro calls, where a rule is broken as easily.

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use std::collections::BTreeSet;

/// One token: an identifier, a literal, one character of punctuation, or one bracket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Token {
    /// Its text.
    pub text: String,
    /// Its line, from 1.
    pub line: usize,
    /// Whether only tests compile it.
    pub test: bool,
}

/// The tokens of a file; `None` where it is no Rust.
pub(crate) fn tokens(text: &str) -> Option<Vec<Token>> {
    let stream: TokenStream = text.parse().ok()?;
    let mut flat = Vec::new();
    flatten(stream, &mut flat);
    mark_tests(&mut flat);
    Some(flat)
}

/// The lines that only tests compile, from 1.
pub(crate) fn test_lines(tokens: &[Token]) -> BTreeSet<usize> {
    let mut lines = BTreeSet::new();
    let mut last: Option<usize> = None;
    for token in tokens {
        if token.test {
            // Comments and blank lines between two test tokens belong to the test as well.
            lines.extend(last.unwrap_or(token.line)..=token.line);
        }
        last = token.test.then_some(token.line);
    }
    lines
}

fn flatten(stream: TokenStream, flat: &mut Vec<Token>) {
    let token = |text: &str, line: usize| Token { text: text.to_owned(), line, test: false };
    for tree in stream {
        let line = tree.span().start().line;
        match tree {
            TokenTree::Group(group) => {
                let (open, close) = match group.delimiter() {
                    Delimiter::Parenthesis => ("(", ")"),
                    Delimiter::Brace => ("{", "}"),
                    Delimiter::Bracket => ("[", "]"),
                    Delimiter::None => ("", ""),
                };
                flat.push(token(open, line));
                flatten(group.stream(), flat);
                flat.push(token(close, group.span_close().end().line));
            }
            TokenTree::Ident(ident) => flat.push(token(&ident.to_string(), line)),
            TokenTree::Punct(punct) => flat.push(token(&punct.as_char().to_string(), line)),
            TokenTree::Literal(literal) => flat.push(token(&literal.to_string(), line)),
        }
    }
}

fn is(tokens: &[Token], at: usize, text: &str) -> bool {
    tokens.get(at).is_some_and(|token| token.text == text)
}

/// The place behind the bracket that closes the one at `open`.
pub(crate) fn after_group(tokens: &[Token], open: usize) -> usize {
    let mut depth = 0_usize;
    for (at, token) in tokens.iter().enumerate().skip(open) {
        match token.text.as_str() {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 {
            return at + 1;
        }
    }
    tokens.len()
}

fn mark_tests(tokens: &mut [Token]) {
    let mut at = 0;
    while at < tokens.len() {
        let inner = is(tokens, at + 1, "!");
        let open = at + 1 + usize::from(inner);
        if !is(tokens, at, "#") || !is(tokens, open, "[") {
            at += 1;
            continue;
        }
        let after = after_group(tokens, open);
        if !means_test(tokens.get(open + 1..after.saturating_sub(1)).unwrap_or(&[])) {
            at = after;
            continue;
        }
        let end = if inner { tokens.len() } else { after_item(tokens, after) };
        for token in tokens.iter_mut().take(end).skip(at) {
            token.test = true;
        }
        at = end;
    }
}

/// Whether the inside of an attribute is `test`, `path::test`, or a `cfg` that asks for tests.
fn means_test(attribute: &[Token]) -> bool {
    let names: Vec<&str> = attribute.iter().map(|token| token.text.as_str()).collect();
    match names.first() {
        Some(&"cfg") => names.contains(&"test") && !names.contains(&"not"),
        Some(_) => names.last() == Some(&"test") && !names.contains(&"("),
        None => false,
    }
}

/// The place behind the item that starts at `at`, further attributes included.
fn after_item(tokens: &[Token], at: usize) -> usize {
    let mut at = at;
    while at < tokens.len() {
        if is(tokens, at, ";") || is(tokens, at, ",") {
            return at + 1;
        }
        let brace = is(tokens, at, "{");
        if brace || is(tokens, at, "(") || is(tokens, at, "[") {
            at = after_group(tokens, at);
            if brace {
                return at;
            }
        } else {
            at += 1;
        }
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_for_tests_are_marked_and_no_others() {
        let text = "fn a() {}\n#[cfg(test)]\n#[rustfmt::skip]\nmod tests {\n\n    fn b() {}\n}\n#[test]\nfn c() -> [u8; 2] { d }\n#[cfg(not(test))]\nfn e() {}\n#[cfg(test)]\nuse f;\nfn g() {}\n";
        let tokens = tokens(text).unwrap();
        assert_eq!(test_lines(&tokens).into_iter().collect::<Vec<_>>(), [2, 3, 4, 5, 6, 7, 8, 9, 12, 13]);
    }

    #[test]
    fn a_file_that_is_all_test_is_marked_whole() {
        let tokens = tokens("#![cfg(test)]\nfn a() {}").unwrap();
        assert!(tokens.iter().all(|token| token.test));
    }
}
