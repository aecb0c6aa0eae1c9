//! What can be planned: the layouts of this version, and those that `placement` or the arithmetic here knows already.

use std::fmt;
use std::str::FromStr;

use dolmen_placement::{COPIES_MAX, PARITY_MAX, Resiliency};

use crate::disks::Disks;
use crate::error::LayoutError;

/// Data columns of a code of fixed width, at most.
pub const WIDE_DATA_MAX: u32 = 32;
/// Parity columns of a code of fixed width, at most.
pub const WIDE_PARITY_MAX: u32 = 8;
/// Data columns of any parity code, at least: with one, parity would be a mirror that costs arithmetic.
const DATA_MIN: u32 = 2;
/// Copies of the mirror part of a mixed space, and parity columns of the other part: both survive two losses.
pub(crate) const MIXED_COPIES: u32 = 3;
pub(crate) const MIXED_PARITY: u32 = 2;

/// One code over disks or fault domains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Code {
    /// Striped, one copy.
    Simple,
    /// One disk after another, one copy.
    Span,
    /// Several copies, striped.
    Mirror {
        /// Copies.
        copies: u32,
    },
    /// Parity of a width that follows the fault domains.
    Parity {
        /// Parity columns.
        parity: u32,
    },
    /// Parity of a fixed width.
    Wide {
        /// Data columns.
        data: u32,
        /// Parity columns.
        parity: u32,
    },
}

impl Code {
    /// Disks (or fault domains) that any row may lose.
    #[must_use]
    pub const fn redundancy(self) -> u32 {
        match self {
            Self::Simple | Self::Span => 0,
            Self::Mirror { copies } => copies - 1,
            Self::Parity { parity } | Self::Wide { parity, .. } => parity,
        }
    }

    /// Fault domains without which no row can be placed.
    #[must_use]
    pub const fn domains_min(self) -> u32 {
        match self {
            Self::Simple | Self::Span => 1,
            Self::Mirror { copies } => copies,
            Self::Parity { parity } => DATA_MIN + parity,
            Self::Wide { data, parity } => data + parity,
        }
    }

    /// Parity columns of a row.
    pub(crate) const fn parity_columns(self) -> u32 {
        match self {
            Self::Parity { parity } | Self::Wide { parity, .. } => parity,
            Self::Simple | Self::Span | Self::Mirror { .. } => 0,
        }
    }

    /// As placement calls it; `None` for a width that it does not choose itself.
    pub(crate) const fn resiliency(self) -> Option<Resiliency> {
        match self {
            Self::Simple => Some(Resiliency::Striped { copies: 1 }),
            Self::Span => Some(Resiliency::Span),
            Self::Mirror { copies } => Some(Resiliency::Striped { copies }),
            Self::Parity { parity } => Some(Resiliency::Parity { parity }),
            Self::Wide { .. } => None,
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Simple => f.write_str("simple"),
            Self::Span => f.write_str("span"),
            Self::Mirror { copies } => write!(f, "mirror:{copies}"),
            Self::Parity { parity } => write!(f, "parity:{parity}"),
            Self::Wide { data, parity } => write!(f, "{data}+{parity}"),
        }
    }
}

/// A layout of a whole space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// One code.
    Plain(Code),
    /// Hot rows as a mirror of three copies, the others as dual parity.
    Mixed {
        /// Per cent of the data in mirror rows.
        mirror_percent: u32,
    },
    /// Copies on several fault domains, each of which protects its copy by a code over its own disks.
    Nested {
        /// Copies.
        copies: u32,
        /// The code within each fault domain.
        inner: Code,
    },
}

impl Layout {
    /// Those that a plan shows when nobody asks for others.
    #[must_use]
    pub fn usual(disks: &Disks) -> Vec<Self> {
        let mut layouts: Vec<Self> = [
            Code::Simple,
            Code::Span,
            Code::Mirror { copies: 2 },
            Code::Mirror { copies: 3 },
            Code::Mirror { copies: 4 },
            Code::Parity { parity: 1 },
            Code::Parity { parity: 2 },
        ]
        .map(Self::Plain)
        .to_vec();
        let wide = Code::Wide { data: 8, parity: 3 };
        if disks.domain_count() >= wide.domains_min() {
            layouts.push(Self::Plain(wide));
        }
        layouts.push(Self::Mixed { mirror_percent: 30 });
        let nested = Self::Nested { copies: 2, inner: Code::Parity { parity: 1 } };
        let full = disks.by_domain().iter().filter(|members| members.len() >= 3).count();
        if full >= 2 {
            layouts.push(nested);
        }
        layouts
    }

    /// Whether this version can make a space of it.
    #[must_use]
    pub const fn is_made(self) -> bool {
        matches!(self, Self::Plain(Code::Simple | Code::Span | Code::Mirror { .. } | Code::Parity { .. }))
    }

    /// Fault domains without which no row can be placed.
    #[must_use]
    pub fn domains_min(self) -> u32 {
        match self {
            Self::Plain(code) => code.domains_min(),
            Self::Mixed { .. } => MIXED_COPIES.max(DATA_MIN + MIXED_PARITY),
            Self::Nested { copies, .. } => copies,
        }
    }

    /// Disks that each of these domains needs.
    #[must_use]
    pub const fn disks_min_within(self) -> u32 {
        match self {
            Self::Plain(_) | Self::Mixed { .. } => 1,
            Self::Nested { inner, .. } => inner.domains_min(),
        }
    }

    /// Disks without which it cannot be made.
    #[must_use]
    pub fn disks_min(self) -> u32 {
        self.domains_min() * self.disks_min_within()
    }

    /// Whole fault domains that may be lost at once, whichever they are.
    #[must_use]
    pub const fn survives_domains(self) -> u32 {
        match self {
            Self::Plain(code) => code.redundancy(),
            Self::Mixed { .. } => MIXED_PARITY,
            Self::Nested { copies, .. } => copies - 1,
        }
    }

    /// Disks that may be lost at once, whichever they are.
    #[must_use]
    pub const fn survives_disks(self) -> u32 {
        match self {
            Self::Plain(code) => code.redundancy(),
            Self::Mixed { .. } => MIXED_PARITY,
            Self::Nested { copies, inner } => copies * (inner.redundancy() + 1) - 1,
        }
    }

    /// In words.
    #[must_use]
    pub fn title(self) -> String {
        match self {
            Self::Plain(Code::Simple) => "simple".to_owned(),
            Self::Plain(Code::Span) => "span".to_owned(),
            Self::Plain(Code::Mirror { copies }) => format!("mirror of {copies}"),
            Self::Plain(Code::Parity { parity: 1 }) => "parity".to_owned(),
            Self::Plain(Code::Parity { .. }) => "dual parity".to_owned(),
            Self::Plain(Code::Wide { data, parity }) => format!("{data} data + {parity} parity"),
            Self::Mixed { mirror_percent } => format!("mixed, {mirror_percent} % mirror"),
            Self::Nested { copies, inner } => {
                format!("mirror of {copies} over {}", Self::Plain(inner).title())
            }
        }
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain(code) => code.fmt(f),
            Self::Mixed { mirror_percent } => write!(f, "mixed:{mirror_percent}"),
            Self::Nested { copies, inner } => write!(f, "mirror:{copies}/{inner}"),
        }
    }
}

impl FromStr for Layout {
    type Err = LayoutError;

    fn from_str(text: &str) -> Result<Self, LayoutError> {
        if let Some((outer, inner)) = text.split_once('/') {
            return nested(text, outer, inner);
        }
        let (word, number) = word_and_number(text);
        if word != "mixed" {
            return plain(text).map(Self::Plain);
        }
        let percent = number.unwrap_or(Ok(30)).map_err(|()| unknown(text))?;
        if (1..=99).contains(&percent) {
            return Ok(Self::Mixed { mirror_percent: percent });
        }
        Err(LayoutError::Percent { found: text.to_owned(), percent })
    }
}

fn unknown(text: &str) -> LayoutError {
    LayoutError::Unknown { found: text.to_owned() }
}

fn word_and_number(text: &str) -> (&str, Option<Result<u32, ()>>) {
    match text.split_once(':') {
        Some((word, number)) => (word, Some(number.parse().map_err(drop))),
        None => (text, None),
    }
}

fn plain(text: &str) -> Result<Code, LayoutError> {
    if let Some((data, parity)) = text.split_once('+') {
        return wide(text, data, parity);
    }
    let found = || text.to_owned();
    let (word, number) = word_and_number(text);
    match (word, number) {
        ("simple", None) => Ok(Code::Simple),
        ("span", None) => Ok(Code::Span),
        ("mirror", number) => {
            let copies = number.unwrap_or(Ok(2)).map_err(|()| unknown(text))?;
            if (2..=COPIES_MAX).contains(&copies) {
                return Ok(Code::Mirror { copies });
            }
            Err(LayoutError::Copies { found: found(), copies })
        }
        ("parity", number) => {
            let parity = number.unwrap_or(Ok(1)).map_err(|()| unknown(text))?;
            if (1..=PARITY_MAX).contains(&parity) {
                return Ok(Code::Parity { parity });
            }
            Err(LayoutError::Parity { found: found(), parity })
        }
        _ => Err(unknown(text)),
    }
}

fn wide(text: &str, data: &str, parity: &str) -> Result<Code, LayoutError> {
    let (Ok(data), Ok(parity)) = (data.parse(), parity.parse()) else { return Err(unknown(text)) };
    if !(DATA_MIN..=WIDE_DATA_MAX).contains(&data) {
        return Err(LayoutError::Data { found: text.to_owned(), data });
    }
    if !(1..=WIDE_PARITY_MAX).contains(&parity) {
        return Err(LayoutError::Parity { found: text.to_owned(), parity });
    }
    Ok(Code::Wide { data, parity })
}

fn nested(text: &str, outer: &str, inner: &str) -> Result<Layout, LayoutError> {
    let inner_code = match plain(inner) {
        Ok(Code::Span) | Err(LayoutError::Unknown { .. }) => {
            return Err(LayoutError::Inner { found: text.to_owned(), inner: inner.to_owned() });
        }
        code => code?,
    };
    match plain(outer)? {
        Code::Mirror { copies } => Ok(Layout::Nested { copies, inner: inner_code }),
        Code::Simple | Code::Span | Code::Parity { .. } | Code::Wide { .. } => Err(LayoutError::Outer {
            found: text.to_owned(),
            outer: outer.to_owned(),
            inner: inner.to_owned(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_reads_as_it_is_written() {
        for text in
            ["simple", "span", "mirror:3", "parity:2", "8+3", "mixed:40", "mirror:2/parity:1", "mirror:3/6+2"]
        {
            let layout: Layout = text.parse().unwrap();
            assert_eq!(layout.to_string(), text);
        }
        assert_eq!("mirror".parse(), Ok(Layout::Plain(Code::Mirror { copies: 2 })));
        assert_eq!("parity".parse(), Ok(Layout::Plain(Code::Parity { parity: 1 })));
        assert_eq!("mixed".parse(), Ok(Layout::Mixed { mirror_percent: 30 }));
    }

    #[test]
    fn words_that_name_nothing_are_refused_by_what_is_wrong() {
        for (text, needle) in [
            ("", "no resiliency is called \"\""),
            ("raid5", "no resiliency is called \"raid5\""),
            ("mirror:x", "no resiliency is called \"mirror:x\""),
            ("simple:1", "no resiliency is called"),
            ("mirror:1", "asks for 1 copies; a mirror has 2 to 4"),
            ("mirror:5", "asks for 5 copies"),
            ("parity:3", "asks for 3 parity columns"),
            ("parity:0", "asks for 0 parity columns"),
            ("1+1", "asks for 1 data columns; a code has 2 to 32"),
            ("33+2", "asks for 33 data columns"),
            ("8+9", "asks for 9 parity columns"),
            ("8+0", "asks for 0 parity columns"),
            ("mixed:0", "asks for 0 % in mirror rows"),
            ("mixed:100", "write 1 to 99"),
            ("parity/mirror", "has \"parity\" before the slash"),
            ("mirror/span", "has \"span\" behind the slash"),
            ("mirror/mixed:30", "has \"mixed:30\" behind the slash"),
        ] {
            let message = text.parse::<Layout>().unwrap_err().to_string();
            assert!(message.contains(needle), "{text}: {message}");
        }
    }

    /// The published minimum: two and three disks for mirrors, three for parity, four for dual parity.
    #[test]
    fn minimum_disks_are_the_published_ones() {
        for (text, disks) in [
            ("simple", 1),
            ("span", 1),
            ("mirror:2", 2),
            ("mirror:3", 3),
            ("mirror:4", 4),
            ("parity", 3),
            ("parity:2", 4),
            ("8+3", 11),
            ("mixed", 4),
            ("mirror:2/parity", 6),
        ] {
            assert_eq!(text.parse::<Layout>().unwrap().disks_min(), disks, "{text}");
        }
    }
}
