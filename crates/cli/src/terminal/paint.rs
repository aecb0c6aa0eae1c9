//! Colour, where a person looks: on terminals, unless NO_COLOR asks for none.

/// What a piece of text is, which says how it looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tone {
    /// As it is.
    Plain,
    /// The head of a table.
    Heading,
    /// All is well.
    Good,
    /// Somebody should look.
    Caution,
    /// Something is lost or about to be.
    Bad,
    /// One of several owners, by its number: colours repeat where there are many.
    Owner(u8),
}

/// Colours of owners: none that says how things are.
const OWNERS: [&str; 6] = ["34", "35", "36", "94", "95", "96"];

/// Whether colour is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Paint {
    /// On a terminal.
    Always,
    /// In files, pipes, and where NO_COLOR is set.
    Never,
}

impl Paint {
    /// The text in its tone.
    pub(crate) fn tone(self, text: &str, tone: Tone) -> String {
        let code = match (self, tone) {
            (Self::Never, _) | (_, Tone::Plain) => return text.to_owned(),
            (Self::Always, Tone::Heading) => "1",
            (Self::Always, Tone::Good) => "32",
            (Self::Always, Tone::Caution) => "33",
            (Self::Always, Tone::Bad) => "31",
            (Self::Always, Tone::Owner(nth)) => {
                OWNERS.get(usize::from(nth) % OWNERS.len()).copied().unwrap_or("39")
            }
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }
}
