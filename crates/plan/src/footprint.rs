//! The footprint of a space: bytes on disks for each byte of data, by the number of fault domains.
//!
//! Copies and parity only. Tables take up to 2 % on top, and are counted where disks are planned for. Automatic parity
//! is as wide as the domains allow. Beside it stands, for mixed spaces, the table of steps that Storage Spaces Direct
//! uses for dual parity with hard disks: 2+2 on 4 to 6 domains, 4+2 on 7 to 11, and from 12 on 8 data columns with two
//! global and one local parity (Microsoft, "Fault tolerance and storage efficiency in Storage Spaces Direct").

use serde::Serialize;

use dolmen_placement::{DATA_COLUMNS_MAX, DUAL_PARITY_DATA_COLUMNS_MAX};

use crate::layout::{Code, Layout, MIXED_COPIES, MIXED_PARITY};

/// Steps of the published table: from so many domains on, data and parity columns. The last has a local parity column.
const STEPS: [(u32, u32, u32); 3] = [(4, 2, 2), (7, 4, 2), (12, 8, 3)];
/// Where the published table ends.
const STEPS_DOMAINS_MAX: u32 = 16;

/// Bytes on disks for bytes of data, as a fraction in lowest terms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Factor {
    /// Bytes on disks.
    pub raw: u64,
    /// Bytes of data.
    pub data: u64,
}

impl Factor {
    fn new(raw: u64, data: u64) -> Self {
        let divisor = common_divisor(raw, data).max(1);
        Self { raw: raw / divisor, data: data / divisor }
    }

    fn columns(data: u32, parity: u32) -> Self {
        Self::new(u64::from(data + parity), u64::from(data))
    }

    fn times(self, other: Self) -> Self {
        Self::new(self.raw * other.raw, self.data * other.data)
    }

    /// The mean of two, `percent` of the data being under the first.
    fn mixed(percent: u32, first: Self, second: Self) -> Self {
        let (hot, cold) = (u64::from(percent), u64::from(100 - percent));
        let raw = hot * first.raw * second.data + cold * second.raw * first.data;
        Self::new(raw, 100 * first.data * second.data)
    }

    /// Bytes on disks for so much data, rounded up.
    #[must_use]
    pub fn of(self, data_bytes: u64) -> u64 {
        let raw = (u128::from(data_bytes) * u128::from(self.raw)).div_ceil(u128::from(self.data.max(1)));
        u64::try_from(raw).unwrap_or(u64::MAX)
    }

    /// In hundredths, rounded to the nearest.
    #[must_use]
    pub fn hundredths(self) -> u64 {
        (self.raw * 200 + self.data) / (2 * self.data.max(1))
    }
}

fn common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { common_divisor(b, a % b) }
}

/// One layout on one number of fault domains.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FootprintCell {
    /// Fault domains.
    pub domains: u32,
    /// The code that is used there.
    pub code: String,
    /// Bytes on disks for each byte of data.
    pub factor: Factor,
    /// Bytes on disks for the whole space.
    pub bytes: u64,
}

/// One layout on all numbers of fault domains on which it can be made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FootprintLine {
    /// The layout, as it is asked for; none for the published table.
    pub layout: Option<String>,
    /// The layout in words.
    pub title: String,
    /// Whether this version can make it.
    pub in_this_version: bool,
    /// From the fewest domains on.
    pub cells: Vec<FootprintCell>,
}

/// The footprint of a space.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Footprint {
    /// Data of the space.
    pub space_bytes: u64,
    /// Fault domains are counted from one to this.
    pub domains_max: u32,
    /// Disks that each domain is taken to have, for nested layouts.
    pub disks_within: u32,
    /// The lines.
    pub lines: Vec<FootprintLine>,
}

impl Footprint {
    /// The footprint of a space of `space_bytes` under each layout on 1 to `domains_max` fault domains of
    /// `disks_within` disks.
    #[must_use]
    pub fn new(layouts: &[Layout], space_bytes: u64, domains_max: u32, disks_within: u32) -> Self {
        let mut lines = Vec::new();
        for layout in layouts {
            lines.push(line(*layout, space_bytes, domains_max, disks_within));
            if let Layout::Mixed { mirror_percent } = layout {
                lines.push(stepped_line(*mirror_percent, space_bytes, domains_max));
            }
        }
        Self { space_bytes, domains_max, disks_within, lines }
    }
}

fn line(layout: Layout, space_bytes: u64, domains_max: u32, disks_within: u32) -> FootprintLine {
    let cell = |domains| {
        let (code, factor) = factor(layout, domains, disks_within)?;
        Some(FootprintCell { domains, code, factor, bytes: factor.of(space_bytes) })
    };
    FootprintLine {
        layout: Some(layout.to_string()),
        title: layout.title(),
        in_this_version: layout.is_made(),
        cells: (1..=domains_max).filter_map(cell).collect(),
    }
}

fn stepped_line(percent: u32, space_bytes: u64, domains_max: u32) -> FootprintLine {
    let cell = |domains| {
        let (_, data, parity) = STEPS.into_iter().rev().find(|(from, _, _)| domains >= *from)?;
        let mirror = Factor::new(u64::from(MIXED_COPIES), 1);
        let factor = Factor::mixed(percent, mirror, Factor::columns(data, parity));
        let local = parity - MIXED_PARITY;
        let code =
            if local == 0 { format!("{data}+{parity}") } else { format!("{data}+{MIXED_PARITY}+{local}") };
        Some(FootprintCell { domains, code, factor, bytes: factor.of(space_bytes) })
    };
    FootprintLine {
        layout: None,
        title: format!("mixed, {percent} % mirror, published steps"),
        in_this_version: false,
        cells: (1..=domains_max.min(STEPS_DOMAINS_MAX)).filter_map(cell).collect(),
    }
}

/// The code and its factor on so many fault domains; `None` where they are too few.
fn factor(layout: Layout, domains: u32, disks_within: u32) -> Option<(String, Factor)> {
    match layout {
        Layout::Plain(code) => plain_factor(code, domains),
        Layout::Mixed { mirror_percent } => {
            let (_, mirror) = plain_factor(Code::Mirror { copies: MIXED_COPIES }, domains)?;
            let (code, parity) = plain_factor(Code::Parity { parity: MIXED_PARITY }, domains)?;
            Some((code, Factor::mixed(mirror_percent, mirror, parity)))
        }
        Layout::Nested { copies, inner } => {
            let (code, within) = plain_factor(inner, disks_within)?;
            let (outer, factor) = plain_factor(Code::Mirror { copies }, domains)?;
            Some((format!("{outer} of {code}"), factor.times(within)))
        }
    }
}

fn plain_factor(code: Code, domains: u32) -> Option<(String, Factor)> {
    if domains < code.domains_min() {
        return None;
    }
    match code {
        Code::Simple | Code::Span => Some(("1".to_owned(), Factor::new(1, 1))),
        Code::Mirror { copies } => Some((format!("{copies} copies"), Factor::new(u64::from(copies), 1))),
        Code::Parity { parity } => {
            let most = if parity == 1 { DATA_COLUMNS_MAX } else { DUAL_PARITY_DATA_COLUMNS_MAX };
            let data = (domains - parity).min(most);
            Some((format!("{data}+{parity}"), Factor::columns(data, parity)))
        }
        Code::Wide { data, parity } => Some((format!("{data}+{parity}"), Factor::columns(data, parity))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(lines: &[FootprintLine], title: &str, domains: u32) -> Option<u64> {
        let line = lines.iter().find(|line| line.title == title)?;
        line.cells.iter().find(|cell| cell.domains == domains).map(|cell| cell.bytes)
    }

    /// The published figures for 1 TB: 3000 GB for three copies; 2300 GB mixed on 4 to 6 fault domains and 1950 on 7.
    #[test]
    fn a_terabyte_has_the_published_footprints() {
        let gb = 1_000_000_000;
        let layouts = ["mirror:3", "mixed:30", "mirror:2/mirror:2"].map(|text| text.parse().unwrap());
        let lines = Footprint::new(&layouts, 1000 * gb, 16, 12).lines;
        for domains in 3..=16 {
            assert_eq!(bytes(&lines, "mirror of 3", domains), Some(3000 * gb));
        }
        let steps = "mixed, 30 % mirror, published steps";
        for (domains, expected) in
            [(3, None), (4, Some(2300)), (5, Some(2300)), (6, Some(2300)), (7, Some(1950)), (11, Some(1950))]
        {
            assert_eq!(bytes(&lines, steps, domains), expected.map(|gigabytes| gigabytes * gb), "{domains}");
        }
        // 30 % three times and 70 % eleven eighths.
        assert_eq!(bytes(&lines, steps, 12), Some(1_862_500_000_000));
        // As wide as the domains allow: the same on 4, less from 5 on.
        for (domains, expected) in [(4, 2_300_000_000_000), (6, 1_950_000_000_000), (7, 1_880_000_000_000)] {
            assert_eq!(bytes(&lines, "mixed, 30 % mirror", domains), Some(expected));
        }
        // Four copies in two nodes: a quarter of the raw room is data.
        assert_eq!(bytes(&lines, "mirror of 2 over mirror of 2", 2), Some(4000 * gb));
    }

    /// As many columns as there are fault domains, at most 8 data with one parity and 12 with two.
    #[test]
    fn automatic_parity_is_as_wide_as_the_domains_allow() {
        for (parity, domains, data) in [(1, 3, 2), (1, 9, 8), (1, 10, 8), (2, 4, 2), (2, 14, 12), (2, 15, 12)]
        {
            let (code, factor) = plain_factor(Code::Parity { parity }, domains).unwrap();
            assert_eq!(code, format!("{data}+{parity}"));
            assert_eq!(factor, Factor::columns(data, parity));
        }
        assert_eq!(plain_factor(Code::Parity { parity: 2 }, 3), None);
    }

    #[test]
    fn fractions_are_rounded_up_to_bytes_and_to_the_nearest_hundredth() {
        let factor = Factor::columns(3, 2);
        assert_eq!((factor.of(3), factor.of(4), factor.hundredths()), (5, 7, 167));
        assert_eq!(Factor::new(6, 4), Factor { raw: 3, data: 2 });
    }
}
