//! The saved state: JSON with a version. A version that this build does not know is refused, and so is what is not as it writes it.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::alerts::{ALERTS_MAX, Alerts, State};
use crate::policy::Policy;
use crate::silence::SILENCES_MAX;

/// Version of the saved state.
pub const STATE_VERSION: u32 = 1;
/// Bytes of a saved state that are read, at most.
pub const STATE_BYTES_MAX: usize = 256 << 20;

/// A saved state that is refused.
#[derive(Debug, Error)]
pub enum RestoreError {
    /// It is no JSON of a saved state.
    #[error(
        "the saved state of alerts is damaged; keep the file aside and start without it: open alerts are then reported again"
    )]
    Damaged(#[from] serde_json::Error),
    /// It was written by another build.
    #[error(
        "the saved state of alerts has version {found}, and this build reads version {STATE_VERSION}; use the build that wrote it, or keep the file \
         aside and start without it: open alerts are then reported again"
    )]
    Version {
        /// Its version.
        found: u32,
    },
    /// It is larger than anything that this build writes.
    #[error(
        "the saved state of alerts has {found} bytes, and has {STATE_BYTES_MAX} at most; keep the file aside and start without it"
    )]
    Large {
        /// Its bytes.
        found: usize,
    },
    /// Its parts do not fit together.
    #[error("the saved state of alerts contradicts itself: {what}; keep the file aside and start without it")]
    Unsound {
        /// What is wrong.
        what: &'static str,
    },
}

#[derive(Deserialize)]
struct Versioned {
    version: u32,
}

#[derive(Serialize)]
struct Saved<'a> {
    version: u32,
    state: &'a State,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Restored {
    #[allow(dead_code)] // read before, by itself
    version: u32,
    state: State,
}

impl Alerts {
    /// Returns the state as JSON. Callers write it after each call that changes it, before they send what is due.
    ///
    /// # Errors
    /// It cannot be written as JSON, which a state of this build always can.
    pub fn save(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string(&Saved { version: STATE_VERSION, state: &self.state })
    }

    /// Returns the alerts of a saved state.
    ///
    /// # Errors
    /// It is of another version, damaged, or contradicts itself.
    pub fn restore(text: &str, policy: Policy) -> Result<Self, RestoreError> {
        let mut alerts = Self::restore_with_all_channels(text)?;
        alerts.set_policy(policy);
        Ok(alerts)
    }

    /// Returns the alerts of a saved state, with what waits for any channel, for callers that know no policy: they set silences and ask
    /// for tests, and do not look.
    ///
    /// # Errors
    /// It is of another version, damaged, or contradicts itself.
    pub fn restore_with_all_channels(text: &str) -> Result<Self, RestoreError> {
        if text.len() > STATE_BYTES_MAX {
            return Err(RestoreError::Large { found: text.len() });
        }
        let Versioned { version } = serde_json::from_str(text)?;
        if version != STATE_VERSION {
            return Err(RestoreError::Version { found: version });
        }
        let Restored { state, .. } = serde_json::from_str(text)?;
        state.check()?;
        Ok(Self { policy: Policy::default(), state })
    }
}

impl State {
    fn check(&self) -> Result<(), RestoreError> {
        let ids: Vec<u64> = self.alerts.values().map(|alert| alert.id()).collect();
        let unique: std::collections::BTreeSet<&u64> = ids.iter().collect();
        let silences = self.silences.iter().map(|silence| silence.id);
        let last = ids.iter().copied().chain(silences).max().unwrap_or(0);
        for (is_sound, what) in [
            (unique.len() == ids.len(), "two alerts have one number"),
            (last <= self.next_id && self.next_id < u64::MAX, "a number was not given"),
            (self.alerts.iter().all(|(cause, alert)| cause == alert.cause()), "an alert is of another cause"),
            (self.alerts.len() <= ALERTS_MAX + 1, "there are too many alerts"),
            (self.silences.len() <= SILENCES_MAX, "there are too many silences"),
            (self.outbox.is_sound(), "the outbox has numbers twice, or too many"),
        ] {
            if !is_sound {
                return Err(RestoreError::Unsound { what });
            }
        }
        Ok(())
    }
}

/// Maps by cause as lists of pairs: a key of JSON is a text.
pub(crate) mod pairs {
    use std::collections::BTreeMap;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use crate::cause::Cause;

    pub(crate) fn serialize<S: Serializer, T: Serialize>(
        map: &BTreeMap<Cause, T>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(map)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
        deserializer: D,
    ) -> Result<BTreeMap<Cause, T>, D::Error> {
        Ok(Vec::<(Cause, T)>::deserialize(deserializer)?.into_iter().collect())
    }
}

/// Alerts by cause as a list: each names its cause.
pub(crate) mod by_cause {
    use std::collections::BTreeMap;

    use serde::{Deserialize, Deserializer, Serializer};

    use crate::alert::Alert;
    use crate::cause::Cause;

    pub(crate) fn serialize<S: Serializer>(
        map: &BTreeMap<Cause, Alert>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(map.values())
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<BTreeMap<Cause, Alert>, D::Error> {
        let alerts = Vec::<Alert>::deserialize(deserializer)?;
        let count = alerts.len();
        let map: BTreeMap<Cause, Alert> =
            alerts.into_iter().map(|alert| (alert.cause().clone(), alert)).collect();
        match map.len() == count {
            true => Ok(map),
            false => Err(serde::de::Error::custom("two alerts have one cause")),
        }
    }
}
