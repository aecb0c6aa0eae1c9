//! Passwords off the thread of requests, a few at a time: each takes memory and a tenth of a second.

use std::sync::Arc;

use tokio::sync::Semaphore;

use super::refusal::Refusal;
use crate::accounts::PasswordHash;
use crate::error::WebError;

/// Passwords that are hashed at a time.
const HASHED_MAX: usize = 2;
/// Passwords that wait or are hashed, at most.
const ASKED_MAX: usize = 32;

/// Hashes and compares passwords.
#[derive(Debug)]
pub(crate) struct PasswordWorker {
    hashed: Semaphore,
    asked: Semaphore,
    /// What the password of a user who does not exist is compared with, so that it takes as long.
    of_nobody: Arc<PasswordHash>,
}

impl PasswordWorker {
    pub(crate) fn new() -> Result<Self, WebError> {
        let of_nobody = Arc::new(PasswordHash::of_nobody()?);
        Ok(Self { hashed: Semaphore::new(HASHED_MAX), asked: Semaphore::new(ASKED_MAX), of_nobody })
    }

    /// Hashes a password.
    pub(crate) async fn hash(&self, password: String) -> Result<PasswordHash, Refusal> {
        self.work(move || PasswordHash::of(&password)).await?.map_err(Refusal::from)
    }

    /// Returns whether a hash is of a password; never for the hash of nobody.
    pub(crate) async fn is_of(&self, hash: Option<PasswordHash>, password: String) -> Result<bool, Refusal> {
        let of_nobody = Arc::clone(&self.of_nobody);
        self.work(move || match hash {
            Some(hash) => hash.is_of(&password),
            None => {
                let _ = of_nobody.is_of(&password);
                false
            }
        })
        .await
    }

    async fn work<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T, Refusal> {
        let busy = || Refusal::busy("too many sign-ins at once; nothing was changed");
        let _asked = self.asked.try_acquire().map_err(|_| busy())?;
        let _hashed = self.hashed.acquire().await.map_err(|_| busy())?;
        let worked = tokio::task::spawn_blocking(work).await;
        worked.map_err(|_| Refusal::internal("hashing the password was cut short"))
    }
}
