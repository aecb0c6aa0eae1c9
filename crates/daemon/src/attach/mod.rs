//! The service of attached spaces: transports and requests of the kernel. It knows no engine.

mod attach_fault;
mod kernel_host;
mod transports;
mod worker_pool;

pub(crate) use attach_fault::{body, loop_fault, rings_fault, start_fault};
pub(crate) use kernel_host::{Asked, EngineHost, Job, ZEROS_BYTES, carry_out};
pub(crate) use transports::{Limits, Makers, Refused, Shown, TRIES_MAX, Transports};
pub(crate) use worker_pool::{WorkerIndex, WorkerPool};
