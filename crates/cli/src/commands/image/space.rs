//! A clone that is a space: a thin space is made, attached, written and detached.
//!
//! The space has another name until all of the image is on it. A command that is killed leaves that name.
//!
//! The kernel gives the name of a device to another one once nobody has the first one open. So the device is opened first, for this
//! process alone, and then the daemon is asked whether the space is still attached as it: an open device keeps its name.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::Path;

use dolmen_api::{
    AttachSpace, Attachments, Change, CreateSpace, DeleteSpace, DetachSpace, ExitCode, Provisioning,
    RenameSpace, ResiliencyKind, Transport, verb,
};
use dolmen_files::images::{ImageError, Library};
use dolmen_mutation::mutation;
use dolmen_units::{BLOCK_BYTES, Name};
use rustix::fs::OFlags;

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
    /// What the daemon named is no device, cannot be had alone, or is another one by now.
    #[error("space {space} was attached as {device}, which cannot be written: {finding}; nothing is written")]
    NotTheDevice { space: SpaceName, device: String, finding: String },
    /// The clone failed, and so did the removal of what was made.
    #[error("the image was not written to space {space}, which could not be removed: {why}")]
    Left { space: SpaceName, why: String, source: Box<CliError> },
}

impl Failure for SpaceCloneError {
    fn exit(&self) -> ExitCode {
        match self {
            Self::NoDevice { .. } | Self::NotTheDevice { .. } => ExitCode::Io,
            Self::Left { source, .. } => source.exit(),
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::NoDevice { .. } => None,
            Self::NotTheDevice { .. } => Some("end what uses the device, and clone again".to_owned()),
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
    let other = |finding: String| SpaceCloneError::NotTheDevice {
        space: made.clone(),
        device: device.clone(),
        finding,
    };
    let file = open_device(path).map_err(|error| other(error.to_string()))?;
    let attachments = session.client.look(&call::<verb::ListAttachments>([]))?.value;
    if !is_attached_as(&attachments, made, &device) {
        return Err(other("the space is detached, or attached as another device, by now".to_owned()).into());
    }
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

/// Opens a block device for this process alone. The kernel refuses that while it is mounted, or another program has it so.
fn open_device(path: &Path) -> io::Result<File> {
    let exclusive = i32::try_from(OFlags::EXCL.bits()).unwrap_or(0);
    let flags = if mutation!(ImageToAnyDevice) { 0 } else { exclusive };
    let file = OpenOptions::new().write(true).custom_flags(flags).open(path)?;
    if file.metadata()?.file_type().is_block_device() || mutation!(ImageToAnyDevice) {
        return Ok(file);
    }
    Err(io::Error::other("it is no block device"))
}

/// Returns whether a space is attached as a device.
fn is_attached_as(attachments: &Attachments, space: &SpaceName, device: &str) -> bool {
    let is_it = |one: &dolmen_api::Attachment| {
        (one.pool.as_str(), one.space.as_str()) == (space.pool.as_str(), space.space.as_str())
    };
    attachments.attachments.iter().any(|one| is_it(one) && one.device == device)
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

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// Scenario: the path leads to a file; to a device that another program has for itself; to one that is free.
    #[test]
    fn an_image_is_written_to_a_device_that_nobody_else_has() {
        let folder = tempfile::tempdir().unwrap();
        let image = folder.path().join("image");
        File::create(&image).unwrap().set_len(1 << 20).unwrap();
        open_device(&image).expect_err("a plain file was opened for an image");
        let made = Command::new("losetup").args(["-f", "--show"]).arg(&image).output();
        let Some(made) = made.ok().filter(|made| made.status.success()) else {
            println!("skipped: that takes root and loop devices");
            return;
        };
        let device = String::from_utf8(made.stdout).unwrap().trim().to_owned();
        let other = open_device(Path::new(&device)).unwrap();
        let busy = open_device(Path::new(&device)).map(drop).map_err(|error| error.kind());
        drop(other);
        let free = open_device(Path::new(&device)).map(drop);
        Command::new("losetup").args(["-d", &device]).status().unwrap();
        assert_eq!(
            busy,
            Err(io::ErrorKind::ResourceBusy),
            "a device that another program has was opened for an image"
        );
        free.unwrap();
    }

    /// Scenario: the space is attached as the device; as another one; the device is that of another space; nothing is attached.
    #[test]
    fn a_device_is_that_of_the_space_that_is_attached_as_it() {
        let attached = |space: &str, device: &str| {
            let one = serde_json::json!({
                "pool": "tank", "space": space, "path": "/dev/dolmen/tank/x", "device": device, "used_by": [],
                "survives_daemon": true,
            });
            serde_json::from_value(serde_json::json!({"schema": 1, "attachments": [one]})).unwrap()
        };
        let made: SpaceName = "tank/a".parse().unwrap();
        assert!(is_attached_as(&attached("a", "/dev/loop1"), &made, "/dev/loop1"));
        assert!(!is_attached_as(&attached("a", "/dev/loop2"), &made, "/dev/loop1"));
        assert!(!is_attached_as(&attached("b", "/dev/loop1"), &made, "/dev/loop1"));
        assert!(!is_attached_as(&Attachments { schema: 1, attachments: Vec::new() }, &made, "/dev/loop1"));
    }
}
