//! The planner: what a list of disks will give, before any of them is bought or touched.
//!
//! [`DiskList`] reads what people write, [`Plan::make`] answers for each [`Layout`], and [`page::render`] draws the
//! answer. All of it is arithmetic: nothing here opens a device, a file or a socket.
//!
//! What the engine can make today is planned with the engine's own `placement`, row by row where the set is small, so
//! that a figure is what a pool on those disks then accepts. What it cannot make yet (parity, mixed, nested and wide
//! codes) is planned by the same rules and marked. Method and source of each figure stand in `docs/plan.md`.
//!
//! Invariants:
//! - The bytes of a disk set are listed without a rest: what they are for adds up to the raw size.
//! - A share of failure sets is a pair of whole numbers, never a rounded one.
//! - The same input gives the same plan.

mod capacity;
mod disks;
mod error;
mod footprint;
mod layout;
mod list;
mod loss;
mod map;
mod mixed;
mod nested;
pub mod page;
mod plan;
mod sold;
mod wide;

pub use capacity::Room;
pub use disks::{Cut, DISK_BYTES_MAX, Disk, Disks};
pub use error::{LayoutError, ListError, ListFault, Place};
pub use footprint::{Factor, Footprint, FootprintCell, FootprintLine};
pub use layout::{Code, Layout, WIDE_DATA_MAX, WIDE_PARITY_MAX};
pub use list::DiskList;
pub use loss::{Basis, LossRow, Losses, Unit};
pub use plan::{Addition, Answer, Plan, PlanRequest};
pub use sold::as_sold;
