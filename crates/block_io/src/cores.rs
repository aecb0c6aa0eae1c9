//! What cores share, as `std` has it. Crate `interleavings` puts models in its place, which run all orders of threads.

pub(crate) use std::sync::atomic::{AtomicBool, Ordering};
