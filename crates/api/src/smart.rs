//! What a disk says of itself (SMART), as `smartctl` tells it.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What a disk says of itself. What it does not say is left out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct Smart {
    /// Whether it expects to go on working: `false` is a failure that it predicts.
    pub passed: Option<bool>,
    /// What it is.
    pub model: Option<String>,
    /// Its serial number.
    pub serial: Option<String>,
    /// Degrees Celsius.
    pub temperature_c: Option<i64>,
    /// How long it has run.
    pub power_on_hours: Option<u64>,
    /// Sectors that lie elsewhere now because they had gone bad.
    pub reallocated_sectors: Option<u64>,
    /// Sectors that could not be read and wait to be written.
    pub pending_sectors: Option<u64>,
    /// Sectors that could not be mended.
    pub uncorrectable_sectors: Option<u64>,
    /// NVMe: bits of what is critical; 1 spare low, 2 temperature, 4 unreliable, 8 read-only, 16 the backup of its memory.
    pub critical_warning: Option<u64>,
    /// NVMe: how much of its life is used, in percent; more than 100 is possible.
    pub percentage_used: Option<u64>,
    /// NVMe: errors of its media.
    pub media_errors: Option<u64>,
}

impl Smart {
    /// The bits of a critical warning by which it is about to fail: little spare, unreliable, read-only.
    const FAILING_BITS: u64 = 1 | 4 | 8;

    /// Whether it says that it fails.
    #[must_use]
    pub fn is_failing(&self) -> bool {
        self.passed == Some(false) || self.critical_warning.is_some_and(|bits| bits & Self::FAILING_BITS != 0)
    }

    /// How many places it has lost so far, or is about to.
    #[must_use]
    pub fn defects(&self) -> u64 {
        let all =
            [self.reallocated_sectors, self.pending_sectors, self.uncorrectable_sectors, self.media_errors];
        all.into_iter().flatten().fold(0, u64::saturating_add)
    }
}
