//! `dolmen copy`: files and trees whose copies share their bytes, without the daemon.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use dolmen_api::{ExitCode, SCHEMA};
use dolmen_files::copy::{Copied, CopyError, Fallback, Planned, copy, plan};
use dolmen_units::Bytes;
use serde::Serialize;

use crate::arguments::common::{Format, Intent};
use crate::arguments::copy::CopyArguments;
use crate::error::{CliError, Failure};
use crate::terminal::out::Out;
use crate::views::words::count;

/// Copies for programs.
#[derive(Debug, Serialize)]
struct CopyDocument {
    schema: u32,
    is_copied: bool,
    copies: Vec<CopyEntry>,
}

/// One source and its copy. Of a dry run, bytes on the device of the target stand as shared.
#[derive(Debug, Serialize)]
struct CopyEntry {
    source: PathBuf,
    target: PathBuf,
    folders: u64,
    files: u64,
    hard_links: u64,
    others: u64,
    shared_bytes: u64,
    copied_files: u64,
    copied_bytes: u64,
    unkept: Vec<String>,
    unkept_count: u64,
}

impl CopyEntry {
    fn planned(source: &Path, target: &Path, planned: Planned) -> Self {
        Self {
            source: source.to_owned(),
            target: target.to_owned(),
            folders: planned.folders,
            files: planned.files,
            hard_links: 0,
            others: planned.others,
            shared_bytes: planned.bytes - planned.other_device_bytes,
            copied_files: 0,
            copied_bytes: planned.other_device_bytes,
            unkept: Vec::new(),
            unkept_count: 0,
        }
    }

    fn made(source: &Path, target: &Path, copied: Copied) -> Self {
        Self {
            source: source.to_owned(),
            target: target.to_owned(),
            folders: copied.folders,
            files: copied.files,
            hard_links: copied.hard_links,
            others: copied.symbolic_links + copied.special_files,
            shared_bytes: copied.shared_bytes,
            copied_files: copied.copied_files,
            copied_bytes: copied.copied_bytes,
            unkept: copied.unkept,
            unkept_count: copied.unkept_count,
        }
    }

    fn show(&self, intent: Intent, out: &mut Out<'_>) {
        let (source, target) = (self.source.display(), self.target.display());
        let files = count(self.files, "file", "files");
        let folders = match self.folders {
            0 => String::new(),
            folders => format!(" in {}", count(folders, "folder", "folders")),
        };
        let (shared, bytes) = (Bytes(self.shared_bytes), Bytes(self.copied_bytes));
        match intent {
            Intent::Act => out.line(format_args!(
                "{source} is copied to {target}: {files}{folders}; {shared} shared, {bytes} of {} copied",
                count(self.copied_files, "file", "files")
            )),
            Intent::DryRun => out.line(format_args!(
                "{source} would be copied to {target}: {files}{folders}; {shared} on its own device, {bytes} on another one"
            )),
        }
        for property in &self.unkept {
            out.print(format_args!("not kept: {property}"));
        }
        let named = u64::try_from(self.unkept.len()).unwrap_or(u64::MAX);
        if self.unkept_count > named {
            out.print(format_args!("not kept: {} more", self.unkept_count - named));
        }
    }
}

/// Carries the command out. Copies that were made before one fails stay, and the text names them.
pub(crate) fn run(
    arguments: &CopyArguments,
    format: Format,
    out: &mut Out<'_>,
) -> Result<ExitCode, CliError> {
    let intent = arguments.intent();
    let fallback = if arguments.or_copy { Fallback::CopyBytes } else { Fallback::Refuse };
    let mut document = CopyDocument { schema: SCHEMA, is_copied: intent == Intent::Act, copies: Vec::new() };
    for (source, target) in pairs(&arguments.paths)? {
        let entry = match intent {
            Intent::Act => CopyEntry::made(&source, &target, copy(&source, &target, fallback)?),
            Intent::DryRun => CopyEntry::planned(&source, &target, plan(&source, &target)?),
        };
        if format == Format::Text {
            entry.show(intent, out);
        }
        document.copies.push(entry);
    }
    if format == Format::Json {
        let text = serde_json::to_string(&document);
        let asked = || "the copies".to_owned();
        out.line(text.map_err(|source| CliError::Request { asked: asked(), source })?);
    }
    Ok(ExitCode::Ok)
}

/// Sources with the names of their copies.
fn pairs(paths: &[PathBuf]) -> Result<Vec<(PathBuf, PathBuf)>, SourcesError> {
    let Some((target, sources)) = paths.split_last() else { return Ok(Vec::new()) };
    if !target.is_dir() {
        return match sources {
            [source] => Ok(vec![(source.clone(), target.clone())]),
            _ => Err(SourcesError::NoFolder { count: sources.len(), target: target.clone() }),
        };
    }
    let into = |source: &PathBuf| match source.file_name() {
        Some(name) => Ok((source.clone(), target.join(name))),
        None => Err(SourcesError::NoName { source_path: source.clone() }),
    };
    sources.iter().map(into).collect()
}

/// Sources that have no target.
#[derive(Debug, thiserror::Error)]
enum SourcesError {
    #[error("{count} sources cannot be copied to {}, which is no folder; nothing was changed", target.display())]
    NoFolder { count: usize, target: PathBuf },
    #[error("{} has no name of its own; name it from its folder on", source_path.display())]
    NoName { source_path: PathBuf },
}

impl Failure for SourcesError {
    fn exit(&self) -> ExitCode {
        ExitCode::Usage
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::NoFolder { .. } => Some("make the folder first, or name one source".to_owned()),
            Self::NoName { .. } => None,
        }
    }
}

impl Failure for CopyError {
    fn exit(&self) -> ExitCode {
        match self {
            Self::Exists { .. } | Self::NotShared { .. } => ExitCode::Refused,
            Self::Inside { .. } | Self::Root { .. } => ExitCode::Usage,
            Self::Exchanged { .. } => ExitCode::Busy,
            Self::Call { source, .. } if source.kind() == ErrorKind::PermissionDenied => ExitCode::Permission,
            Self::Call { .. } => ExitCode::Io,
        }
    }

    fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Exists { .. } => "choose another name, or move what is there away",
            Self::NotShared { .. } => {
                "--or-copy copies the bytes; extents are shared within one XFS or btrfs, and ext4 shares none"
            }
            Self::Exchanged { .. } => "copy it while nobody renames what is in it",
            Self::Inside { .. } | Self::Root { .. } | Self::Call { .. } => return None,
        };
        Some(hint.to_owned())
    }
}
