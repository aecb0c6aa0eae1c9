//! The commands.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use dolmen_block_io::within;
use dolmen_block_linux::{Runtime, RuntimeConfig};
use dolmen_rescue::dump::{What, dump, text};
use dolmen_rescue::{BadRange, Depth, Export, Options, Piece, RescueMode, Rescued, open, scan};
use dolmen_space::Progress;
use dolmen_units::{Bytes, SpaceId};

use crate::args::{
    Arguments, Command, DumpArguments, ExportArguments, Format, ListArguments, ModeArguments, ScanArguments,
    Structure,
};
use crate::disks::{Disks, open_all};
use crate::error::ToolError;
use crate::file::{Target, create_new};
use crate::report;

/// How often progress is shown on a terminal.
const TICK: Duration = Duration::from_millis(500);

/// What came of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// All of it.
    All,
    /// Some of it is missing, bad or doubtful, and was named.
    Partial,
}

impl Outcome {
    /// A command line that makes no sense.
    pub(crate) const USAGE: u8 = 2;

    /// The exit code.
    pub(crate) const fn number(self) -> u8 {
        match self {
            Self::All => 0,
            Self::Partial => 1,
        }
    }
}

/// Does what the command line says.
pub(crate) fn run(
    arguments: &Arguments,
    out: &mut dyn Write,
    messages: &mut dyn Write,
) -> Result<Outcome, ToolError> {
    let runtime = Runtime::new(RuntimeConfig::MODEST)?;
    let mut tool = Tool { runtime: &runtime, format: arguments.output, out, messages };
    match &arguments.command {
        Command::Scan(arguments) => tool.scan(arguments),
        Command::List(arguments) => tool.list(arguments),
        Command::Export(arguments) => tool.export(arguments),
        Command::Dump(arguments) => tool.dump(arguments),
    }
}

fn mode_of(arguments: &ModeArguments) -> RescueMode {
    match (arguments.at, arguments.without_log, arguments.from_slabs) {
        (Some(sequence), _, _) => RescueMode::At(sequence),
        (None, true, _) => RescueMode::WithoutLog,
        (None, false, true) => RescueMode::Slabs,
        (None, false, false) => RescueMode::Present,
    }
}

struct Tool<'a> {
    runtime: &'a Runtime,
    format: Format,
    out: &'a mut dyn Write,
    messages: &'a mut dyn Write,
}

impl Tool<'_> {
    fn disks(&mut self, paths: &[PathBuf]) -> Result<Disks, ToolError> {
        let disks = open_all(&self.runtime.handle(), paths)?;
        for warning in &disks.warnings {
            writeln!(self.messages, "dolmen-rescue: warning: {warning}")?;
        }
        Ok(disks)
    }

    fn scan(&mut self, arguments: &ScanArguments) -> Result<Outcome, ToolError> {
        let disks = self.disks(&arguments.disks)?;
        let depth = if arguments.whole { Depth::WholeDisks } else { Depth::Metadata };
        let (seams, progress) = (self.runtime.seams(), Rc::new(Progress::default()));
        let run_command = Rc::clone(&progress);
        let scanned =
            self.wait(&run_command, async move { scan(&seams, &disks.devices, depth, &progress).await })?;
        match self.format {
            Format::Json => writeln!(self.out, "{}", serde_json::to_string(&scanned)?)?,
            Format::Text => write!(self.out, "{}", report::scan(&scanned))?,
        }
        Ok(if report::is_whole(&scanned) { Outcome::All } else { Outcome::Partial })
    }

    /// Opens the pool that is on the disks.
    fn open(
        &mut self,
        paths: &[PathBuf],
        mode: &ModeArguments,
        pool: Option<&str>,
        space: Option<&str>,
    ) -> Result<Rescued, ToolError> {
        let disks = self.disks(paths)?;
        let options =
            Options { pool: pool.map(str::to_owned), mode: mode_of(mode), space: space.map(str::to_owned) };
        let (seams, progress) = (self.runtime.seams(), Rc::new(Progress::default()));
        let run_command = Rc::clone(&progress);
        let opened =
            self.wait(&run_command, async move { open(&seams, &disks.devices, &options, &progress).await })?;
        Ok(opened?)
    }

    fn list(&mut self, arguments: &ListArguments) -> Result<Outcome, ToolError> {
        // The tables of no space are weighed: nobody reads any.
        let rescued = self.open(&arguments.disks, &arguments.mode, arguments.pool.as_deref(), Some(""))?;
        let rescued = Rc::new(rescued);
        let of = Rc::clone(&rescued);
        let spaces = self.runtime.run(async move { of.list().await });
        match self.format {
            Format::Json => {
                writeln!(self.out, "{}", serde_json::to_string(&report::list_document(&rescued, &spaces))?)?;
            }
            Format::Text => write!(self.out, "{}", report::list(&rescued, &spaces))?,
        }
        self.close(rescued);
        Ok(Outcome::All)
    }

    fn close(&self, rescued: Rc<Rescued>) {
        if let Ok(rescued) = Rc::try_unwrap(rescued) {
            self.runtime.run(rescued.close());
        }
    }

    fn export(&mut self, arguments: &ExportArguments) -> Result<Outcome, ToolError> {
        let list = list_path(arguments)?;
        check_paths(arguments, &list)?;
        let rescued =
            self.open(&arguments.disks, &arguments.mode, arguments.pool.as_deref(), Some(&arguments.space))?;
        let rescued = Rc::new(rescued);
        let (of, space) = (Rc::clone(&rescued), arguments.space.clone());
        let export = self.runtime.run(async move { of.export(&space).await })?;
        writeln!(self.messages, "{}", report::point_in_time(&rescued))?;
        if arguments.dry_run {
            let size = export.size();
            writeln!(
                self.out,
                "would write {size} to {}, and what is bad to {}",
                arguments.to.display(),
                list.display()
            )?;
            drop(export);
            self.close(rescued);
            return Ok(Outcome::All);
        }
        let (size, bad) = self.copy(export, arguments)?;
        let outcome = if bad.is_empty() { Outcome::All } else { Outcome::Partial };
        let document = report::export_document(&rescued, arguments, size, &bad)?;
        let is_json = list.extension().is_some_and(|extension| extension == "json");
        match is_json {
            true => write_list(&list, &document)?,
            false => write_list(&list, &report::bad_ranges(&rescued, &arguments.space, size, &bad))?,
        }
        match self.format {
            Format::Json => writeln!(self.messages_or_out(&arguments.to), "{document}")?,
            Format::Text => {
                let summary = report::export(size, &bad, arguments, &list);
                write!(self.messages_or_out(&arguments.to), "{summary}")?;
            }
        }
        self.close(rescued);
        Ok(outcome)
    }

    /// Where answers go: not between the bytes of a space.
    fn messages_or_out(&mut self, to: &Path) -> &mut dyn Write {
        if to.as_os_str() == "-" { self.messages } else { self.out }
    }

    /// Writes a space; its size, and what is bad.
    fn copy(
        &mut self,
        export: Export,
        arguments: &ExportArguments,
    ) -> Result<(Bytes, Vec<BadRange>), ToolError> {
        let part = part_path(&arguments.to);
        let (size, total) = (export.size(), export.rows_left());
        let export = Rc::new(RefCell::new(Some(export)));
        let mut target = Target::new(&part, &mut *self.out)?;
        let is_terminal = std::io::stderr().is_terminal();
        let mut shown = usize::MAX;
        loop {
            let (piece, left) = next_piece(self.runtime, &export);
            match piece {
                None => break,
                Some(Piece::Data { at, segments }) => target.put(at, &segments)?,
                Some(Piece::Bad(range)) if arguments.zero_bad => {
                    target.put_zeros(range.at, range.length.0)?
                }
                Some(Piece::Bad(_)) => {}
            }
            if is_terminal && left != shown {
                shown = left;
                write!(self.messages, "\r{} of {total} rows", total.saturating_sub(left))?;
            }
        }
        target.end(size.0)?;
        if is_terminal {
            writeln!(self.messages, "\r{total} of {total} rows")?;
        }
        let bad = export.borrow().as_ref().map(Export::bad).unwrap_or_default();
        drop(target);
        if part.as_os_str() != "-" {
            let moved = std::fs::rename(&part, &arguments.to);
            moved.map_err(|source| ToolError::Write { path: arguments.to.clone(), source })?;
        }
        Ok((size, bad))
    }

    fn dump(&mut self, arguments: &DumpArguments) -> Result<Outcome, ToolError> {
        let disks = self.disks(&arguments.disks)?;
        let at = arguments.address.unwrap_or(0);
        let what = match arguments.what {
            Structure::Label | Structure::Epoch => What::Labels,
            Structure::Checkpoint => What::Checkpoints,
            Structure::Log => What::Log,
            Structure::Cache => What::Cache,
            Structure::Map => What::Map,
            Structure::Space => What::Spaces,
            Structure::Row => What::Rows(arguments.space.map(SpaceId)),
            Structure::Slab if arguments.address.is_none() => What::Slabs,
            Structure::Slab | Structure::Table | Structure::Page | Structure::Block => What::At(at),
        };
        let (seams, progress, checkpoint) =
            (self.runtime.seams(), Rc::new(Progress::default()), arguments.at);
        let run_command = Rc::clone(&progress);
        let shown = self.wait(&run_command, async move {
            dump(&seams, &disks.devices, what, checkpoint, &progress).await
        })?;
        let shown = shown?;
        match self.format {
            Format::Json => writeln!(self.out, "{shown}")?,
            Format::Text => write!(self.out, "{}", text(&shown))?,
        }
        Ok(Outcome::All)
    }

    /// Waits for something, and tells on a terminal how much was read for it.
    fn wait<T: 'static>(
        &mut self,
        progress: &Rc<Progress>,
        work: impl Future<Output = T> + 'static,
    ) -> Result<T, ToolError> {
        let work: Pin<Box<dyn Future<Output = T>>> = Box::pin(work);
        let work = Rc::new(RefCell::new(work));
        let is_terminal = std::io::stderr().is_terminal();
        loop {
            let (clock, work) = (self.runtime.seams().clock, Rc::clone(&work));
            let step = async move {
                let change = poll_fn(|cx| work.borrow_mut().as_mut().poll(cx));
                within(clock.as_ref(), clock.now() + TICK, change).await
            };
            let ended = self.runtime.run(step);
            let total = Bytes(progress.total.get());
            if is_terminal && total > Bytes::ZERO {
                let end = if ended.is_some() { "\n" } else { "" };
                write!(self.messages, "\r{} of {total} read{end}", Bytes(progress.bytes.get()))?;
            }
            if let Some(ended) = ended {
                return Ok(ended);
            }
        }
    }
}

/// The next piece, and how many rows are left.
fn next_piece(runtime: &Runtime, export: &Rc<RefCell<Option<Export>>>) -> (Option<Piece>, usize) {
    let Some(mut of) = export.borrow_mut().take() else { return (None, 0) };
    let (piece, of) = runtime.run(async move {
        let piece = of.next().await;
        (piece, of)
    });
    let left = of.rows_left();
    *export.borrow_mut() = Some(of);
    (piece, left)
}

/// Where the list of bad ranges goes.
fn list_path(arguments: &ExportArguments) -> Result<PathBuf, ToolError> {
    match &arguments.bad_ranges {
        Some(path) => Ok(path.clone()),
        None if arguments.to.as_os_str() == "-" => Err(ToolError::NoList),
        None => Ok(after(&arguments.to, ".bad")),
    }
}

/// What the file is called until all of it is there.
fn part_path(to: &Path) -> PathBuf {
    if to.as_os_str() == "-" { to.to_path_buf() } else { after(to, ".part") }
}

fn after(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// Refuses what would write over anything.
fn check_paths(arguments: &ExportArguments, list: &Path) -> Result<(), ToolError> {
    let files = [arguments.to.clone(), part_path(&arguments.to), list.to_path_buf()];
    for path in files.iter().filter(|path| path.as_os_str() != "-") {
        let of_disk = |disk: &&PathBuf| disk.as_path() == path.as_path();
        if arguments.disks.iter().any(|disk| of_disk(&disk)) {
            return Err(ToolError::OnDisk { path: path.clone() });
        }
        if path.symlink_metadata().is_ok() {
            return Err(ToolError::Exists { path: path.clone() });
        }
    }
    Ok(())
}

fn write_list(path: &Path, list: &str) -> Result<(), ToolError> {
    let mut file = create_new(path)?;
    let written = file.write_all(list.as_bytes()).and_then(|()| file.sync_all());
    written.map_err(|source| ToolError::Write { path: path.to_path_buf(), source })
}
