//! Finding out what a target is, whether it may be written to, and which caches stand in front of it.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use dolmen_api::verb;
use dolmen_bench::{Cache, CacheSize, Path as Access, Profile, Target, TargetPath};
use dolmen_block_io::BlockDevice;
use dolmen_block_linux::{LinuxDevice, OpenOptions, Runtime, in_use, is_read_only};
use dolmen_disk::{Contents, look, signature_of};
use dolmen_units::{BLOCK_BYTES, Bytes};

use super::error::BenchError;
use super::file::{OwnFile, check_growth, check_room, direct_unit, takes_direct};
use super::machine::memory;
use super::nbd::{Address, Server};
use crate::arguments::bench::BenchArguments;
use crate::arguments::values::SpaceName;
use crate::error::CliError;
use crate::session::client::{Client, call};

/// Working sets are whole multiples of this, so that every block fits without a rest.
const WORKING_SET_UNIT: u64 = 1 << 20;
/// File systems that lie in memory (linux/magic.h).
const TMPFS_MAGIC: u64 = 0x0102_1994;
const RAMFS_MAGIC: u64 = 0x8584_58f6;

/// A target that may be measured.
pub(crate) struct Prepared {
    /// For the plan.
    pub target: Target,
    /// What it holds, in words, where that would be lost.
    pub holds: Option<String>,
    /// What tells it from other targets.
    pub identity: String,
    /// Keeps it from being used by others meanwhile, or removes the file that was made.
    pub kept: Kept,
}

/// What is kept until the end.
pub(crate) enum Kept {
    /// Nothing.
    Nothing,
    /// A file of our own that is not there yet.
    ToBeMade(PathBuf),
    /// A device or a file that nobody else gets exclusively.
    Device(#[expect(dead_code, reason = "held for its locks")] Rc<LinuxDevice>),
    /// A file of our own.
    File(#[expect(dead_code, reason = "held for its removal")] OwnFile),
}

impl Prepared {
    /// Makes the file, where this is one of our own.
    pub(crate) fn make(&mut self) -> Result<(), BenchError> {
        let Kept::ToBeMade(path) = &self.kept else { return Ok(()) };
        let (path, target) = (path.clone(), &mut self.target);
        self.kept = Kept::File(OwnFile::make(path.clone(), target.working_set, &target.name)?);
        let looked = takes_direct(&path);
        let is_direct =
            looked.map_err(|error| BenchError::Look { target: target.name.clone(), source: error.into() })?;
        target.unit = unit_of(&target.name, &path)?;
        if !is_direct && target.access == Access::Direct {
            target.access = Access::Buffered;
            target.caches = caches_of_file(path.parent().unwrap_or(Path::new("/")), Access::Buffered);
        }
        Ok(())
    }
}

/// What is needed to look at targets.
pub(crate) struct TargetInspector<'a> {
    /// The command line.
    pub arguments: &'a BenchArguments,
    /// What will be run.
    pub profiles: &'a [Profile],
    /// Opens devices.
    pub runtime: &'a Runtime,
    /// Knows spaces.
    pub client: &'a Client,
}

impl TargetInspector<'_> {
    /// Looks at a target as it was named; the number tells files of several targets in one folder apart.
    pub(crate) fn prepare(&self, name: &str, number: usize) -> Result<Prepared, CliError> {
        if name.contains("://") {
            return Ok(self.nbd(name, name)?);
        }
        if name.starts_with(['/', '.']) {
            return Ok(self.path(name, Path::new(name), number)?);
        }
        if name.contains('/') {
            return self.space(name, number);
        }
        let why = "a path in this folder begins with ./".to_owned();
        Err(BenchError::Name { target: name.to_owned(), why }.into())
    }

    /// The first profile that changes what it runs on.
    fn writer(&self) -> Option<&Profile> {
        self.profiles.iter().find(|profile| profile.writes())
    }

    fn space(&self, name: &str, number: usize) -> Result<Prepared, CliError> {
        let space: SpaceName =
            name.parse().map_err(|error: crate::arguments::values::ParseSpaceNameError| {
                BenchError::Name { target: name.to_owned(), why: error.to_string() }
            })?;
        let asked = call::<verb::ShowSpace>([space.pool.as_str(), space.space.as_str()]);
        let document = self.client.look(&asked)?.value;
        match (document.space.attached_at, document.space.served_at) {
            (Some(path), _) => Ok(self.path(name, Path::new(&path), number)?),
            (None, Some(uri)) => Ok(self.nbd(name, &uri)?),
            (None, None) => Err(BenchError::SpaceUnreachable { target: name.to_owned() }.into()),
        }
    }

    fn nbd(&self, name: &str, uri: &str) -> Result<Prepared, BenchError> {
        let address = Address::parse(uri)?;
        let facts = address.look()?;
        let writer = self.writer();
        if let Some(profile) = writer.filter(|_| facts.is_read_only) {
            return Err(BenchError::ReadOnly { target: name.to_owned(), profile: profile.name.clone() });
        }
        if writer.is_some() && !facts.can_flush && self.arguments.flush != dolmen_bench::Flush::Never {
            return Err(BenchError::NoFlush { target: name.to_owned() });
        }
        let held = signature_of(&facts.front, &facts.tail, facts.size);
        let cache = match &address.server {
            Server::Unix(_) => known("the page cache of this machine, which the server may use", memory()),
            Server::Tcp(..) => Cache { what: "the server's cache".to_owned(), size: CacheSize::Unknown },
        };
        let target = Target {
            name: name.to_owned(),
            what: format!("an NBD export of {}", facts.size),
            path: TargetPath::Nbd { uri: uri.to_owned() },
            access: Access::Nbd,
            working_set: self.working_set(facts.size),
            unit: Bytes(1),
            caches: vec![cache],
            is_filled: self.fills(),
        };
        let identity = format!("nbd {:?} {}", address.server, address.export);
        Ok(self.prepared(target, held.map(|what| what.to_string()), identity, Kept::Nothing))
    }

    fn path(&self, name: &str, path: &Path, number: usize) -> Result<Prepared, BenchError> {
        let status = match fs::metadata(path) {
            Ok(status) => status,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return self.new_file(name, path),
            Err(source) => return Err(BenchError::Look { target: name.to_owned(), source }),
        };
        if status.is_dir() {
            let file = format!("dolmen-bench-{}-{number}", std::process::id());
            return self.own_file(name, &canonical(name, path)?, &file);
        }
        self.existing(name, &canonical(name, path)?, status.file_type().is_block_device())
    }

    /// A path at which there is nothing: a file is made there. A device that is missing is no file to be made.
    fn new_file(&self, name: &str, path: &Path) -> Result<Prepared, BenchError> {
        let missing = |what| BenchError::NotFound { target: name.to_owned(), what };
        let (Some(parent), Some(file)) = (path.parent(), path.file_name().and_then(|name| name.to_str()))
        else {
            return Err(missing(", and its name is no text"));
        };
        let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
        if !parent.is_dir() {
            return Err(missing(", and no folder to make it in"));
        }
        let folder = canonical(name, parent)?;
        if folder.starts_with("/dev") && !folder.starts_with("/dev/shm") {
            return Err(missing(", and no file is made among devices"));
        }
        self.own_file(name, &folder, file)
    }

    /// A file that is still to be made.
    fn own_file(&self, name: &str, folder: &Path, file: &str) -> Result<Prepared, BenchError> {
        let size = self.working_set(self.arguments.size);
        let path = folder.join(file);
        check_room(folder, size, name)?;
        // Whether the file can be reached past the page cache is known when it is there.
        let access = self.access(true);
        let target = Target {
            name: name.to_owned(),
            what: format!("a file of {size} in {}", folder.display()),
            path: TargetPath::File { path: text_of(name, &path)? },
            access,
            working_set: size,
            unit: Bytes(1),
            caches: caches_of_file(folder, access),
            // Nobody has written it yet; what was only allocated would be read as zeros from no disk.
            is_filled: true,
        };
        let identity = path.display().to_string();
        Ok(self.prepared(target, None, identity, Kept::ToBeMade(path)))
    }

    /// A device or a file that is there.
    fn existing(&self, name: &str, path: &Path, is_block: bool) -> Result<Prepared, BenchError> {
        let writer = self.writer();
        if let Some(profile) = writer {
            let used = in_use(path).map_err(|source| BenchError::Look { target: name.to_owned(), source })?;
            if let Some(by) = used {
                return Err(BenchError::InUse { target: name.to_owned(), by });
            }
            if is_read_only(path) {
                return Err(BenchError::ReadOnly { target: name.to_owned(), profile: profile.name.clone() });
            }
        }
        let is_changed = writer.is_some() && !self.arguments.dry_run;
        let options = OpenOptions { read_only: !is_changed, exclusive: is_changed, ..OpenOptions::default() };
        let device = LinuxDevice::open(&self.runtime.handle(), path, options)?;
        let capacity = device.geometry().capacity;
        if writer.is_some() && !is_block {
            check_growth(path, self.working_set(capacity), name)?;
        }
        let holds = self.holds(name, &device)?;
        let looked = takes_direct(path);
        let is_direct =
            looked.map_err(|error| BenchError::Look { target: name.to_owned(), source: error.into() })?;
        let access = self.access(is_direct);
        let (what, caches, unit) = if is_block {
            let unit = Bytes(u64::from(device.geometry().logical_block_bytes));
            (format!("a block device of {capacity}"), caches_of_device(path, access), unit)
        } else {
            let folder = path.parent().unwrap_or(Path::new("/"));
            (format!("a file of {capacity}"), caches_of_file(folder, access), unit_of(name, path)?)
        };
        let target = Target {
            name: name.to_owned(),
            what,
            path: TargetPath::File { path: text_of(name, path)? },
            access,
            working_set: self.working_set(capacity),
            unit,
            caches,
            is_filled: self.fills(),
        };
        Ok(self.prepared(target, holds, path.display().to_string(), Kept::Device(device)))
    }

    fn holds(&self, name: &str, device: &Rc<LinuxDevice>) -> Result<Option<String>, BenchError> {
        let (seams, looked_at) = (self.runtime.seams(), Rc::clone(device));
        let looked = self.runtime.run(async move { look(&seams, looked_at.as_ref()).await });
        match looked {
            Ok(Contents::Empty) => Ok(None),
            Ok(Contents::Foreign(what)) => Ok(Some(what.to_string())),
            Ok(Contents::Member { label, .. }) => Ok(Some(format!("a disk of pool {}", label.pool_name))),
            Ok(Contents::Unusable(error)) => {
                Ok(Some(format!("a disk of a pool with damaged labels ({error})")))
            }
            Err(source) => Err(BenchError::Content { target: name.to_owned(), source }),
        }
    }

    fn prepared(&self, target: Target, holds: Option<String>, identity: String, kept: Kept) -> Prepared {
        let is_changed = self.writer().is_some();
        Prepared { target, holds: holds.filter(|_| is_changed), identity, kept }
    }

    /// Whether a target that was there before is written once: only if what is run overwrites it anyway.
    fn fills(&self) -> bool {
        self.writer().is_some() && !self.arguments.no_fill
    }

    fn access(&self, is_direct: bool) -> Access {
        if is_direct && !self.arguments.buffered { Access::Direct } else { Access::Buffered }
    }

    /// What is asked for, or less where there is less.
    fn working_set(&self, there: Bytes) -> Bytes {
        let size = Bytes(self.arguments.size.0.min(there.0));
        // What is shorter than a block has not been looked at, and is nothing that could be measured.
        size.align_down(if size.0 < WORKING_SET_UNIT { BLOCK_BYTES } else { WORKING_SET_UNIT })
    }
}

fn canonical(name: &str, path: &Path) -> Result<PathBuf, BenchError> {
    fs::canonicalize(path).map_err(|source| BenchError::Look { target: name.to_owned(), source })
}

fn unit_of(name: &str, path: &Path) -> Result<Bytes, BenchError> {
    direct_unit(path).map_err(|error| BenchError::Look { target: name.to_owned(), source: error.into() })
}

fn text_of(name: &str, path: &Path) -> Result<String, BenchError> {
    let text = path.to_str().map(str::to_owned);
    let why = || "its path is no text, and fio takes no other".to_owned();
    text.ok_or_else(|| BenchError::Name { target: name.to_owned(), why: why() })
}

fn known(what: &str, size: Bytes) -> Cache {
    let size = if size == Bytes::ZERO { CacheSize::Unknown } else { CacheSize::Known(size) };
    Cache { what: what.to_owned(), size }
}

fn page_cache() -> Cache {
    known("the page cache of this machine", memory())
}

/// A device's own cache, which nothing tells the size of, and the page cache where that stands in front.
fn caches_of_device(path: &Path, access: Access) -> Vec<Cache> {
    let number = fs::metadata(path).map_or(0, |status| status.rdev());
    let mut caches = caches_below(number);
    if access == Access::Buffered {
        caches.push(page_cache());
    }
    caches
}

fn caches_of_file(folder: &Path, access: Access) -> Vec<Cache> {
    let kind = rustix::fs::statfs(folder).map_or(0, |status| u64::try_from(status.f_type).unwrap_or(0));
    if matches!(kind, TMPFS_MAGIC | RAMFS_MAGIC) {
        let what = format!("{} lies in memory", folder.display());
        return vec![Cache { what, size: CacheSize::Everything }];
    }
    let number = fs::metadata(folder).map_or(0, |status| status.dev());
    let mut caches = caches_below(number);
    if access == Access::Buffered {
        caches.push(page_cache());
    }
    caches
}

/// A loop device whose own file is read through the page cache brings that one in.
fn caches_below(number: u64) -> Vec<Cache> {
    let folder = format!("/sys/dev/block/{}:{}", rustix::fs::major(number), rustix::fs::minor(number));
    let read = |file: &str| fs::read_to_string(Path::new(&folder).join(file)).ok();
    let access = read("loop/dio").or_else(|| read("../loop/dio"));
    match access.as_deref().map(str::trim) {
        Some("0") => vec![known("the page cache of this machine, behind the loop device", memory())],
        _ => vec![Cache { what: "the cache of the device itself".to_owned(), size: CacheSize::Unknown }],
    }
}
