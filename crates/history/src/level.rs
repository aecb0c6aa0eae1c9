//! Resolutions, and how far back each reaches.

/// Number of resolutions.
pub const LEVELS: usize = 5;

/// A resolution.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Level(u8);

/// Seconds of a point, and number of points that are kept.
const TABLE: [(u64, u64); LEVELS] = [(10, 360), (60, 1440), (600, 1008), (3600, 1440), (86_400, 366)];

impl Level {
    /// The finest.
    pub const FINEST: Self = Self(0);
    /// The one of an hour.
    pub const HOURS: Self = Self(3);

    /// Returns all of them, finest first.
    pub fn all() -> impl DoubleEndedIterator<Item = Self> + Clone {
        (0..LEVELS).map(|index| Self(u8::try_from(index).unwrap_or(0)))
    }

    /// Returns the level with this number.
    #[must_use]
    pub fn of(number: u8) -> Option<Self> {
        (usize::from(number) < LEVELS).then_some(Self(number))
    }

    /// Returns its number, 0 for the finest.
    #[must_use]
    pub fn number(self) -> u8 {
        self.0
    }

    pub(crate) fn index(self) -> usize {
        usize::from(self.0)
    }

    pub(crate) fn coarser(self) -> Option<Self> {
        Self::of(self.0 + 1)
    }

    fn entry(self) -> (u64, u64) {
        TABLE.get(self.index()).copied().unwrap_or((86_400, 366))
    }

    /// Returns the seconds of a point.
    #[must_use]
    pub fn step_s(self) -> u64 {
        self.entry().0
    }

    /// Returns the number of points that are kept of each object, where the budget is large enough.
    #[must_use]
    pub fn points(self) -> u64 {
        self.entry().1
    }

    /// Returns how many seconds back its points are kept.
    #[must_use]
    pub fn reach_s(self) -> u64 {
        self.step_s() * self.points()
    }

    /// Returns the beginning of the point that a time falls into.
    #[must_use]
    pub fn begin(self, at_s: u64) -> u64 {
        at_s - at_s % self.step_s()
    }
}
