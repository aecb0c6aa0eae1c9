//! A namespace of mounts that somebody makes has whatever is mounted at that moment, and keeps it as long as it lives. A file
//! system of another test is in use then though that test has unmounted it, and what comes of its folder waits for a daemon that
//! has ended. So tests that mount and tests that make such namespaces keep out of each other's way.

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

static MOUNTS: RwLock<()> = RwLock::new(());

/// For a test that attaches or mounts something: until its end, no other test makes a namespace. The first thing in it, so that it
/// is the last to go.
pub(crate) fn mounting() -> RwLockReadGuard<'static, ()> {
    MOUNTS.read().unwrap_or_else(PoisonError::into_inner)
}

/// For a test that makes a namespace of mounts: until its end, no other test has anything mounted.
pub(crate) fn taking_mounts_along() -> RwLockWriteGuard<'static, ()> {
    if let Ok(group) = std::env::var("NEXTEST_TEST_GROUP") {
        assert_eq!(group, "namespaces", "this test needs its line in .config/nextest.toml");
    }
    MOUNTS.write().unwrap_or_else(PoisonError::into_inner)
}
