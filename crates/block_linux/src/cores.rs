//! What cores share, as `std` has it. Crate `interleavings` puts a model in its place, which runs all orders of threads.

pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
pub(crate) use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
