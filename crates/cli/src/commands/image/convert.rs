//! `qemu-img`, which converts images of other systems.
//!
//! The program gets open files by `/proc`, no names: it reads the file that was looked at, and writes a file that has no name yet.
//! The source is a copy without a name, which no other process can change between the look at its header and the conversion: its
//! owner could name a file there that this process alone may read. What the program prints is bounded and shown as its own words. It
//! ends when this process ends.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use dolmen_api::ExitCode;
use dolmen_files::images::{ImageError, ImageFormat, NewImage, Source};
use dolmen_units::Bytes;
use serde::Deserialize;

use crate::error::Failure;
use crate::session::poll_interval::PollInterval;

const PROGRAM: &str = "qemu-img";
/// Of util-linux: starts a program that the kernel ends when the one that started it has ended.
const LEASH: &str = "setpriv";
const LEASH_WORDS: [&str; 3] = ["--pdeathsig", "KILL", "--"];
/// Folders of programs, whatever the environment says.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Bytes of output that are read, at most.
const OUTPUT_BYTES_MAX: u64 = 1 << 20;
/// Characters of messages that an error repeats, at most.
const MESSAGE_CHARS_MAX: usize = 1000;
/// Bytes of the largest file.
const DISK_BYTES_MAX: u64 = i64::MAX.unsigned_abs();
const POLL_INTERVAL: PollInterval = PollInterval { pause: Duration::from_millis(200) };

/// An image that was not converted.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConvertError {
    /// The program is not installed.
    #[error(
        "{path} is {format}, which {PROGRAM} converts, and {PROGRAM} is not installed; nothing was changed"
    )]
    NoProgram { path: String, format: ImageFormat },
    /// The program cannot be started.
    #[error("{PROGRAM} cannot be run")]
    Run { source: io::Error },
    /// The program failed.
    #[error("{PROGRAM} cannot {doing} {path} as {format}: {message}; nothing of it is left")]
    Failed { doing: &'static str, path: String, format: ImageFormat, message: String },
    /// The program says what its image does not say.
    #[error("{PROGRAM} finds {found} in {path}, expected {expected}; nothing was changed")]
    Contradiction { path: String, found: String, expected: String },
}

impl Failure for ConvertError {
    fn exit(&self) -> ExitCode {
        match self {
            Self::NoProgram { .. } => ExitCode::Missing,
            Self::Run { .. } | Self::Failed { .. } => ExitCode::Io,
            Self::Contradiction { .. } => ExitCode::Refused,
        }
    }

    fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::NoProgram { .. } => "install qemu-utils, or convert the image to raw elsewhere",
            Self::Contradiction { .. } => "--raw takes the bytes of the file as they are",
            Self::Run { .. } | Self::Failed { .. } => return None,
        };
        Some(hint.to_owned())
    }
}

/// Part of what `qemu-img info` says.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Info {
    virtual_size: u64,
    #[serde(default)]
    backing_filename: Option<String>,
    #[serde(default)]
    encrypted: bool,
    #[serde(default)]
    format_specific: Option<FormatSpecific>,
}

#[derive(Debug, Deserialize)]
struct FormatSpecific {
    #[serde(default)]
    data: OfFormat,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct OfFormat {
    #[serde(default)]
    data_file: Option<String>,
}

/// An image of another system, and the program that reads it.
#[derive(Debug)]
pub(crate) struct Foreign<'a> {
    source: &'a Source,
    format: ImageFormat,
    /// Bytes of its disk.
    pub(crate) disk_bytes: u64,
}

/// Output of a program that ended.
struct Ran {
    is_success: bool,
    /// None if a signal ended it.
    code: Option<i32>,
    output: Vec<u8>,
    message: String,
}

impl<'a> Foreign<'a> {
    /// Asks the program how large the disk is, and compares that with the header of the image, where it says so.
    pub(crate) fn look(
        source: &'a Source,
        format: ImageFormat,
        header_bytes: Option<u64>,
    ) -> Result<Self, ConvertError> {
        let path = source.path().display().to_string();
        let ran = run(&["info", "--output=json", &opened(source, format)], &mut || true)
            .map_err(|source| start_error(source, &path, format))?;
        let info: Option<Info> = serde_json::from_slice(&ran.output).ok();
        let Some(info) = info.filter(|_| ran.is_success) else {
            return Err(ConvertError::Failed { doing: "read", path, format, message: ran.message });
        };
        let bytes = |bytes: u64| format!("a disk of {bytes} bytes");
        let contradicts = |found: String, expected: String| {
            Err(ConvertError::Contradiction { path: path.clone(), found, expected })
        };
        let data_file = info.format_specific.and_then(|specific| specific.data.data_file);
        if let Some(name) = info.backing_filename.or(data_file) {
            return contradicts(format!("the name {name:?} of another file"), "none".to_owned());
        }
        if info.encrypted {
            return contradicts("an encrypted disk".to_owned(), "one that is not".to_owned());
        }
        if let Some(expected) = header_bytes.filter(|expected| *expected != info.virtual_size) {
            return contradicts(bytes(info.virtual_size), bytes(expected));
        }
        if info.virtual_size == 0 || info.virtual_size > DISK_BYTES_MAX {
            return contradicts(bytes(info.virtual_size), format!("1 to {DISK_BYTES_MAX} bytes"));
        }
        let foreign = Self { source, format, disk_bytes: info.virtual_size };
        foreign.check()?;
        Ok(foreign)
    }

    /// Fails if its tables are damaged, such as those of a download that was cut off: what is missing would read as zeros.
    fn check(&self) -> Result<(), ConvertError> {
        const SOUND: i32 = 0;
        const UNUSED_BLOCKS: i32 = 3;
        const CHECKS_NONE_OF_THIS_FORMAT: i32 = 63;
        let (path, format) = (self.source.path().display().to_string(), self.format);
        let ran = run(&["check", &opened(self.source, format)], &mut || true)
            .map_err(|source| start_error(source, &path, format))?;
        match ran.code {
            Some(SOUND | UNUSED_BLOCKS | CHECKS_NONE_OF_THIS_FORMAT) => Ok(()),
            Some(_) | None => Err(ConvertError::Failed {
                doing: "find sound tables in",
                path,
                format,
                message: ran.message,
            }),
        }
    }

    /// Converts it into a new image. Returns how many bytes the image takes.
    pub(crate) fn convert(
        &self,
        new: &NewImage<'_>,
        watch: &mut dyn FnMut(Bytes),
    ) -> Result<u64, crate::error::CliError> {
        new.set_size(self.disk_bytes)?;
        let taken = || new.file().metadata().map_or(0, |found| found.blocks().saturating_mul(512));
        let path = self.source.path().display().to_string();
        let (source, target) = (opened(self.source, self.format), path_of(new.file()));
        let words = ["convert", "-n", "--target-is-zero", "-O", "raw", &source, &target];
        let ran = run(&words, &mut || {
            watch(Bytes(taken()));
            new.leaves_room()
        })
        .map_err(|source| start_error(source, &path, self.format))?;
        if !ran.is_success {
            // In the words of the C locale.
            let is_full = !new.leaves_room()
                || ran.message.contains("No space left")
                || ran.message.contains("quota exceeded");
            let full: Option<ImageError> =
                if is_full { new.full(self.disk_bytes.saturating_sub(taken())) } else { None };
            return Err(match full {
                Some(full) => full.into(),
                None => {
                    let (format, message) = (self.format, ran.message);
                    ConvertError::Failed { doing: "convert", path, format, message }.into()
                }
            });
        }
        self.source.require_unchanged()?;
        Ok(taken())
    }
}

/// Fails if the program is not installed.
pub(crate) fn require_program(source: &Source, format: ImageFormat) -> Result<(), ConvertError> {
    let path = source.path().display().to_string();
    quiet(command(PROGRAM).arg("--version")).map(drop).map_err(|source| start_error(source, &path, format))
}

/// Runs a program without its output.
fn quiet(command: &mut Command) -> io::Result<std::process::ExitStatus> {
    command.stdout(Stdio::null()).stderr(Stdio::null()).status()
}

/// Returns the image in the words of the program: an open file, of one format, without a backing file.
fn opened(source: &Source, format: ImageFormat) -> String {
    let file = serde_json::json!({"driver": "file", "filename": path_of(source.file())});
    let mut image = serde_json::json!({"driver": format.driver(), "file": file});
    if let (Some(fields), ImageFormat::Qcow2 | ImageFormat::Vmdk) = (image.as_object_mut(), format) {
        fields.insert("backing".to_owned(), serde_json::Value::Null);
    }
    format!("json:{image}")
}

fn path_of(file: &File) -> String {
    format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd())
}

fn start_error(source: io::Error, path: &str, format: ImageFormat) -> ConvertError {
    match source.kind() {
        io::ErrorKind::NotFound => ConvertError::NoProgram { path: path.to_owned(), format },
        _ => ConvertError::Run { source },
    }
}

fn command(program: &str) -> Command {
    let mut command = Command::new(program);
    command.env_clear().env("PATH", PATH).env("LC_ALL", "C").stdin(Stdio::null());
    command
}

/// Runs the program to its end, or until `goes_on` says no, or until it has printed too much. An error of the kind `NotFound` says
/// that it is not installed.
fn run(words: &[&str], goes_on: &mut dyn FnMut() -> bool) -> io::Result<Ran> {
    quiet(command(PROGRAM).arg("--version"))?;
    let has_leash = quiet(command(LEASH).args(LEASH_WORDS).args([PROGRAM, "--version"]));
    let mut program = match has_leash {
        Ok(status) if status.success() => {
            let mut leash = command(LEASH);
            leash.args(LEASH_WORDS).arg(PROGRAM);
            leash
        }
        Ok(_) | Err(_) => command(PROGRAM),
    };
    let (mut output, mut messages) = (tempfile::tempfile()?, tempfile::tempfile()?);
    program.args(words).stdout(output.try_clone()?).stderr(messages.try_clone()?);
    let mut child = program.spawn()?;
    let is_bounded = |file: &File| file.metadata().is_ok_and(|found| found.len() <= OUTPUT_BYTES_MAX);
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if !(goes_on() && is_bounded(&output) && is_bounded(&messages)) {
            child.kill()?;
        }
        POLL_INTERVAL.wait();
    };
    let messages = String::from_utf8_lossy(&bounded(&mut messages)?).trim().replace('\n', "; ");
    let message = match messages.as_str() {
        "" => format!("it ended with {status}"),
        _ => messages.chars().take(MESSAGE_CHARS_MAX).collect(),
    };
    Ok(Ran { is_success: status.success(), code: status.code(), output: bounded(&mut output)?, message })
}

fn bounded(file: &mut File) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.rewind()?;
    file.take(OUTPUT_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;
    use std::path::Path;

    use dolmen_files::images::{Content, Library};

    use super::*;

    /// Runs the program with these words; false where it is not installed.
    fn qemu(folder: &Path, words: &[&str]) -> bool {
        match Command::new(PROGRAM).args(words).current_dir(folder).output() {
            Err(_) => {
                println!("skipped: {PROGRAM} is missing");
                false
            }
            Ok(ran) => {
                assert!(ran.status.success(), "{words:?}: {}", String::from_utf8_lossy(&ran.stderr));
                true
            }
        }
    }

    fn foreign(source: &Source) -> Result<Foreign<'_>, crate::error::CliError> {
        match source.content()? {
            Content::Image { format, disk_bytes } => Ok(Foreign::look(source, format, disk_bytes)?),
            content => panic!("{content:?}"),
        }
    }

    #[test]
    fn each_format_becomes_the_bytes_of_its_disk() {
        // Scenario: 3 MiB of data in a disk of 64 MiB, in each format, and compressed.
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let raw = File::create(path("raw")).unwrap();
        raw.set_len(64 << 20).unwrap();
        let data: Vec<u8> = (0..3 << 20).map(|at| u8::try_from(at / 512 % 255).unwrap() + 1).collect();
        raw.write_all_at(&data, 5 << 20).unwrap();
        let library = Library::of_folder(folder.path()).unwrap();
        for words in [
            &["qcow2"][..],
            &["qcow2", "-c"],
            &["qcow2", "-o", "compat=0.10"],
            &["vmdk"],
            &["vmdk", "-o", "subformat=streamOptimized"],
            &["vdi"],
            &["vdi", "-o", "static"],
            &["vhdx"],
            &["vpc", "-o", "force_size"],
            &["vpc", "-o", "force_size,subformat=fixed"],
        ] {
            let name = words.concat().replace([',', '='], "_");
            if !qemu(folder.path(), &[&["convert", "-O"], words, &["raw", &name]].concat()) {
                return;
            }
            let source = Source::open(&path(&name)).unwrap();
            let image = foreign(&source).unwrap();
            assert_eq!(image.disk_bytes, 64 << 20, "{words:?}");
            let new = library.begin(&name.parse().unwrap()).unwrap();
            let taken = image.convert(&new, &mut |_| {}).unwrap();
            assert!(taken < 4 << 20, "{words:?}: {taken} bytes are taken");
            new.finish(image.disk_bytes).unwrap();
            let found = std::fs::read(path("images").join(&name)).unwrap();
            assert!(found == std::fs::read(path("raw")).unwrap(), "{words:?} is not its disk");
        }
    }

    #[test]
    fn an_image_with_other_files_or_a_bad_one_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        if !qemu(folder.path(), &["create", "-q", "-f", "qcow2", "base", "1M"]) {
            return;
        }
        qemu(folder.path(), &["create", "-q", "-f", "qcow2", "-b", "base", "-F", "qcow2", "child"]);
        qemu(
            folder.path(),
            &["create", "-q", "-f", "qcow2", "-o", "data_file=data,data_file_raw=on", "split", "1M"],
        );
        qemu(folder.path(), &["create", "-q", "-f", "vmdk", "base.vmdk", "1M"]);
        qemu(folder.path(), &["create", "-q", "-f", "vmdk", "-b", "base.vmdk", "-F", "vmdk", "child.vmdk"]);
        for (name, part) in [("child", "base"), ("split", "data"), ("child.vmdk", "base.vmdk")] {
            let error = foreign(&Source::open(&path(name)).unwrap()).unwrap_err().to_string();
            assert!(error.contains("takes data from another file") && error.contains(part), "{error}");
        }
        // A file that is cut off behind its header; then one whose size the program does not confirm.
        let head = std::fs::read(path("base")).unwrap()[..512].to_vec();
        std::fs::write(path("torn"), head).unwrap();
        let error = foreign(&Source::open(&path("torn")).unwrap()).unwrap_err();
        assert_eq!(error.exit(), ExitCode::Io, "{error}");
        assert!(error.to_string().contains("cannot find sound tables in"), "{error}");
        let source = Source::open(&path("base")).unwrap();
        let error = Foreign::look(&source, ImageFormat::Qcow2, Some(5)).unwrap_err();
        assert!(error.to_string().contains("a disk of 1048576 bytes"), "{error}");
    }
}
