//! Content without any copy is declared lost.

use dolmen_pool::Disk;
use dolmen_space::{DeclaredLost, Progress, SpaceRange};
use dolmen_units::{Bytes, Name};

use crate::answer::Answer;
use crate::fault;
use crate::open_pool::OpenPool;
use crate::state::is_here;

/// Ranges that are told in the log of the daemon when they are lost.
pub(crate) const LOGGED_MAX: usize = 64;

/// Declares lost what only disks that are declared lost had, and logs it; returns the text that follows what was done.
pub(crate) async fn abandon(owner: &OpenPool, disk: &Disk, progress: &Progress) -> Answer<String> {
    if is_here(disk) || !owner.spaces.pool().members().is_declared_lost(disk) {
        return Ok(String::new());
    }
    let excluded =
        owner.spaces.members().declare_rows_lost(progress).await.map_err(|error| fault::space(&error))?;
    for range in excluded.lost.iter().take(LOGGED_MAX) {
        tracing::error!(pool = %owner.name(), disk = disk.name(), %range, "content without any copy was declared lost");
    }
    Ok(in_words(&excluded))
}

pub(crate) fn in_words(excluded: &DeclaredLost) -> String {
    let mut of_spaces: Vec<(&Name, Bytes)> = Vec::new();
    for SpaceRange { space, length, .. } in &excluded.lost {
        match of_spaces.last_mut().filter(|(last, _)| *last == space) {
            Some((_, sum)) => *sum = *sum + *length,
            None => of_spaces.push((space, *length)),
        }
    }
    let reported: Vec<String> =
        of_spaces.iter().map(|(space, bytes)| format!("{bytes} of {space}")).collect();
    match reported.is_empty() {
        true => String::new(),
        false => {
            format!("; declared lost, and not readable before it is written again: {}", reported.join(", "))
        }
    }
}
