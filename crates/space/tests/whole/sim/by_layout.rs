//! Faults by layouts: how often each kind of fault struck while the pool held a space of each layout.
//!
//! A space lies on nearly all disks of so small a pool, so what befalls a disk befalls it; but which of several spaces a fault
//! met is unknown.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::AddAssign;

use dolmen_sim::{FaultCounters, FaultKind};
use dolmen_space::{Integrity, Layout, Resiliency, Spaces};

/// Layouts by which faults are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LayoutKind {
    Simple,
    StrictSimple,
    Span,
    Mirror,
    ThreeCopies,
    StrictMirror,
    Parity,
    DualParity,
    /// Rows of two layouts.
    Converting,
}

impl LayoutKind {
    pub const ALL: [Self; 9] = [
        Self::Simple,
        Self::StrictSimple,
        Self::Span,
        Self::Mirror,
        Self::ThreeCopies,
        Self::StrictMirror,
        Self::Parity,
        Self::DualParity,
        Self::Converting,
    ];

    fn of(layout: Layout) -> Self {
        let is_strict = layout.integrity == Integrity::Strict;
        match layout.resiliency {
            Resiliency::Simple if is_strict => Self::StrictSimple,
            Resiliency::Simple => Self::Simple,
            Resiliency::Span => Self::Span,
            Resiliency::Mirror { .. } if is_strict => Self::StrictMirror,
            Resiliency::Mirror { copies: 2 } => Self::Mirror,
            Resiliency::Mirror { .. } => Self::ThreeCopies,
            Resiliency::Parity { parity: 1 } => Self::Parity,
            Resiliency::Parity { .. } => Self::DualParity,
        }
    }

    pub fn has_one_copy(self) -> bool {
        matches!(self, Self::Simple | Self::StrictSimple | Self::Span)
    }

    /// Layouts of all spaces that are there.
    pub fn all_of(spaces: &Spaces) -> BTreeSet<Self> {
        let kinds = |space: &dolmen_space::Space| {
            let before = space.layout_before();
            let converting = before.map(|_| Self::Converting);
            [Some(Self::of(space.spec().layout())), before.map(Self::of), converting]
        };
        spaces.list().iter().flat_map(kinds).flatten().collect()
    }
}

/// How often each kind of fault struck, by layouts.
#[derive(Debug, Default, Clone, Copy)]
pub struct FaultsByLayout([FaultCounters; LayoutKind::ALL.len()]);

impl FaultsByLayout {
    fn count(&mut self, layouts: &BTreeSet<LayoutKind>, faults: FaultCounters) {
        layouts.iter().for_each(|layout| self.0[*layout as usize] += faults);
    }

    /// Kinds that never struck while a space of a layout was there.
    pub fn unseen<'a>(
        &'a self,
        kinds: impl Fn(LayoutKind, FaultKind) -> bool + Copy + 'a,
    ) -> impl Iterator<Item = (LayoutKind, FaultKind)> + 'a {
        let pairs = LayoutKind::ALL.into_iter().flat_map(move |layout| {
            FaultKind::ALL
                .into_iter()
                .filter(move |kind| kinds(layout, *kind))
                .map(move |kind| (layout, kind))
        });
        pairs.filter(|(layout, kind)| self.0[*layout as usize].of(*kind) == 0)
    }
}

/// What struck when, for [`FaultsByLayout`].
#[derive(Debug, Default)]
pub struct Ledger {
    counted: FaultCounters,
    layouts: BTreeSet<LayoutKind>,
    pub by_layout: FaultsByLayout,
}

impl Ledger {
    /// Counts what struck since this was called last, `all` being all that ever did, for the layouts that were there then; from
    /// here on it is these.
    pub fn count(&mut self, all: FaultCounters, layouts: BTreeSet<LayoutKind>) {
        self.by_layout.count(&self.layouts, all.since(self.counted));
        self.counted = all;
        self.layouts = layouts;
    }

    /// Counts what struck at an end of the daemon or behind it, for the layouts that were there last.
    pub fn count_end(&mut self, all: FaultCounters) {
        let layouts = self.layouts.clone();
        self.count(all, layouts);
    }
}

impl AddAssign for FaultsByLayout {
    fn add_assign(&mut self, other: Self) {
        self.0.iter_mut().zip(other.0).for_each(|(mine, more)| *mine += more);
    }
}

/// A table with a line for each kind of fault and a column for each layout.
impl fmt::Display for FaultsByLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<22}", "")?;
        LayoutKind::ALL.iter().try_for_each(|layout| write!(f, "{:>13}", format!("{layout:?}")))?;
        for kind in FaultKind::ALL {
            write!(f, "\n{kind:<22}")?;
            self.0.iter().try_for_each(|faults| write!(f, "{:>13}", faults.of(kind)))?;
        }
        Ok(())
    }
}
