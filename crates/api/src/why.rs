//! Why something is as it is.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::finding::{FindingCode, Object, Object as Subject};
use crate::status::Health;

/// Something that is so, with what it comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Cause {
    /// In words.
    pub text: String,
    /// What is the matter, where this is a finding of its own.
    #[serde(default)]
    pub code: Option<FindingCode>,
    /// Since when, in seconds since 1970 by the clock of the system, where that was seen.
    #[serde(default)]
    pub since_s: Option<u64>,
    /// What somebody can do about it.
    #[serde(default)]
    pub todo: Vec<String>,
    /// What it comes from.
    #[serde(default)]
    #[schema(no_recursion)]
    pub causes: Vec<Cause>,
}

/// Why a pool, a disk, a space or a job is as it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Why {
    /// [`SCHEMA`](crate::SCHEMA).
    pub schema: u32,
    /// What it is about.
    #[schema(value_type = Subject)]
    pub object: Object,
    /// How it is, in a sentence.
    pub state: String,
    /// How bad that is.
    pub health: Health,
    /// What that comes from, the worst first; none where nothing is the matter.
    pub causes: Vec<Cause>,
    /// What is being done that has to do with it.
    pub doing: Vec<String>,
    /// When this was said, in seconds since 1970 by the clock of the system.
    pub now_s: u64,
}
