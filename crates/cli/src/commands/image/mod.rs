//! `dolmen image`: the library of images of a mounted volume, with the rights of the user.
//!
//! The daemon is asked where the volume is mounted. All else is done here, so that the library obeys the rights of its folders.

mod convert;
mod space;
mod teller;

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use dolmen_api::{ExitCode, SCHEMA, verb};
use dolmen_files::copy::Fallback;
use dolmen_files::images::{Content, Filled, Image, ImageError, ImageName, Library, Source};
use dolmen_units::Bytes;
use serde::Serialize;

use self::convert::{Foreign, require_program};
use self::teller::Teller;
use crate::arguments::common::{Format, Intent};
use crate::arguments::image::{ImageAdd, ImageClone, ImageCommand, ImageDelete, ImageList, intent};
use crate::arguments::values::SpaceName;
use crate::commands::space::space_words;
use crate::confirm::{Consent, Danger, ask, decide};
use crate::error::{CliError, Failure};
use crate::session::change::Session;
use crate::session::client::call;
use crate::terminal::out::Out;
use crate::terminal::table::{Align, Table};
use crate::views::jobs::ago;
use crate::views::words::{count, seconds_now};

/// Endings of files that their images are not called by.
const ENDINGS: [&str; 8] = ["raw", "img", "qcow2", "vmdk", "vhd", "vhdx", "vpc", "vdi"];

/// An image, for programs.
#[derive(Debug, Serialize)]
struct ImageEntry {
    name: String,
    path: PathBuf,
    size_bytes: u64,
    /// Room that it takes on the volume; clones share it.
    room_bytes: u64,
    /// When it was added, in seconds since 1970; absent in a dry run.
    added_s: Option<u64>,
}

impl ImageEntry {
    fn of(library: &Library, image: &Image) -> Self {
        Self {
            name: image.name.to_string(),
            path: library.path_of(&image.name),
            size_bytes: image.size_bytes,
            room_bytes: image.room_bytes,
            added_s: Some(image.added_s),
        }
    }
}

/// Images of a volume, for programs.
#[derive(Debug, Serialize)]
struct ImagesDocument {
    schema: u32,
    volume: String,
    images: Vec<ImageEntry>,
}

/// A changed library, for programs.
#[derive(Debug, Serialize)]
struct ImageDocument {
    schema: u32,
    volume: String,
    is_changed: bool,
    image: ImageEntry,
    /// Whether an image that was added shares the extents of its source.
    is_shared: bool,
}

/// Clones of an image, for programs.
#[derive(Debug, Serialize)]
struct ClonesDocument {
    schema: u32,
    volume: String,
    is_changed: bool,
    image: String,
    size_bytes: u64,
    /// Paths of the clones.
    clones: Vec<PathBuf>,
    /// Bytes that were copied for all of them.
    copied_bytes: u64,
}

/// `dolmen image`
pub(crate) fn image(session: &mut Session<'_, '_>, command: ImageCommand) -> Result<(), CliError> {
    let volume = match &command {
        ImageCommand::Add(arguments) => &arguments.volume,
        ImageCommand::List(arguments) => &arguments.volume,
        ImageCommand::Clone(arguments) => &arguments.image.volume,
        ImageCommand::Delete(arguments) => &arguments.image.volume,
    };
    let library = library(session, volume)?;
    carry_out(session, &library, command)
}

/// Carries a command out on a library.
pub(crate) fn carry_out(
    session: &mut Session<'_, '_>,
    library: &Library,
    command: ImageCommand,
) -> Result<(), CliError> {
    match command {
        ImageCommand::Add(arguments) => add(session, library, &arguments),
        ImageCommand::List(arguments) => list(session, library, &arguments),
        ImageCommand::Clone(arguments) => clone(session, library, &arguments),
        ImageCommand::Delete(arguments) => delete(session, library, &arguments),
    }
}

/// Opens the library of a volume, where the daemon has it mounted.
fn library(session: &Session<'_, '_>, volume: &SpaceName) -> Result<Library, CliError> {
    let document = session.client.look(&call::<verb::ShowVolume>(space_words(volume)))?;
    let Some(mounted_at) = document.value.volume.mounted_at else {
        return Err(CommandError::Unmounted { volume: volume.clone() }.into());
    };
    Ok(Library::of_volume(Path::new(&mounted_at))?)
}

/// Shows a document to programs, and something else to people.
fn show(
    session: &mut Session<'_, '_>,
    document: &impl Serialize,
    text: impl FnOnce(&mut Out<'_>),
) -> Result<(), CliError> {
    match session.format {
        Format::Text => text(session.out),
        Format::Json => {
            let written = serde_json::to_string(document);
            let asked = || "the images".to_owned();
            session.out.line(written.map_err(|source| CliError::Request { asked: asked(), source })?);
        }
    }
    Ok(())
}

fn list(session: &mut Session<'_, '_>, library: &Library, arguments: &ImageList) -> Result<(), CliError> {
    let images = library.images()?;
    let document = ImagesDocument {
        schema: SCHEMA,
        volume: arguments.volume.to_string(),
        images: images.iter().map(|image| ImageEntry::of(library, image)).collect(),
    };
    show(session, &document, |out| {
        if images.is_empty() {
            return out.line(format_args!("{} has no images", arguments.volume));
        }
        let mut table = Table::new(&[
            ("IMAGE", Align::Left),
            ("SIZE", Align::Right),
            ("TAKES", Align::Right),
            ("ADDED", Align::Left),
        ]);
        for image in &images {
            table.row(vec![
                format!("{}/{}", arguments.volume, image.name).into(),
                Bytes(image.size_bytes).to_string().into(),
                Bytes(image.room_bytes).to_string().into(),
                ago(seconds_now(), image.added_s).into(),
            ]);
        }
        out.table(0, &table);
    })
}

/// Returns the name of an image: as it was given, or as that of the file.
fn name_of(arguments: &ImageAdd) -> Result<ImageName, CommandError> {
    if let Some(name) = &arguments.name {
        return Ok(name.clone());
    }
    let path = &arguments.file;
    let ending = path.extension().and_then(|ending| ending.to_str()).map(str::to_ascii_lowercase);
    let is_known = ending.is_some_and(|ending| ENDINGS.contains(&ending.as_str()));
    let name = if is_known { path.file_stem() } else { path.file_name() };
    name.and_then(|name| name.to_str()?.parse().ok())
        .ok_or_else(|| CommandError::NoName { path: path.clone() })
}

fn add(session: &mut Session<'_, '_>, library: &Library, arguments: &ImageAdd) -> Result<(), CliError> {
    let name = name_of(arguments)?;
    let source = Source::open(&arguments.file)?;
    let content = if arguments.raw { Content::Raw } else { source.content()? };
    library.require_free(&name)?;
    if intent(arguments.dry_run) == Intent::DryRun {
        return show_plan(session, library, arguments, (&name, &source, &content));
    }
    let full = format!("{}/{name}", arguments.volume);
    let mut teller = Teller::new(full.clone());
    let private = match content {
        Content::Image { .. } => {
            let copy = library.begin(&name)?;
            let filled = copy.fill(&source, &mut |progress| teller.print(progress, session.out));
            teller.end_line(session.out);
            filled?;
            Some(copy.into_source(source.path())?)
        }
        // Others were refused when the content was recognised.
        Content::Raw | Content::NotWhole { .. } | Content::Encrypted { .. } | Content::Other { .. } => None,
    };
    let foreign = match &private {
        // It may be another one than a moment before.
        Some(copy) => match copy.content()? {
            Content::Image { format, disk_bytes } => Some(Foreign::look(copy, format, disk_bytes)?),
            _ => None,
        },
        None => None,
    };
    let read = private.as_ref().unwrap_or(&source);
    let size_bytes = foreign.as_ref().map_or(read.size_bytes(), |foreign| foreign.disk_bytes);
    let new = library.begin(&name)?;
    let filled = match &foreign {
        Some(foreign) => foreign
            .convert(&new, &mut |written| teller.print_written(written, session.out))
            .map(Filled::Written),
        None => new.fill(read, &mut |progress| teller.print(progress, session.out)).map_err(Into::into),
    };
    teller.end_line(session.out);
    let filled = filled?;
    // A file that is shared may have grown since; the image has what the kernel shared at one time.
    let expected_bytes = match filled {
        Filled::Shared => new.file().metadata().map_or(size_bytes, |found| found.len()),
        Filled::Written(_) => size_bytes,
    };
    let image = new.finish(expected_bytes)?;
    let document = ImageDocument {
        schema: SCHEMA,
        volume: arguments.volume.to_string(),
        is_changed: true,
        image: ImageEntry::of(library, &image),
        is_shared: filled == Filled::Shared,
    };
    show(session, &document, |out| {
        let how = match filled {
            Filled::Shared => "shared".to_owned(),
            Filled::Written(bytes) => format!("{} written", Bytes(bytes)),
        };
        let file = arguments.file.display();
        out.line(format_args!("{file} is image {full}: {}, {how}", Bytes(image.size_bytes)));
    })
}

/// Shows what an addition would do. The program that converts reads the source of its owner only where its format can name no other
/// file.
fn show_plan(
    session: &mut Session<'_, '_>,
    library: &Library,
    arguments: &ImageAdd,
    (name, source, content): (&ImageName, &Source, &Content),
) -> Result<(), CliError> {
    let (size_bytes, how) = match *content {
        Content::Image { format, disk_bytes: Some(bytes) } => {
            require_program(source, format)?;
            (bytes, "converted")
        }
        Content::Image { format, disk_bytes: None } => {
            (Foreign::look(source, format, None)?.disk_bytes, "converted")
        }
        _ => (source.size_bytes(), "shared or copied"),
    };
    let (room_bytes, free_bytes) = (source.data_bytes()?, library.free_bytes()?);
    let (path, text) = (library.path_of(name), name.to_string());
    let document = ImageDocument {
        schema: SCHEMA,
        volume: arguments.volume.to_string(),
        is_changed: false,
        image: ImageEntry { name: text, path, size_bytes, room_bytes, added_s: None },
        is_shared: false,
    };
    show(session, &document, |out| {
        out.line(format_args!(
            "{} would be {how} to image {}/{name}: {} with {} of data; {} are free",
            arguments.file.display(),
            arguments.volume,
            Bytes(size_bytes),
            Bytes(room_bytes),
            Bytes(free_bytes)
        ));
    })
}

fn clone(session: &mut Session<'_, '_>, library: &Library, arguments: &ImageClone) -> Result<(), CliError> {
    if let Some(wanted) = &arguments.space {
        return space::clone_to_space(session, library, arguments, wanted);
    }
    let image = library.image(&arguments.image.name)?;
    let targets: Result<Vec<PathBuf>, _> =
        arguments.targets.iter().map(|path| library.target(path)).collect();
    let targets = targets?;
    let (full, size) = (arguments.image.to_string(), arguments.size.map(|size| size.0));
    let document = |clones: Vec<PathBuf>, is_changed, copied_bytes| ClonesDocument {
        schema: SCHEMA,
        volume: arguments.image.volume.to_string(),
        is_changed,
        image: image.name.to_string(),
        size_bytes: size.unwrap_or(image.size_bytes),
        clones,
        copied_bytes,
    };
    let size_words = Bytes(size.unwrap_or(image.size_bytes));
    if arguments.dry.intent() == Intent::DryRun {
        library.require_clones(&image, &targets, size)?;
        let paths: Vec<PathBuf> = targets.iter().map(|below| library.path().join(below)).collect();
        return show(session, &document(paths.clone(), false, 0), |out| {
            for path in &paths {
                out.line(format_args!("{} would be a clone of {full}: {size_words}", path.display()));
            }
        });
    }
    let fallback = if arguments.or_copy { Fallback::CopyBytes } else { Fallback::Refuse };
    let mut teller = Teller::new(full.clone());
    let made = library.clone_image(&image.name, &targets, size, fallback, &mut |progress| {
        teller.print(progress, session.out);
    });
    teller.end_line(session.out);
    let made = made?;
    show(session, &document(made.paths.clone(), true, made.copied_bytes), |out| {
        for path in &made.paths {
            out.line(format_args!("{} is a clone of {full}: {size_words}", path.display()));
        }
        if made.copied_bytes > 0 {
            let copied = Bytes(made.copied_bytes);
            out.print(format_args!("{copied} were copied: this file system shares no extents"));
        }
    })?;
    match made.stopped_by {
        None => Ok(()),
        Some(source) => {
            let (made, asked) = (made.paths.len(), targets.len());
            Err(CommandError::Stopped { made, asked, source: Box::new(source) }.into())
        }
    }
}

fn delete(session: &mut Session<'_, '_>, library: &Library, arguments: &ImageDelete) -> Result<(), CliError> {
    let image = library.image(&arguments.image.name)?;
    let (full, name) = (arguments.image.to_string(), image.name.to_string());
    let object = format!("image {full}");
    let danger = Danger { object: &object, name: &full, alias: Some(&name) };
    let given = arguments.consent.destroy.as_deref();
    let entry = ImageEntry::of(library, &image);
    let document = |is_changed| ImageDocument {
        schema: SCHEMA,
        volume: arguments.image.volume.to_string(),
        is_changed,
        image: entry,
        is_shared: false,
    };
    if intent(arguments.dry_run) == Intent::DryRun {
        given.map(|given| decide(session.out, &danger, Some(given))).transpose()?;
        return show(session, &document(false), |out| {
            let room = Bytes(image.room_bytes);
            out.line(format_args!(
                "{object} would be deleted for good; {room} come back but for what clones share"
            ));
        });
    }
    if decide(session.out, &danger, given)? == Consent::ToBeAsked {
        ask(session.out, &danger)?;
    }
    library.delete(&image.name)?;
    show(session, &document(true), |out| out.line(format_args!("{object} is deleted; its clones stay")))
}

/// A command that cannot be carried out as it is written.
#[derive(Debug, thiserror::Error)]
enum CommandError {
    #[error("volume {volume} is not mounted, and a library is used on a mounted volume; nothing was changed")]
    Unmounted { volume: SpaceName },
    #[error("the name of {} is none for an image; nothing was changed", path.display())]
    NoName { path: PathBuf },
    #[error("{} of {asked} were made", count(u64::try_from(*made).unwrap_or(u64::MAX), "clone", "clones"))]
    Stopped { made: usize, asked: usize, source: Box<ImageError> },
}

impl Failure for CommandError {
    fn exit(&self) -> ExitCode {
        match self {
            Self::Unmounted { .. } => ExitCode::Busy,
            Self::NoName { .. } => ExitCode::Usage,
            Self::Stopped { source, .. } => source.exit(),
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::Unmounted { volume } => Some(format!("dolmen volume mount {volume}")),
            Self::NoName { .. } => Some("--name gives it another one".to_owned()),
            Self::Stopped { source, .. } => source.hint(),
        }
    }
}

impl Failure for ImageError {
    fn exit(&self) -> ExitCode {
        match self {
            Self::Exists { .. }
            | Self::NotShared { .. }
            | Self::NotWhole { .. }
            | Self::Encrypted { .. }
            | Self::Unsuitable { .. } => ExitCode::Refused,
            Self::Missing { .. }
            | Self::NamedTwice { .. }
            | Self::Kind { .. }
            | Self::Outside { .. }
            | Self::Empty { .. }
            | Self::Shrinks { .. } => ExitCode::Usage,
            Self::NotMounted { .. } | Self::Changed { .. } => ExitCode::Busy,
            Self::Call { source, .. } if source.kind() == ErrorKind::PermissionDenied => ExitCode::Permission,
            Self::Full { .. } | Self::Size { .. } | Self::Call { .. } => ExitCode::Io,
        }
    }

    fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::NotMounted { .. } => "`dolmen volume show` tells how the mount is",
            Self::Exists { .. } => "choose another name",
            Self::Outside { .. } => {
                "a name without a slash is one in the folder machines; a path leads to a folder of the volume"
            }
            Self::Full { .. } => "`dolmen volume grow` makes room",
            Self::Changed { .. } => "stop the machine that writes it, or add a snapshot of it",
            Self::NotShared { .. } => {
                "--or-copy copies the bytes; volumes made with --for vms share them, and ext4 shares none"
            }
            Self::NotWhole { .. } => {
                "make one file of it: qemu-img convert -O qcow2 FILE NEW; --raw takes its bytes as they are"
            }
            Self::Encrypted { .. } => "decrypt it with the program that made it",
            Self::Unsuitable { .. } => "unpack or convert it first; --raw takes its bytes as they are",
            Self::Kind { .. }
            | Self::Missing { .. }
            | Self::NamedTwice { .. }
            | Self::Empty { .. }
            | Self::Size { .. }
            | Self::Shrinks { .. }
            | Self::Call { .. } => return None,
        };
        Some(hint.to_owned())
    }
}
