//! Bytes as a list of decisions: whoever drives a target gives bytes, and any bytes are a script.
//!
//! A script that is over goes on with zeros, so that an input can be cut anywhere.

/// Numbers at which lengths, counts and addresses break.
const EDGES: [u64; 24] = [
    0,
    1,
    2,
    3,
    7,
    8,
    9,
    15,
    16,
    240,
    255,
    256,
    511,
    512,
    4095,
    4096,
    65535,
    65536,
    1 << 31,
    (1 << 32) - 1,
    1 << 32,
    1 << 63,
    u64::MAX - 1,
    u64::MAX,
];

/// A reader of decisions.
#[derive(Debug, Clone)]
pub(crate) struct Script<'a> {
    rest: &'a [u8],
}

impl<'a> Script<'a> {
    /// The script that these bytes are.
    #[must_use]
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Whether nothing is left of it.
    #[must_use]
    pub(crate) fn is_over(&self) -> bool {
        self.rest.is_empty()
    }

    /// The next byte.
    pub(crate) fn byte(&mut self) -> u8 {
        let (first, rest) = self.rest.split_first().unwrap_or((&0, &[]));
        self.rest = rest;
        *first
    }

    /// A number of so many bytes, at most eight.
    pub(crate) fn number(&mut self, bytes: u32) -> u64 {
        (0..bytes).fold(0, |sum, place| sum | u64::from(self.byte()) << (8 * place))
    }

    /// A number below `end`, which is not 0; of one byte where that is enough.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.number(match end {
            0..=256 => 1,
            257..=65536 => 2,
            _ => 4,
        }) % end
    }

    /// An index of something of this length, which is not 0.
    pub(crate) fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.below(length as u64)).unwrap_or(0)
    }

    /// One of several.
    pub(crate) fn pick<T: Copy>(&mut self, among: &[T]) -> T {
        among[self.index(among.len())]
    }

    /// Whether something that seldom happens happens.
    pub(crate) fn seldom(&mut self) -> bool {
        self.byte() % 8 == 7
    }

    /// A number at which something may break, or any other.
    pub(crate) fn edge(&mut self) -> u64 {
        let choice = usize::from(self.byte());
        match EDGES.get(choice) {
            Some(edge) => *edge,
            None if choice < 128 => u64::from(self.byte()),
            None => self.number(8),
        }
    }

    /// All that is left.
    pub(crate) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.rest)
    }
}
