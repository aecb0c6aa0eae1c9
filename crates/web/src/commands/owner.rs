//! A process that root starts becomes the owner of the state folder before it touches a file there: the server could otherwise plant
//! links that root follows, and could not read what root has written.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::process::{Gid, Uid, geteuid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};

use crate::error::WebError;

/// Becomes the owner of a folder. The process has one thread yet.
pub(super) fn become_owner_of(folder: &Path) -> Result<(), WebError> {
    // A folder that is not there is made by whoever asks.
    let Ok(found) = std::fs::metadata(folder) else { return Ok(()) };
    if !geteuid().is_root() || found.uid() == 0 {
        return Ok(());
    }
    let (uid, gid) = (Uid::from_raw(found.uid()), Gid::from_raw(found.gid()));
    let became = set_thread_groups(&[])
        .and_then(|()| set_thread_res_gid(gid, gid, gid))
        .and_then(|()| set_thread_res_uid(uid, uid, uid));
    became.map_err(|error| WebError::Owner {
        path: folder.to_path_buf(),
        uid: found.uid(),
        source: error.into(),
    })
}
