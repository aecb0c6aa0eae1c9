//! What cores share, as `std` has it. Crate `interleavings` puts a model in its place, which runs all orders of threads.

pub(crate) use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
pub(crate) use std::sync::{Condvar, Mutex, PoisonError};
