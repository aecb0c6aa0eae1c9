//! Why a benchmark has no figures.

use std::io;
use std::path::PathBuf;

use dolmen_block_io::DeviceError;
use dolmen_units::Bytes;

/// Why a benchmark has no figures.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BenchError {
    /// The folder of the disks, or a file in it, cannot be used.
    #[error("preparing the disk {}: the system refused; name a folder on a disk with room", path.display())]
    File {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("beginning the measurement: no runtime")]
    Runtime {
        #[from]
        source: dolmen_block_linux::RuntimeError,
    },
    #[error("beginning the measurement: a disk could not be opened")]
    Open {
        #[from]
        source: dolmen_block_linux::OpenError,
    },
    #[error("beginning the measurement: no pool was made of the disks")]
    Create {
        #[from]
        source: dolmen_pool::CreateError,
    },
    #[error("beginning the measurement: the pool could not be opened again")]
    OpenPool {
        #[from]
        source: dolmen_pool::OpenError,
    },
    #[error("measuring {layout}: the space refused")]
    Space {
        layout: &'static str,
        #[source]
        source: dolmen_space::SpaceError,
    },
    #[error("measuring the raw disks: a command failed")]
    Device {
        #[from]
        source: DeviceError,
    },
    /// The pool was measured, but what it holds does not verify, so the figures mean nothing.
    #[error("checking the pool after {layout}: {found}; the figures of this layout mean nothing")]
    Check { layout: &'static str, found: String },
    /// A mirror needs its copies on different disks.
    #[error("measuring {layout}: needs {needed} disks, but there are {found}; raise --disks")]
    TooFewDisks { layout: &'static str, needed: usize, found: usize },
    #[error(
        "a block that was written and flushed reads as something else: block {block}, version {version}; the figures mean nothing"
    )]
    Wrong { block: u64, version: u32 },
    #[error("a sustained write costs {found:.2} disk I/Os, {limit:.2} at most are allowed: {of}")]
    OverLimit { of: &'static str, found: f64, limit: f64 },
    #[error("{span}: a span is whole mebibytes, {least} at least")]
    Span { span: Bytes, least: Bytes },
    #[error("heeding signals: the system refused")]
    Signals {
        #[source]
        source: io::Error,
    },
    #[error("a signal came; what was made is removed")]
    Interrupted,
    #[error("the pool that was just closed is not found on its disks")]
    Vanished,
    #[error("writing the figures failed")]
    Output {
        #[source]
        source: io::Error,
    },
}
