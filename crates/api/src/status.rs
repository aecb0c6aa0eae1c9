//! The answer to "am I fine?".

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::finding::Finding;
use crate::pool::Pool;
use crate::space::Space;

/// How something is. Ordered: the worst of several is their maximum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Health {
    /// All is well.
    Healthy,
    /// Everything can be read and written, but redundancy is reduced, or somebody should look.
    Warning,
    /// Data is lost or out of reach, or a pool is closed or has stopped.
    Unhealthy,
}

/// Who answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Version {
    /// [`SCHEMA`](crate::SCHEMA).
    pub schema: u32,
    /// The version of the daemon.
    pub daemon: String,
    /// The version of the API, [`API_VERSION`](crate::API_VERSION).
    pub api: u32,
}

/// The state of everything.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Status {
    /// [`SCHEMA`](crate::SCHEMA).
    pub schema: u32,
    /// How it is.
    pub health: Health,
    /// That, in one sentence.
    pub summary: String,
    /// Why, if it is not healthy.
    pub why: Vec<String>,
    /// What is being done.
    pub doing: Vec<String>,
    /// What somebody should do.
    pub todo: Vec<String>,
    /// Findings of all pools and of the daemon, one by one; `why` has the same in words, where absent disks are one.
    #[serde(default)]
    pub findings: Vec<Finding>,
    /// Who answers.
    pub version: Version,
    /// For how long the daemon has been running.
    pub uptime_s: u64,
    /// Its process.
    pub pid: u32,
    /// All pools, by name.
    pub pools: Vec<Pool>,
    /// All spaces, by pool and name.
    pub spaces: Vec<Space>,
}

/// Ends the daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Shutdown {
    /// Leave attached spaces for the next daemon to take up: their I/O pauses, and goes on with it. Without this, an
    /// attached space that is in use keeps the daemon from ending.
    #[serde(default)]
    pub hand_over: bool,
    /// Only tell what would happen.
    #[serde(default)]
    pub dry_run: bool,
}
