//! Why nothing could be rescued in the way that was asked for.

use dolmen_pool::OpenError;
use dolmen_space::SpaceError;
use dolmen_store::{CheckpointError, StoreError};
use dolmen_units::PoolId;

/// Why nothing could be rescued in the way that was asked for.
#[derive(Debug, thiserror::Error)]
pub enum RescueError {
    /// No device has anything of a pool that this way could use.
    #[error("none of the {count} devices has {what}; {advice}")]
    Nothing {
        /// How many were looked at.
        count: usize,
        /// What was looked for.
        what: &'static str,
        /// What else may do.
        advice: &'static str,
    },
    /// The devices are of several pools.
    #[error("the devices are of several pools: {}; choose one with --pool", list(pools))]
    SeveralPools {
        /// Each with its name, where one is known.
        pools: Vec<(PoolId, Option<String>)>,
    },
    /// None of the pools is the one that was asked for.
    #[error("none of the devices is of a pool named {wanted:?}, or with that id")]
    NoSuchPool {
        /// What was asked for.
        wanted: String,
    },
    /// Two devices are the same disk.
    #[error("{first} and {second} are the same disk, {disk}: one is a copy of the other; leave one out")]
    Twice {
        /// One of them.
        first: String,
        /// The other.
        second: String,
        /// Whose identity both have.
        disk: String,
    },
    /// The pool cannot be opened in this way.
    #[error("the pool cannot be opened like this; {advice}")]
    Open {
        /// What else may do.
        advice: String,
        /// Why.
        source: Box<OpenError>,
    },
    /// No voter has a checkpoint with this number.
    #[error("no disk has checkpoint {wanted}; there are {}", numbers(found))]
    NoCheckpoint {
        /// What was asked for.
        wanted: u64,
        /// What there is.
        found: Vec<u64>,
    },
    /// The map of a checkpoint is not whole.
    #[error(
        "the map of checkpoint {sequence} is not whole; try an older one (scan lists them), or --from-slabs"
    )]
    Map {
        /// Which one.
        sequence: u64,
        /// What is the matter.
        source: Box<StoreError>,
    },
    /// The map that was put together does not fit into the memory that stands for the disks.
    #[error("the map that was put together could not be laid out in memory")]
    Layout(#[source] Box<dyn std::error::Error>),
    /// The spaces of the pool make no sense.
    #[error("the spaces of the pool cannot be read like this; try --from-slabs")]
    Spaces(#[source] Box<SpaceError>),
    /// No such space.
    #[error("there is no space {wanted:?}; there are {}", names(found))]
    NoSuchSpace {
        /// What was asked for.
        wanted: String,
        /// What there is.
        found: Vec<String>,
    },
}

impl RescueError {
    pub(crate) fn layout(error: CheckpointError) -> Self {
        Self::Layout(Box::new(error))
    }
}

fn list(pools: &[(PoolId, Option<String>)]) -> String {
    let one = |(id, name): &(PoolId, Option<String>)| {
        name.as_ref().map_or_else(|| id.to_string(), |name| format!("{name} ({id})"))
    };
    pools.iter().map(one).collect::<Vec<_>>().join(", ")
}

fn numbers(found: &[u64]) -> String {
    if found.is_empty() {
        return "none".to_owned();
    }
    found.iter().map(u64::to_string).collect::<Vec<_>>().join(", ")
}

fn names(found: &[String]) -> String {
    if found.is_empty() { "none".to_owned() } else { found.join(", ") }
}
