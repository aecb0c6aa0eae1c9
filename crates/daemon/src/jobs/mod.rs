//! The service of jobs: numbers, order, throttling, progress and record of long work (docs/design/0011).

pub(crate) mod course;
pub(crate) mod record;
pub(crate) mod registry;
pub(crate) mod share;
pub(crate) mod slot;
