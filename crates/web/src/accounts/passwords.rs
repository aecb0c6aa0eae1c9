//! Passwords: argon2id, which takes 19 MiB and two passes for each guess.

use argon2::{Algorithm, Argon2, Params, Version};
use serde::{Deserialize, Serialize};

use crate::error::WebError;
use crate::secret::{hex, is_equal, random, unhex};

/// Memory of a hash, in KiB.
const MEMORY_KIB: u32 = 19 * 1024;
/// Passes over it.
const PASSES: u32 = 2;
/// Lanes of it.
const LANES: u32 = 1;
/// Bytes of a salt.
const SALT_BYTES: usize = 16;
/// Bytes of a hash.
const HASH_BYTES: usize = 32;
/// Memory that a hash on record may ask for, in KiB: a damaged file takes no more.
const MEMORY_KIB_MAX: u32 = 256 * 1024;
/// Passes that a hash on record may ask for.
const PASSES_MAX: u32 = 16;

/// A password, as the file of accounts holds it. Its figures may grow: those of a hash are kept beside it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PasswordHash {
    argon2id: String,
    salt: String,
    memory_kib: u32,
    passes: u32,
}

impl PasswordHash {
    /// Hashes a password; takes a tenth of a second.
    pub(crate) fn of(password: &str) -> Result<Self, WebError> {
        let salt: [u8; SALT_BYTES] = random()?;
        let hash = hash(password, &salt, MEMORY_KIB, PASSES).ok_or(WebError::Hash)?;
        Ok(Self { argon2id: hex(&hash), salt: hex(&salt), memory_kib: MEMORY_KIB, passes: PASSES })
    }

    /// Returns a hash that no password has, to compare guesses for unknown users with.
    pub(crate) fn of_nobody() -> Result<Self, WebError> {
        Self::of(&hex(&random::<32>()?))
    }

    /// Returns whether it is of this password; takes a tenth of a second.
    pub(crate) fn is_of(&self, password: &str) -> bool {
        if self.memory_kib > MEMORY_KIB_MAX || self.passes > PASSES_MAX {
            return false;
        }
        let (Some(salt), Some(expected)) = (unhex(&self.salt), unhex(&self.argon2id)) else { return false };
        let found = hash(password, &salt, self.memory_kib, self.passes);
        found.is_some_and(|found| is_equal(&found, &expected))
    }
}

fn hash(password: &str, salt: &[u8], memory_kib: u32, passes: u32) -> Option<[u8; HASH_BYTES]> {
    let params = Params::new(memory_kib, passes, LANES, Some(HASH_BYTES)).ok()?;
    let mut hash = [0; HASH_BYTES];
    let argon2 = Argon2::new(Algorithm::Argon2id, Version::V0x13, params);
    argon2.hash_password_into(password.as_bytes(), salt, &mut hash).ok()?;
    Some(hash)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_is_of_one_password_and_never_the_same_twice() {
        let [one, other] =
            [PasswordHash::of("correct horse").unwrap(), PasswordHash::of("correct horse").unwrap()];
        assert!(one.is_of("correct horse") && !one.is_of("correct hors") && !one.is_of(""));
        assert_ne!(one, other);
        assert!(!PasswordHash::of_nobody().unwrap().is_of("correct horse"));
    }

    #[test]
    fn a_damaged_hash_is_of_no_password() {
        let whole = PasswordHash::of("correct horse").unwrap();
        for damaged in [
            PasswordHash { salt: String::new(), ..whole.clone() },
            PasswordHash { argon2id: String::new(), ..whole.clone() },
            PasswordHash { memory_kib: u32::MAX, ..whole.clone() },
            PasswordHash { passes: 0, ..whole.clone() },
        ] {
            assert!(!damaged.is_of("correct horse") && !damaged.is_of(""));
        }
    }
}
