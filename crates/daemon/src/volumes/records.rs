//! Records of volumes: attributes of their spaces.

use dolmen_api::{ErrorBody, ErrorCode};
use dolmen_space::{Attribute, AttributeKey, Space};
use dolmen_volume::record::{DeduplicationRun, VolumeRecord};

use crate::answer::Answer;
use crate::fault;

/// Type of the attribute that is the record of a volume (`docs/format/volume.md`).
const VOLUME: u8 = 1;
/// Type of the attribute that is the last deduplication.
const RUN: u8 = 4;
/// Number of either.
const NUMBER: u64 = 0;

/// Record of a volume as it was found.
#[derive(Debug, Clone)]
pub(super) enum Found {
    /// A record of this version.
    Known(Box<VolumeRecord>),
    /// One that this build does not understand; why, in words.
    NotUnderstood(String),
}

/// Returns the attribute that a record is.
///
/// # Errors
/// Where the record is too long.
pub(super) fn attribute(record: &VolumeRecord, name: &str) -> Answer<Attribute> {
    let value = record.encode().map_err(|error| {
        ErrorBody::new(ErrorCode::BadRequest, format!("volume {name}: {error}; nothing was changed")).on(name)
    })?;
    Ok(Attribute { kind: VOLUME, number: NUMBER, value })
}

/// Reads the record of the volume on a space; none where there is no volume.
pub(super) async fn read(space: &Space) -> Answer<Option<Found>> {
    let attributes = space.attributes().list().await.map_err(|error| fault::space(&error))?;
    let found = attributes.into_iter().find(|one| (one.kind, one.number) == (VOLUME, NUMBER));
    Ok(found.map(|one| match VolumeRecord::decode(&one.value) {
        Ok(record) => Found::Known(Box::new(record)),
        Err(error) => Found::NotUnderstood(error.to_string()),
    }))
}

/// Refuses to overwrite a space that carries a volume, mounted or not; `name` is that of both.
pub(crate) async fn check_carries_none(space: &Space, name: &str) -> Answer<()> {
    if read(space).await?.is_none() {
        return Ok(());
    }
    let message = format!("space {name} carries a volume, which would be overwritten; nothing was changed");
    let hint = format!(
        "choose another space or profiles that only read; `dolmen volume show {name}` shows the volume"
    );
    Err(ErrorBody::new(ErrorCode::ForeignData, message).on(name).hint(hint))
}

/// Writes the record of the volume on a space; durable when this returns.
pub(super) async fn put(space: &Space, record: &VolumeRecord, name: &str) -> Answer<()> {
    let attribute = attribute(record, name)?;
    space
        .attributes()
        .change(vec![attribute], Vec::new())
        .await
        .map_err(|error| fault::space(&error).on(name))
}

/// Deletes the record of the volume on a space; durable when this returns.
pub(super) async fn delete(space: &Space, name: &str) -> Answer<()> {
    let key = AttributeKey { kind: VOLUME, number: NUMBER };
    space.attributes().change(Vec::new(), vec![key]).await.map_err(|error| fault::space(&error).on(name))
}

/// Reads the last deduplication of the volume on a space; none if there was none, or its record is not understood.
pub(super) async fn read_run(space: &Space) -> Answer<Option<DeduplicationRun>> {
    let attributes = space.attributes().list().await.map_err(|error| fault::space(&error))?;
    let found = attributes.into_iter().find(|one| (one.kind, one.number) == (RUN, NUMBER));
    Ok(found.and_then(|one| DeduplicationRun::decode(&one.value).ok()))
}

/// Writes the last deduplication of the volume on a space; durable when this returns.
pub(super) async fn put_run(space: &Space, run: &DeduplicationRun, name: &str) -> Answer<()> {
    let value = run.encode().map_err(|error| {
        ErrorBody::new(ErrorCode::Internal, format!("the deduplication of {name}: {error}")).on(name)
    })?;
    let attribute = Attribute { kind: RUN, number: NUMBER, value };
    space
        .attributes()
        .change(vec![attribute], Vec::new())
        .await
        .map_err(|error| fault::space(&error).on(name))
}
