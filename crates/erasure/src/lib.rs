//! Erasure codes: parity of blocks, and blocks that are lost computed again from the others.
//!
//! A *stripe* is one block of each column: `data_count` data blocks and `parity_count` parity blocks, all of one length in
//! bytes. From any `data_count` of them all others follow, so a stripe survives the loss of as many columns as it has
//! parity columns, whichever they are. Parity column 0 is P, the XOR of the data; parity column 1 is Q exactly as Linux md
//! has it, Σ 2^j × d_j over GF(2^8) with the polynomial 0x11d, where j is the number of the data column; up to eight
//! follow, each of them in the same place of every code (`matrix.rs` has them, and why they suffice).
//!
//! Columns are numbered through: data columns from 0, behind them the parity columns. A block that was never written
//! counts as zeros; it is given as `None` and nothing is read for it.
//!
//! - [`Code::encode`] computes parity again from all data.
//! - [`Code::update`] carries a change of some data blocks into the parity that is there.
//! - [`Code::plan`] prepares, for one choice of columns, what [`Plan::reconstruct`] then does with each stripe.
//!
//! Invariants: nothing here allocates, copies a block, or keeps a reference to one; what a caller got wrong is an error
//! before the first byte is written; every kernel gives the bytes that the scalar one gives.
//!
//! Left to others: whether a block that is given is right (checksums are the caller's), which columns are lost, and
//! how parity rotates over disks. An erasure code fills gaps; it does not find errors here.
//!
//! | file | what |
//! |---|---|
//! | `code.rs` | the code of a shape: encoding and updating |
//! | `plan.rs` | reconstruction: which columns are read, and their factors |
//! | `matrix.rs` | the parity matrix, and the proof that it suffices |
//! | `field.rs` | GF(2^8) and its tables |
//! | `sums.rs` | sums of products over blocks: what encoding, updating and reconstruction all come down to |
//! | `kernel.rs` | which kernels there are, and the choice among them while running |
//! | `kernel/scalar.rs` | byte by byte from a table: what the others are compared with |
//! | `kernel/portable.rs` | eight bytes at a time, on any processor |
//! | `kernel/x86.rs` | SSSE3, AVX2 and AVX-512, with and without GFNI |
//! | `error.rs` | what callers can get wrong |
//!
//! How fast it is stands in `docs/erasure.md`.
#![allow(unsafe_code)]

mod code;
mod error;
mod field;
mod kernel;
mod matrix;
mod plan;
mod sums;

pub use code::{Change, Code, Shape};
pub use error::{BlocksError, CodeError, PlanError, Role};
pub use kernel::Kernel;
pub use plan::Plan;

/// Data columns of a code, at most.
pub const DATA_COUNT_MAX: usize = 32;
/// Parity columns of a code, at most.
pub const PARITY_COUNT_MAX: usize = 8;
