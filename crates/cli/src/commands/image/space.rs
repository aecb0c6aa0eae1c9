//! A clone that is a space: a thin space is made, attached, written and detached.
//!
//! The space has another name until all of the image is on it. A command that is killed leaves that name.

use std::fs::OpenOptions;
use std::path::Path;

use dolmen_api::{
    AttachSpace, Change, CreateSpace, DeleteSpace, DetachSpace, ExitCode, Provisioning, RenameSpace,
    ResiliencyKind, Transport, verb,
};
use dolmen_files::images::{ImageError, Library};
use dolmen_units::{BLOCK_BYTES, Name};

use super::teller::Teller;
use crate::arguments::common::Intent;
use crate::arguments::image::ImageClone;
use crate::arguments::values::SpaceName;
use crate::commands::space::space_words;
use crate::error::{CliError, Failure};
use crate::session::change::Session;
use crate::session::client::call;

/// A space that was made for a clone and cannot be kept or removed.
#[derive(Debug, thiserror::Error)]
pub(super) enum SpaceCloneError {
    /// The daemon attached it without a device.
    #[error("space {space} has no device after it was attached; nothing is written")]
    NoDevice { space: SpaceName },
    /// The clone failed, and so did the removal of what was made.
    #[error("the image was not written to space {space}, which could not be removed: {why}")]
    Left { space: SpaceName, why: String, source: Box<CliError> },
}

impl Failure for SpaceCloneError {
    fn exit(&self) -> ExitCode {
        match self {
            Self::NoDevice { .. } => ExitCode::Io,
            Self::Left { source, .. } => source.exit(),
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::NoDevice { .. } => None,
            Self::Left { space, .. } => {
                Some(format!("dolmen space detach {space}; dolmen space delete {space}"))
            }
        }
    }
}

/// Makes a thin space and writes an image to it.
pub(super) fn clone_to_space(
    session: &mut Session<'_, '_>,
    library: &Library,
    arguments: &ImageClone,
    wanted: &SpaceName,
) -> Result<(), CliError> {
    let image = library.image(&arguments.image.name)?;
    let asked_bytes = arguments.size.map_or(image.size_bytes, |size| size.0);
    if asked_bytes < image.size_bytes {
        let (path, image_bytes) = (library.path_of(&image.name), image.size_bytes);
        return Err(ImageError::Shrinks { path, image_bytes, asked_bytes }.into());
    }
    let like =
        session.client.look(&call::<verb::ShowSpace>(space_words(&arguments.image.volume)))?.value.space;
    let of_kind = |kind, number| (like.resiliency == kind).then_some(number);
    let request = |name: &Name| CreateSpace {
        name: name.to_string(),
        size_bytes: asked_bytes.next_multiple_of(BLOCK_BYTES),
        resiliency: like.resiliency,
        copies: of_kind(ResiliencyKind::Mirror, like.copies),
        parity: of_kind(ResiliencyKind::Parity, like.parity),
        columns: None,
        interleave_bytes: None,
        row_bytes: None,
        provisioning: Provisioning::Thin,
        integrity: Some(like.integrity),
        sector_bytes: None,
        dry_run: false,
    };
    let create = call::<verb::CreateSpace>([wanted.pool.as_str()]);
    // A name that is taken is refused before anything is made.
    let plan = session.client.change(&create, &request(&wanted.space), Intent::DryRun)?;
    if arguments.dry.intent() == Intent::DryRun {
        session.print(plan, Intent::DryRun, |_| None);
        return Ok(());
    }
    let name: Name = temporary_name();
    let made = SpaceName { pool: wanted.pool.clone(), space: name };
    session.client.change(&create, &request(&made.space), Intent::Act)?;
    let finished = fill(session, library, arguments, &made)
        .and_then(|written_bytes| Ok((written_bytes, rename(session, &made, &wanted.space)?)));
    match finished {
        Ok((written_bytes, document)) => {
            let words = format!(
                "{} is on space {wanted}: {}, {} written",
                arguments.image,
                dolmen_units::Bytes(asked_bytes),
                dolmen_units::Bytes(written_bytes)
            );
            session.print(document, Intent::Act, |_| Some(words));
            Ok(())
        }
        Err(error) => Err(removed(session, &made, error)),
    }
}

/// Returns the name that a space has until all of its image is on it.
fn temporary_name() -> Name {
    let text = format!("unfinished-image-{}", std::process::id());
    text.parse().unwrap_or_else(|_| unreachable!("a word and a number are a name"))
}

fn fill(
    session: &mut Session<'_, '_>,
    library: &Library,
    arguments: &ImageClone,
    made: &SpaceName,
) -> Result<u64, CliError> {
    let request = AttachSpace { transport: Transport::Auto, dry_run: false };
    let attach = call::<verb::AttachSpace>(space_words(made));
    let attached: Change = session.client.change(&attach, &request, Intent::Act)?.value;
    let no_device = || SpaceCloneError::NoDevice { space: made.clone() };
    let device = attached.attachment.ok_or_else(no_device)?.device;
    let path = Path::new(&device);
    let opened = OpenOptions::new().write(true).open(path);
    let file = opened.map_err(|source| CliError::Write { path: path.to_owned(), source })?;
    let mut teller = Teller::new(arguments.image.to_string());
    let written = library
        .write_to(&arguments.image.name, &file, path, &mut |progress| teller.print(progress, session.out));
    teller.end_line(session.out);
    let written = written?;
    drop(file);
    let detach = call::<verb::DetachSpace>(space_words(made));
    session.client.change(&detach, &DetachSpace::default(), Intent::Act)?;
    Ok(written)
}

fn rename(
    session: &Session<'_, '_>,
    made: &SpaceName,
    name: &Name,
) -> Result<crate::session::client::Document<Change>, CliError> {
    let request = RenameSpace { name: name.to_string(), dry_run: false };
    session.client.change(&call::<verb::RenameSpace>(space_words(made)), &request, Intent::Act)
}

/// Removes the space of a clone that failed. Returns what failed.
fn removed(session: &Session<'_, '_>, made: &SpaceName, error: CliError) -> CliError {
    // One that was not attached, or is detached by now, is refused here.
    let detach = call::<verb::DetachSpace>(space_words(made));
    let _ = session.client.change(&detach, &DetachSpace::default(), Intent::Act);
    let request = DeleteSpace { purge: true, destroy: Some(made.space.to_string()), dry_run: false };
    match session.client.change(&call::<verb::DeleteSpace>(space_words(made)), &request, Intent::Act) {
        Ok(_) => error,
        Err(why) => {
            let (space, why) = (made.clone(), why.in_one_line());
            SpaceCloneError::Left { space, why, source: Box::new(error) }.into()
        }
    }
}
