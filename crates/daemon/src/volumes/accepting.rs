//! What another host set on the volumes and shares of a pool, listed, and accepted by its import.

use std::rc::Rc;

use dolmen_api::ImportMode;
use dolmen_space::Space;
use dolmen_volume::record::VolumeRecord;

use crate::answer::Answer;
use crate::open_pool::OpenPool;
use crate::volumes::claiming::claim_place;
use crate::volumes::held::{held_text, is_held};
use crate::volumes::records::{self, Found};
use crate::volumes::service::Volumes;

async fn held_on(volumes: &Volumes, space: &Space) -> Answer<Option<VolumeRecord>> {
    Ok(match records::read(space).await? {
        Some(Found::Known(record)) => Some(*record).filter(|record| is_held(volumes, record)),
        Some(Found::NotUnderstood(_)) | None => None,
    })
}

/// Accepts what another host chose for the volumes of a pool that is imported, and gave on its shares, before the volumes are mounted.
/// Returns which volumes stay held because another one has their mount point, in words.
pub(crate) async fn accept(volumes: &Volumes, pool: &Rc<OpenPool>) -> Answer<Vec<String>> {
    if pool.mode == ImportMode::Read {
        return Ok(Vec::new());
    }
    let mut refused = Vec::new();
    for space in pool.spaces.list() {
        let Some(mut record) = held_on(volumes, &space).await? else { continue };
        let name = format!("{}/{}", pool.name(), space.name());
        match claim_place(volumes, &record.mount_point, &name).await {
            Ok(_claim) => {
                record.accept(volumes.shares.host);
                records::put(&space, &record, &name).await?;
            }
            Err(error) => refused.push(error.message),
        }
    }
    volumes.shares.accept_all(pool).await?;
    Ok(refused)
}

/// Returns which volumes and shares of a pool are held, in words.
pub(crate) async fn held(volumes: &Volumes, pool: &Rc<OpenPool>) -> Vec<String> {
    let mut held = Vec::new();
    for space in pool.spaces.list() {
        if let Ok(Some(record)) = held_on(volumes, &space).await {
            held.push(held_text(&format!("{}/{}", pool.name(), space.name()), &record));
        }
    }
    if pool.mode != ImportMode::Read {
        held.extend(volumes.shares.held_in(pool).await.unwrap_or_default());
    }
    held
}
