//! Rust text cut into what the compiler reads, what people read, and what the program prints.
//!
//! The compiler's own parser drops comments, yet half of the rules are about them. So each line is split here into
//! three views of the same width: code, comments, and the insides of string literals.

/// One line of a source file, three times; what belongs to another view is blank.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Line {
    /// Code, with the insides of strings blanked.
    pub code: String,
    /// Comments of every kind, markers included.
    pub comment: String,
    /// The insides of string literals.
    pub string: String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Code,
    LineComment,
    BlockComment { depth: u32 },
    Text { hashes: Option<usize> },
}

struct Splitter<'a> {
    rest: &'a str,
    state: State,
    lines: Vec<Line>,
    line: Line,
    /// The character before the current one, while in code.
    before: char,
}

/// Splits a file. Malformed text gives some split, never a panic; the compiler has the last word on it.
pub(crate) fn split(text: &str) -> Vec<Line> {
    let mut splitter =
        Splitter { rest: text, state: State::Code, lines: Vec::new(), line: Line::default(), before: ' ' };
    while !splitter.rest.is_empty() {
        splitter.step();
    }
    splitter.end_line();
    splitter.lines
}

impl Splitter<'_> {
    fn step(&mut self) {
        if self.rest.starts_with('\n') {
            if self.state == State::LineComment {
                self.state = State::Code;
            }
            self.end_line();
            self.rest = self.rest.get(1..).unwrap_or("");
            return;
        }
        match self.state {
            State::Code => self.step_code(),
            State::LineComment => self.take(1),
            State::BlockComment { depth } => self.step_block_comment(depth),
            State::Text { hashes } => self.step_text(hashes),
        }
    }

    fn step_code(&mut self) {
        if self.rest.starts_with("//") {
            self.state = State::LineComment;
            self.take(2);
        } else if self.rest.starts_with("/*") {
            self.state = State::BlockComment { depth: 1 };
            self.take(2);
        } else if let Some((opening, hashes)) = self.raw_opening() {
            self.take(opening);
            self.state = State::Text { hashes: Some(hashes) };
        } else if self.rest.starts_with('"') {
            self.take(1);
            self.state = State::Text { hashes: None };
        } else if self.rest.starts_with('\'') {
            let length = char_literal(self.rest).unwrap_or(1);
            self.take(length);
        } else {
            self.before = self.rest.chars().next().unwrap_or(' ');
            self.take(1);
        }
    }

    /// The length of `r#"`, `br"` and the like here, and its number of hashes.
    fn raw_opening(&self) -> Option<(usize, usize)> {
        if self.before.is_alphanumeric() || self.before == '_' {
            return None;
        }
        let prefix = ["br", "cr", "r"].into_iter().find(|prefix| self.rest.starts_with(prefix))?;
        let after = self.rest.get(prefix.len()..)?;
        let hashes = after.chars().take_while(|c| *c == '#').count();
        after.get(hashes..)?.starts_with('"').then_some((prefix.len() + hashes + 1, hashes))
    }

    fn step_block_comment(&mut self, depth: u32) {
        if self.rest.starts_with("*/") {
            self.take(2);
            self.state = if depth == 1 { State::Code } else { State::BlockComment { depth: depth - 1 } };
        } else if self.rest.starts_with("/*") {
            self.state = State::BlockComment { depth: depth + 1 };
            self.take(2);
        } else {
            self.take(1);
        }
    }

    fn step_text(&mut self, hashes: Option<usize>) {
        let closing = format!("\"{}", "#".repeat(hashes.unwrap_or(0)));
        if hashes.is_none() && self.rest.starts_with('\\') && !self.rest.starts_with("\\\n") {
            self.take(2);
        } else if self.rest.starts_with(&closing) {
            self.state = State::Code;
            self.before = '"';
            self.take(closing.len());
        } else {
            self.take(1);
        }
    }

    /// Moves `count` characters to the view of the current state, blanks to the other views.
    fn take(&mut self, count: usize) {
        for c in self.rest.chars().take(count) {
            let (mut code, mut comment, mut string) = (' ', ' ', ' ');
            match self.state {
                State::Code => code = c,
                State::LineComment | State::BlockComment { .. } => comment = c,
                State::Text { .. } => string = c,
            }
            self.line.code.push(code);
            self.line.comment.push(comment);
            self.line.string.push(string);
        }
        let bytes: usize = self.rest.chars().take(count).map(char::len_utf8).sum();
        self.rest = self.rest.get(bytes..).unwrap_or("");
    }

    fn end_line(&mut self) {
        self.lines.push(std::mem::take(&mut self.line));
    }
}

/// The length in characters of a character literal at the start of `text`; none where it is a lifetime.
fn char_literal(text: &str) -> Option<usize> {
    let chars: Vec<char> = text.chars().take(12).collect();
    match (chars.get(1)?, chars.get(2)?) {
        ('\\', _) => chars.iter().skip(3).position(|c| *c == '\'').map(|at| at + 4),
        (_, '\'') => Some(3),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn views(text: &str) -> Vec<(String, String, String)> {
        let trim = |s: &str| s.trim().to_owned();
        split(text).iter().map(|l| (trim(&l.code), trim(&l.comment), trim(&l.string))).collect()
    }

    #[test]
    fn comments_strings_and_code_are_reported_apart() {
        for (text, code, comment, string) in [
            ("let a = 1; // why", "let a = 1;", "// why", ""),
            ("a /* x /* y */ z */ b", "a                   b", "/* x /* y */ z */", ""),
            ("f(\"// no\");", "f(\"     \");", "", "// no"),
            ("f(r#\"a\"b\"#);", "f(r#\"   \"#);", "", "a\"b"),
            ("let c = '\"'; // q", "let c = '\"';", "// q", ""),
            ("let c = '\\''; // q", "let c = '\\'';", "// q", ""),
            ("fn f<'a>(x: &'a str) {} // l", "fn f<'a>(x: &'a str) {}", "// l", ""),
            ("f(\"a\\\"b\") // c", "f(\"    \")", "// c", "a\\\"b"),
        ] {
            assert_eq!(views(text), [(code.to_owned(), comment.to_owned(), string.to_owned())], "{text}");
        }
    }

    #[test]
    fn a_string_over_two_lines_stays_a_string() {
        let lines = views("f(\"one \\\n    two\"); // x");
        assert_eq!(lines[0].2, "one \\");
        assert_eq!(lines[1], ("\");".to_owned(), "// x".to_owned(), "two".to_owned()));
    }
}
