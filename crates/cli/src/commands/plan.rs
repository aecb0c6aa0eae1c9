//! `dolmen plan`: what a list of disks will give. Asks no daemon and touches no disk.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use dolmen_api::ExitCode;
use dolmen_block_linux::unused_disks;
use dolmen_disk::DISK_BYTES_MIN;
use dolmen_plan::{Disk, DiskList, Disks, Layout, ListError, Plan, PlanRequest, page};
use dolmen_space::SPACE_BYTES_MAX;
use dolmen_units::Bytes;

use crate::arguments::common::Format;
use crate::arguments::plan::PlanArguments;
use crate::commands::reports::{Rehearsal, Reports};
use crate::error::{CliError, Failure};
use crate::terminal::out::Out;
use crate::views::plan::{Detail, show_plan};

/// A list that is longer lists no disks.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// A list or a layout that cannot be planned for.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PlanError {
    /// The list.
    #[error(transparent)]
    List(#[from] ListError),
    /// A file with a list.
    #[error("reading the list of disks in {path} failed")]
    Read {
        /// The file.
        path: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// A file that is no list.
    #[error(
        "{path} has more than {FILE_BYTES_MAX} bytes, too many for a list of disks; name a file with one disk a line"
    )]
    TooLong {
        /// The file.
        path: String,
    },
    /// No space is so large.
    #[error("--size {found}: a space has at most {SPACE_BYTES_MAX}; plan for a part of it")]
    Space {
        /// The size.
        found: Bytes,
    },
    /// The disks of the machine cannot be told from attached spaces.
    #[error("--here: the table of mounts cannot be read, and with it which disks nothing uses")]
    Mounts {
        /// The system's reason.
        source: std::io::Error,
    },
    /// None of the machine's disks is free.
    #[error(
        "--here: this machine has no disk of at least {DISK_BYTES_MIN} that nobody uses; type the disks instead"
    )]
    NoneHere,
    /// What was asked for cannot be made.
    #[error("{layout} cannot be made of {disks}: it {problem}")]
    Impossible {
        /// The layout.
        layout: String,
        /// How many disks there are.
        disks: String,
        /// Why not.
        problem: String,
    },
}

impl Failure for PlanError {
    fn exit(&self) -> ExitCode {
        match self {
            Self::List(_)
            | Self::TooLong { .. }
            | Self::Space { .. }
            | Self::NoneHere
            | Self::Impossible { .. } => ExitCode::Usage,
            Self::Mounts { .. } => ExitCode::Io,
            Self::Read { source, .. } => match source.kind() {
                std::io::ErrorKind::PermissionDenied => ExitCode::Permission,
                std::io::ErrorKind::NotFound
                | std::io::ErrorKind::IsADirectory
                | std::io::ErrorKind::InvalidData => ExitCode::Usage,
                _ => ExitCode::Io,
            },
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::Read { .. } => Some(
                "name a text file with disks such as 8TB or 3x4TB@shelf2, one or more to a line".to_owned(),
            ),
            Self::Mounts { .. } => Some("type the disks instead".to_owned()),
            Self::List(_)
            | Self::TooLong { .. }
            | Self::Space { .. }
            | Self::NoneHere
            | Self::Impossible { .. } => None,
        }
    }
}

/// Plans, and shows it.
pub(crate) fn run(
    arguments: &PlanArguments,
    format: Format,
    out: &mut Out<'_>,
) -> Result<ExitCode, CliError> {
    // What would be written over something that is no page is refused before anything else is said.
    Reports::check(arguments.html.as_deref().as_slice(), Rehearsal::Ask)?;
    let request = read(arguments, out)?;
    let plan = Plan::make(&request);
    check(&request.layouts, &plan)?;
    if let Some(path) = &arguments.html {
        let written = std::fs::write(path, page::render(&plan));
        written.map_err(|source| CliError::Write { path: path.clone(), source })?;
        out.print(format_args!("the page is in {}", path.display()));
    }
    match format {
        Format::Json => {
            let asked = || "the plan".to_owned();
            let text = serde_json::to_string(&plan)
                .map_err(|source| CliError::Request { asked: asked(), source })?;
            out.line(text);
        }
        Format::Text => {
            let is_all = arguments.all || !request.layouts.is_empty();
            let detail = if is_all { Detail::All } else { Detail::OneScreen };
            show_plan(&plan, &request.layouts, detail, out);
        }
    }
    Ok(ExitCode::Ok)
}

fn read(arguments: &PlanArguments, out: &mut Out<'_>) -> Result<PlanRequest, PlanError> {
    let mut list = DiskList::new();
    for text in &arguments.disks {
        list.add_typed(text)?;
    }
    for path in &arguments.file {
        list.add_file(&path.display().to_string(), &read_file(path)?)?;
    }
    if arguments.here {
        add_here(&mut list, out)?;
    }
    if let Some(found) = arguments.size.filter(|size| *size > SPACE_BYTES_MAX) {
        return Err(PlanError::Space { found });
    }
    let disks = list.finish()?;
    Ok(PlanRequest {
        layouts: arguments.resiliency.clone(),
        added: read_added(&disks, &arguments.add)?,
        space: arguments.size,
        ..PlanRequest::usual(disks)
    })
}

/// Disks to be added are read behind the others, so that their names differ and the pool's limit counts all.
fn read_added(disks: &Disks, texts: &[String]) -> Result<Vec<Disk>, PlanError> {
    let mut list = DiskList::after(disks);
    for text in texts {
        list.add_typed(text)?;
    }
    Ok(list.into_disks().split_off(disks.list().len()))
}

fn read_file(path: &Path) -> Result<String, PlanError> {
    let shown = || path.display().to_string();
    let failed = |source| PlanError::Read { path: shown(), source };
    let mut text = String::new();
    let file = File::open(path).map_err(failed)?;
    file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(failed)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(PlanError::TooLong { path: shown() });
    }
    Ok(text)
}

fn add_here(list: &mut DiskList, out: &mut Out<'_>) -> Result<(), PlanError> {
    let mut found = 0;
    let disks =
        unused_disks(&dolmen_ublk::is_attached_space).map_err(|source| PlanError::Mounts { source })?;
    for disk in disks {
        let path = disk.path.display().to_string();
        if disk.size < DISK_BYTES_MIN {
            out.print(format_args!("{path} is left out: it has {}, less than a disk of a pool", disk.size));
            continue;
        }
        list.add_found(&path, disk.size)?;
        found += 1;
    }
    if found == 0 { Err(PlanError::NoneHere) } else { Ok(()) }
}

/// Whoever names a layout wants that one; what only the usual list holds may be impossible. Disks to be added count.
fn check(asked: &[Layout], plan: &Plan) -> Result<(), PlanError> {
    if asked.is_empty() {
        return Ok(());
    }
    let helps = |answer: &&dolmen_plan::Answer| answer.additions.iter().any(|added| added.usable_bytes > 0);
    let hopeless = plan.problems().find(|answer| !plan.additions_are_cumulative || !helps(answer));
    match hopeless {
        Some(answer) => Err(PlanError::Impossible {
            layout: answer.layout.clone(),
            disks: crate::views::words::count(
                u64::try_from(plan.disks.len()).unwrap_or(u64::MAX),
                "disk",
                "disks",
            ),
            problem: answer.problem.clone().unwrap_or_default(),
        }),
        None => Ok(()),
    }
}
