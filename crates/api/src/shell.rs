//! Words of commands in texts, which people copy into a shell.

use std::borrow::Cow;

/// Returns a word as a shell of POSIX reads it back, whatever characters it has: names of shares, folders and files come from other
/// hosts too, and a command that is copied from a text runs nothing else.
#[must_use]
pub fn shell_word(word: &str) -> Cow<'_, str> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-./=:,@%+".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return Cow::Borrowed(word);
    }
    Cow::Owned(format!("'{}'", word.replace('\'', "'\\''")))
}

#[cfg(test)]
mod tests {
    use super::shell_word;

    #[test]
    fn words_that_a_shell_would_read_are_quoted() {
        assert_eq!(shell_word("--size=64M"), "--size=64M");
        let quoted = ["", "a b", "it's", "$HOME", "`id`", "\"x", "~"].map(shell_word);
        assert_eq!(quoted, ["''", "'a b'", "'it'\\''s'", "'$HOME'", "'`id`'", "'\"x'", "'~'"]);
    }
}
