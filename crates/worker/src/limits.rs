//! Load and memory of a long operation.

use dolmen_files::load::set_idle_io;
use dolmen_volume::record::DeduplicationMode;
use rustix::process::{Resource, Rlimit, setpriority_process, setrlimit};

use crate::protocol::long::{Load, MEMORY_BYTES_MIN};
use crate::protocol::{Failure, FailureCode};

/// Bytes of memory that are not for buffers of sorts: the program, maps of files, ranges of one file, buffers of reads.
const OTHER_BYTES: u64 = 24 << 20;
const _: () = assert!(OTHER_BYTES < MEMORY_BYTES_MIN);
/// Lowest priority of a process that is scheduled like others.
///
/// A thread of the idle class may hold a lock of the file system for as long as others want the processor.
const NICE: i32 = 19;

/// Limits this process, and returns the bytes of memory for buffers.
pub(crate) fn limit(load: &Load) -> Result<usize, Failure> {
    let memory = load.memory_bytes;
    let failed = |code, message: String| Failure { code, message, hint: String::new() };
    if memory < MEMORY_BYTES_MIN {
        return Err(failed(
            FailureCode::BadOrder,
            format!("a memory cap of {memory} bytes is below the {MEMORY_BYTES_MIN} that an operation needs"),
        ));
    }
    setrlimit(Resource::Data, Rlimit { current: Some(memory), maximum: Some(memory) }).map_err(|error| {
        failed(FailureCode::Refused, format!("memory cannot be limited to {memory} bytes: {error}"))
    })?;
    match load.mode {
        DeduplicationMode::Throughput => {}
        DeduplicationMode::Background => {
            let refused = |error: &dyn std::fmt::Display| {
                failed(FailureCode::Refused, format!("the process cannot yield to others: {error}"))
            };
            setpriority_process(None, NICE).map_err(|error| refused(&error))?;
            set_idle_io().map_err(|error| refused(&error))?;
        }
    }
    Ok(usize::try_from(memory - OTHER_BYTES).unwrap_or(usize::MAX))
}
