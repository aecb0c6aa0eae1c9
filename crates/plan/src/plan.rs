//! The whole answer: what each layout gives on these disks, and what it would with others.

use std::collections::BTreeSet;

use dolmen_api::SCHEMA;
use dolmen_units::Bytes;
use serde::Serialize;

use crate::capacity::{Room, RowLength, bound, first_width, room, rows};
use crate::disks::{Disk, Disks};
use crate::footprint::Footprint;
use crate::layout::Layout;
use crate::loss::{Losses, losses};
use crate::map;

/// Fault domains that footprints are given for, at least and at most.
const DOMAINS_SHOWN: (u32, u32) = (16, 32);
/// Sizes of one more disk that are tried when nobody names any, at most.
const SIZES_MAX: usize = 3;
/// Up to so many different losses are all tried; of more, those after which least can be held by the exact bound.
const TRIED_ALL_MAX: usize = 24;
const TRIED_MAX: usize = 3;
/// Data of the space whose footprint is shown when nobody names a size.
const SPACE_BYTES: Bytes = Bytes(1_000_000_000_000);

/// What is to be planned.
#[derive(Debug, Clone)]
pub struct PlanRequest {
    /// The disks.
    pub disks: Disks,
    /// The layouts; none for the usual ones.
    pub layouts: Vec<Layout>,
    /// Disks to be added one after another; none for one more of each of the largest sizes.
    pub added: Vec<Disk>,
    /// Data of the space whose footprint is wanted; none for 1 TB.
    pub space: Option<Bytes>,
    /// Length of rows; none for what the pool takes.
    pub row: Option<Bytes>,
}

impl PlanRequest {
    /// What is usual, for these disks.
    #[must_use]
    pub fn usual(disks: Disks) -> Self {
        Self { disks, layouts: Vec::new(), added: Vec::new(), space: None, row: None }
    }
}

/// What one more disk brings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Addition {
    /// The disk: its name, where it was named; else `one more`, or `one more, alone` where others share fault domains.
    pub name: String,
    /// Its size.
    pub size_bytes: u64,
    /// Usable with it.
    pub usable_bytes: u64,
    /// Usable with it, less usable without it; a disk never brings less than nothing to what a pool can hold.
    pub gain_bytes: u64,
}

/// What one layout gives.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Answer {
    /// The layout, as it is asked for.
    pub layout: String,
    /// The layout in words.
    pub title: String,
    /// Whether this version can make a space of it.
    pub in_this_version: bool,
    /// Disks that may be lost at once, whichever they are.
    pub survives_disks: u32,
    /// Whole fault domains that may be lost at once, whichever they are.
    pub survives_domains: u32,
    /// Disks without which it cannot be made.
    pub minimum_disks: u32,
    /// Fault domains without which it cannot be made.
    pub minimum_domains: u32,
    /// Why it cannot be made of these disks.
    pub problem: Option<String>,
    /// What it gives; none where it cannot be made.
    pub room: Option<Room>,
    /// Usable if, after the loss of any one disk, all redundancy is to be restored on the others. None where there is no
    /// redundancy to restore; 0 where the others are too few.
    pub heals_disk_bytes: Option<u64>,
    /// The same for the loss of any one fault domain, where some domain has several disks.
    pub heals_domain_bytes: Option<u64>,
    /// Data columns of the first row of a new pool; none for layouts of several codes.
    pub columns: Option<u32>,
    /// What may keep a pool from holding as much.
    pub warnings: Vec<String>,
    /// What more disks bring.
    pub additions: Vec<Addition>,
    /// What is lost by how many failures.
    pub losses: Vec<Losses>,
}

/// The answer to a [`PlanRequest`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Plan {
    /// [`SCHEMA`] of all documents.
    pub schema: u32,
    /// The disks and how they are cut.
    pub disks: Vec<Disk>,
    /// Bytes of all disks.
    pub raw_bytes: u64,
    /// Fault domains.
    pub domain_count: u32,
    /// Whether more disks are added one after another, or each by itself.
    pub additions_are_cumulative: bool,
    /// One answer for each layout.
    pub answers: Vec<Answer>,
    /// Footprints by the number of fault domains.
    pub footprint: Footprint,
}

impl Plan {
    /// Plans.
    #[must_use]
    pub fn make(request: &PlanRequest) -> Self {
        let disks = &request.disks;
        let layouts = if request.layouts.is_empty() { Layout::usual(disks) } else { request.layouts.clone() };
        let domains_max = disks.domain_count().clamp(DOMAINS_SHOWN.0, DOMAINS_SHOWN.1);
        let space = request.space.unwrap_or(SPACE_BYTES);
        Self {
            schema: SCHEMA,
            disks: disks.list().to_vec(),
            raw_bytes: disks.raw_bytes(),
            domain_count: disks.domain_count(),
            additions_are_cumulative: !request.added.is_empty(),
            answers: layouts.iter().map(|layout| answer(*layout, request)).collect(),
            footprint: Footprint::new(&layouts, space.0, domains_max, disks_within(&layouts, disks)),
        }
    }

    /// The layouts that cannot be made of these disks.
    pub fn problems(&self) -> impl Iterator<Item = &Answer> {
        self.answers.iter().filter(|answer| answer.problem.is_some())
    }
}

/// Disks of a domain that nested footprints are given for: those of the smallest domain that has enough.
fn disks_within(layouts: &[Layout], disks: &Disks) -> u32 {
    let needed = layouts.iter().map(|layout| layout.disks_min_within()).max().unwrap_or(1);
    let sizes = disks.by_domain().into_iter().filter_map(|members| u32::try_from(members.len()).ok());
    sizes.filter(|size| *size >= needed).min().unwrap_or(needed)
}

fn answer(layout: Layout, request: &PlanRequest) -> Answer {
    let (disks, row) = (&request.disks, RowLength(request.row));
    let found = room(layout, disks, row);
    let usable = found.as_ref().map_or(0, |room| room.usable_bytes);
    let (room, problem) = match found {
        Ok(room) => (Some(room), None),
        Err(problem) => (None, Some(problem.to_string())),
    };
    let placed = match (layout, &room) {
        (Layout::Plain(code), Some(room)) => rows(code, disks, room),
        (Layout::Plain(_) | Layout::Mixed { .. } | Layout::Nested { .. }, _) => None,
    };
    let columns = match (layout, &room) {
        (Layout::Plain(code), Some(room)) => first_width(code, disks, Bytes(room.row_bytes)),
        (Layout::Plain(_) | Layout::Mixed { .. } | Layout::Nested { .. }, _) => None,
    };
    let slabs = u64::from(columns.unwrap_or(1)) * u64::from(layout.survives_domains() + 1);
    Answer {
        layout: layout.to_string(),
        title: layout.title(),
        in_this_version: layout.is_made(),
        survives_disks: layout.survives_disks(),
        survives_domains: layout.survives_domains(),
        minimum_disks: layout.disks_min(),
        minimum_domains: layout.domains_min(),
        problem,
        heals_disk_bytes: heals(layout, disks, row, usable, &lost_disks(disks)),
        heals_domain_bytes: if disks.are_alone() {
            None
        } else {
            heals(layout, disks, row, usable, &disks.by_domain())
        },
        columns,
        warnings: room.as_ref().and_then(|room| map::warning(disks, room.rows, slabs)).into_iter().collect(),
        additions: additions(layout, request, usable),
        losses: room.as_ref().map(|room| losses(layout, disks, room, placed.as_deref())).unwrap_or_default(),
        room,
    }
}

/// What the others hold after the worst of these losses, and no more than all hold now: rows move, so what the others
/// would hold as a new pool is what can be restored on them.
fn heals(layout: Layout, disks: &Disks, row: RowLength, usable: u64, losses: &[Vec<usize>]) -> Option<u64> {
    if layout.survives_disks() == 0 {
        return None;
    }
    let mut seen = BTreeSet::new();
    let rests = losses.iter().map(|lost| disks.without(|at, _| lost.contains(&at)));
    let mut rests: Vec<Disks> = rests.filter(|rest| seen.insert(signature(rest))).collect();
    if rests.len() > TRIED_ALL_MAX {
        rests.sort_by_cached_key(|rest| bound(layout, rest, row));
        rests.truncate(TRIED_MAX);
    }
    let held = |rest: &Disks| room(layout, rest, row).map_or(0, |room| room.usable_bytes);
    Some(rests.iter().map(held).fold(usable, u64::min))
}

/// What tells two sets apart: sizes, gathered by domain, in any order.
fn signature(disks: &Disks) -> Vec<Vec<u64>> {
    let sizes = |members: &Vec<usize>| {
        let of = |at: &usize| disks.list().get(*at).map(|disk| disk.size_bytes);
        let mut sizes: Vec<u64> = members.iter().filter_map(of).collect();
        sizes.sort_unstable();
        sizes
    };
    let mut all: Vec<Vec<u64>> = disks.by_domain().iter().map(sizes).collect();
    all.sort_unstable();
    all
}

/// Losses of one disk.
fn lost_disks(disks: &Disks) -> Vec<Vec<usize>> {
    (0..disks.list().len()).map(|at| vec![at]).collect()
}

fn additions(layout: Layout, request: &PlanRequest, usable: u64) -> Vec<Addition> {
    let gain = |disks: &Disks, before: u64| {
        let after = room(layout, disks, RowLength(request.row)).map_or(0, |room| room.usable_bytes);
        (after, after.saturating_sub(before))
    };
    if request.added.is_empty() {
        let name = if request.disks.are_alone() { "one more" } else { "one more, alone" };
        let one_more = |size: u64| {
            let disk = Disk::new(name.to_owned(), Bytes(size), None)?;
            let (usable_bytes, gain_bytes) = gain(&request.disks.with(disk), usable);
            Some(Addition { name: name.to_owned(), size_bytes: size, usable_bytes, gain_bytes })
        };
        let sizes: BTreeSet<u64> = request.disks.list().iter().map(|disk| disk.size_bytes).collect();
        return sizes.into_iter().rev().take(SIZES_MAX).filter_map(one_more).collect();
    }
    let mut disks = request.disks.clone();
    let mut before = usable;
    let mut added = Vec::new();
    for disk in &request.added {
        disks = disks.with(disk.clone());
        let (usable_bytes, gain_bytes) = gain(&disks, before);
        before = usable_bytes;
        let (name, size_bytes) = (disk.name.clone(), disk.size_bytes);
        added.push(Addition { name, size_bytes, usable_bytes, gain_bytes });
    }
    added
}
