//! What each finding of a check means, and what to do about it.
//!
//! The numbers and names are those of [`FindingKind`](crate::FindingKind), which are given once and never again.

/// A kind of finding, explained.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Explained {
    /// Its number.
    pub number: u16,
    /// Its name.
    pub name: &'static str,
    /// What it means.
    pub means: &'static str,
    /// What Dolmen does about it by itself.
    pub by_itself: &'static str,
    /// What to do.
    pub to_do: &'static str,
}

const fn explained(
    (number, name): (u16, &'static str),
    means: &'static str,
    by_itself: &'static str,
    to_do: &'static str,
) -> Explained {
    Explained { number, name, means, by_itself, to_do }
}

const NOTHING: &str = "Nothing: a check changes nothing.";

/// Every kind of finding: from 101 on of disks, from 201 on of pool and map, from 301 on of content.
pub const EXPLAINED: [Explained; 15] = [
    explained(
        (101, "label_damaged"),
        "A copy of a disk's label is damaged; another copy on the same disk is sound and tells all of it.",
        "The next change of the pool's epoch writes all copies again.",
        "Nothing; if it comes again, look at the health of the disk.",
    ),
    explained(
        (102, "labels_unusable"),
        "A disk has labels of a pool, and none of them can be used: they are damaged, or of a later version.",
        "The pool counts the disk as absent.",
        "Use the version that wrote them, or replace the disk; if the pool does not open without it, `dolmen-rescue scan` tells what can be had.",
    ),
    explained(
        (103, "unreadable"),
        "A disk cannot be read, or is shorter than it was.",
        "The pool counts the disk as absent.",
        "Look at its cable and its health; replace it if it does not come back.",
    ),
    explained(
        (104, "no_member"),
        "A device that was named belongs to no pool.",
        NOTHING,
        "Leave it out of the check.",
    ),
    explained(
        (105, "missing"),
        "A member of the pool is not among the disks that were named, or was away when the pool was used last; what it holds was not checked.",
        "When it comes back, what it missed is copied to it; after a while what it had is rebuilt on others.",
        "Name all disks of the pool, or attach the disk.",
    ),
    explained(
        (201, "unopenable"),
        "The pool cannot be opened from these disks: the map or the log is not there, or not whole.",
        NOTHING,
        "Name more of its disks; if there are no others, `dolmen-rescue scan` tells what can be had.",
    ),
    explained(
        (202, "map"),
        "The map contradicts itself: two slabs have the same room, room belongs to nobody, or an attribute to no space.",
        "Nothing: which of the two is right cannot be told.",
        "Export what is on the pool with `dolmen-rescue export`, make the pool again, and report the finding: it is a defect.",
    ),
    explained(
        (203, "cut"),
        "The check ended early, because something that it needs cannot be read.",
        NOTHING,
        "Look at the cause that is named; `dolmen-rescue` may read what the check cannot.",
    ),
    explained(
        (301, "stale"),
        "Rows have less redundancy than they should: a disk missed writes, or a job was cut short.",
        "Once the pool is open, a resync restores it.",
        "Open the pool, and let the resync end.",
    ),
    explained(
        (302, "damaged"),
        "Blocks on a disk do not match their checksums or cannot be read, and another copy or parity has each of them.",
        "What is read is healed.",
        "Open the pool and run `dolmen scrub`; if it comes again, replace the disk.",
    ),
    explained(
        (303, "lost"),
        "Content that no copy and no parity can give; reads of it fail.",
        "A block is whole again once it is written.",
        "Restore what lies there from a backup.",
    ),
    explained(
        (304, "table_lost"),
        "No copy of the table can be believed that says what a stretch of a space holds; reads of it fail.",
        "A block is whole again once it is written.",
        "Restore what lies there from a backup.",
    ),
    explained(
        (305, "accepted_unverified"),
        "Blocks were being overwritten, unflushed, when power failed, and lost their other copies in that instant; they are taken as they are, unverified.",
        "Their checksums are made again from what is there.",
        "Have whatever uses the space check itself; strict spaces have no such case.",
    ),
    explained(
        (306, "out_of_reach"),
        "Content whose copies are all on disks that were not given.",
        "Once the disks are back, it is there.",
        "Attach the disks.",
    ),
    explained(
        (307, "header_wrong"),
        "The header of a slab is not what the map says of it; no content hangs on it, but without a map the slab would not be found.",
        "A scrub writes it again.",
        "Open the pool and run `dolmen scrub`.",
    ),
];
