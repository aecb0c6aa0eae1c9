//! What stands on disks and in the log, and the words of a space: its specification, limits and errors.

pub(crate) mod attribute_fault;
pub(crate) mod attributes;
pub(crate) mod error;
pub(crate) mod ids;
pub(crate) mod layouts;
pub(crate) mod limit_fault;
pub(crate) mod limits;
pub(crate) mod raw;
pub(crate) mod record;
pub(crate) mod resiliency;
pub(crate) mod spec;
