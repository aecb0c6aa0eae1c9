//! Devices of the system: found, looked at, opened.
//!
//! A device is first looked at without locking it, so that looking disturbs nobody; only those that belong to the pool
//! wanted are then opened for it alone, and looked at again, because they may have changed in between.

use std::collections::BTreeMap;
use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io;
use std::mem::discriminant;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use dolmen_api::{Device, DeviceState, ErrorBody, ErrorCode};
use dolmen_block_io::sync::join_all;
use dolmen_block_io::{BlockDevice, Seams, sleep};
use dolmen_block_linux::{
    DeviceStacks, Handle, LinuxDevice, MediumExtent, OnSpace, OpenError, OpenOptions, by_medium, in_use,
    is_read_only, name_of, path_of,
};
use dolmen_causes::in_one_line;
use dolmen_disk::{Contents, Extent, Label, look};
use dolmen_mutation::mutation;
use dolmen_pool::{CreateError, Disk, Found, PoolError, check_devices, discover};
use dolmen_units::{Bytes, DISKS_MAX, Epoch, PoolId};

use crate::answer::Answer;
use crate::attach::Transports;
use crate::base::Base;
use crate::config::{Config, Scan};
use crate::disks::below::space_in;
use crate::disks::folders::add_files;
use crate::disks::provider::Places;
use crate::disks::providers::PROVIDERS;
use crate::fault;
use crate::open_pool::OpenPool;
use crate::open_pools::OpenPools;
use crate::state::{Connection, Identity, Members, identity};

/// How long to wait before disks that another process holds are tried again.
const HELD_PAUSE: Duration = Duration::from_millis(100);

/// Adds the places where absent disks were, with the folders of those that are files, and what was configured.
pub(super) fn add_places(places: &mut Places<'_>, hints: &[PathBuf], look_in: &[PathBuf]) {
    for hint in hints {
        if places.is_on_space(hint) {
            continue;
        }
        places.add(hint);
        let hint = &*path_of(hint);
        let may_be_renamed = !hint.is_dir() && !hint.starts_with("/dev");
        if let Some(folder) = hint.parent().filter(|_| may_be_renamed) {
            add_files(folder, places);
        }
    }
    look_in.iter().for_each(|place| places.add(place));
}

/// The path that everybody else would call it, so that one device listed twice is seen to be one. Only for what lies on no
/// space: see `Devices::canonical`.
fn canonical(path: &str) -> Answer<PathBuf> {
    let fail = |code, message: String| Err(ErrorBody::new(code, message).on(path));
    if !Path::new(path).is_absolute() {
        return fail(
            ErrorCode::BadRequest,
            format!("{path} is not an absolute path, so it means nothing to the daemon"),
        );
    }
    match fs::canonicalize(path_of(Path::new(path))) {
        Ok(path) => Ok(PathBuf::from(name_of(&path))),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            fail(ErrorCode::NoSuchDevice, format!("there is nothing at {path}"))
        }
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            fail(ErrorCode::Permission, format!("{path} cannot be reached: permission denied"))
        }
        Err(error) => fail(ErrorCode::Io, format!("{path} cannot be reached: {error}")),
    }
}

/// Devices of this host: looked for, opened, and described.
pub(crate) struct Devices {
    pools: Rc<OpenPools>,
    handle: Handle,
    seams: Seams,
    config: Rc<Config>,
    members: Rc<Members>,
    pub(super) transports: Rc<Transports>,
}

impl Devices {
    pub(crate) fn new(base: &Base) -> Self {
        Self {
            pools: Rc::clone(&base.pools),
            handle: base.handle.clone(),
            seams: base.seams.clone(),
            config: Rc::clone(&base.config),
            members: Rc::clone(&base.members),
            transports: Rc::clone(&base.transports),
        }
    }
}

impl Devices {
    /// Returns the path that everybody else would call it, so that one device listed twice is seen to be one. What lies on a
    /// space is refused, and not touched.
    pub(crate) fn canonical(&self, path: &str) -> Answer<PathBuf> {
        if Path::new(path).is_absolute() {
            self.check_below(Path::new(path))?;
        }
        canonical(path)
    }

    /// Opens what is to become a disk, for this process alone.
    pub(crate) fn open_for_pool(&self, path: &Path, pool: PoolId) -> Answer<Rc<dyn BlockDevice>> {
        self.check_below(path)?;
        if let Some(pool) = self.pool_with(path) {
            let message = format!(
                "{} is a disk of pool {pool}, which is open here; nothing was written",
                path.display()
            );
            return Err(ErrorBody::new(ErrorCode::DeviceInUse, message).on(path.display().to_string()));
        }
        if is_read_only(path) {
            let name = path.display().to_string();
            let message = format!("{name} is read-only and cannot be a disk of a pool; nothing was written");
            return Err(ErrorBody::new(ErrorCode::UnfitDevice, message)
                .on(name)
                .hint("make it writable, or name another one"));
        }
        match in_use(path) {
            Ok(Some(by)) => Err(fault::open_device(&OpenError::InUse { path: path.to_path_buf(), by })),
            Ok(None) | Err(_) => {
                let device = LinuxDevice::open(&self.handle, path, OpenOptions::default());
                device
                    .map(|device| self.members.give(device, pool))
                    .map_err(|error| fault::open_device(&error))
            }
        }
    }

    /// Opens several; none of them twice.
    pub(crate) fn open_all(&self, paths: &[PathBuf], pool: PoolId) -> Answer<Vec<Rc<dyn BlockDevice>>> {
        if paths.len() > DISKS_MAX {
            let message = format!("{} disks are more than the {DISKS_MAX} that a pool can have", paths.len());
            return Err(ErrorBody::new(ErrorCode::BadRequest, message));
        }
        let mut seen: Vec<(Option<Identity>, Option<MediumExtent>, &PathBuf)> = Vec::new();
        for path in paths {
            let (identity, medium) = (identity(path), MediumExtent::at(path));
            for (other, before, first) in &seen {
                if *other == identity {
                    return Err(listed_twice(first, path));
                }
                if are_one(before.as_ref(), medium.as_ref()) {
                    return Err(one_medium(first, path));
                }
            }
            seen.push((identity, medium, path));
        }
        paths.iter().map(|path| self.open_for_pool(path, pool)).collect()
    }

    /// The name of the open pool that has the device at this path.
    pub(crate) fn pool_with(&self, path: &Path) -> Option<String> {
        let wanted = identity(path);
        if let Some(pool) = MediumExtent::at(path).and_then(|medium| self.members.pool_on(&medium))
            && let Some(pool) = self.pools.open.borrow().get(&pool)
        {
            return Some(pool.name());
        }
        let holds = |name: &str| identity(Path::new(name)) == wanted;
        let pools = self.pools.open.borrow();
        let found = pools.values().find(|pool| {
            pool.spaces.pool().disks().iter().any(|disk| disk.is_present() && holds(&disk.name()))
        });
        found.map(|pool| pool.name())
    }

    /// Where members of pools may be: all disks of the system that nobody uses, what was configured, and the hints, with
    /// the folders of those that are files, because files are renamed. Of what was configured nothing else is looked at. What
    /// lies on a space is no such place.
    pub(crate) fn places(&self, hints: &[PathBuf]) -> Vec<PathBuf> {
        let found = self.with_stacks(|stacks| {
            let mut places = Places::new(stacks, PROVIDERS);
            add_places(&mut places, hints, &self.config.look_in);
            if self.config.scan == Scan::System {
                places.scan();
            }
            places.into_found()
        });
        known(found)
    }

    /// What is meant by the disks, files and folders of them that a person names.
    pub(crate) fn places_named(&self, named: &[PathBuf]) -> Vec<PathBuf> {
        known(self.with_stacks(|stacks| {
            let mut places = Places::new(stacks, PROVIDERS);
            named.iter().for_each(|path| places.add(path));
            places.into_found()
        }))
    }

    /// Looks at devices, without locking any of them. Of several paths to one medium, the first that can be read counts. One that may not be opened because too many files are open is no device
    /// without a label: nothing is concluded from the others then.
    pub(crate) async fn look_at(&self, paths: &[PathBuf]) -> Answer<Found> {
        let options = OpenOptions { read_only: true, exclusive: false, ..OpenOptions::default() };
        let mut devices: Vec<Rc<dyn BlockDevice>> = Vec::new();
        for alternates in by_medium(paths) {
            let mut left = alternates.len();
            for path in alternates {
                left -= 1;
                match LinuxDevice::open(&self.handle, path, options) {
                    // A path that cannot be read does not hide another one to the same medium.
                    Ok(device) if left > 0 && look(&self.seams, device.as_ref()).await.is_err() => {
                        tracing::debug!(path = %path.display(), "cannot be read; another path to the same disk is tried");
                    }
                    Ok(device) => {
                        devices.push(device);
                        break;
                    }
                    Err(error) if is_unopened(&error) => {
                        let message =
                            format!("{} places where disks may be cannot be looked at: {error}", paths.len());
                        return Err(ErrorBody::new(ErrorCode::Io, message));
                    }
                    Err(error) => tracing::debug!(path = %path.display(), %error, "not looked at"),
                }
            }
        }
        Ok(discover(&self.seams, &devices).await)
    }

    /// Opens the disks of a pool for this process alone. One that cannot be had is absent, and why is logged; but one that
    /// another process holds is no absent disk. Whoever went on without it would make a second side of the pool beside
    /// one that is in use. So that process is given some time, and then nothing is opened. A lock that survives its process
    /// gets as much time to end; a disk that does not answer may keep it for ever, and the pool is opened without that one.
    pub(crate) async fn take_members(
        &self,
        pool: PoolId,
        name: &str,
        paths: &[PathBuf],
        timeout: Duration,
    ) -> Answer<(Found, Vec<String>)> {
        let clock = self.seams.clock.as_ref();
        let limit = clock.now() + timeout;
        loop {
            let (found, refused) = self.try_members(pool, paths).await;
            let is_over = clock.now() >= limit;
            if let Some(absent) = absent_members(name, &refused, paths.len(), is_over)? {
                for error in &absent {
                    tracing::warn!(%pool, error, "disks of the pool cannot be opened");
                }
                return Ok((found, absent));
            }
            drop(found);
            sleep(clock, HELD_PAUSE).await;
        }
    }

    /// Returns the number of labels of a disk that are damaged or missing.
    pub(crate) async fn lost_labels_of(&self, device: &Rc<dyn BlockDevice>) -> usize {
        let found = discover(&self.seams, std::slice::from_ref(device)).await;
        found.pools.values().flatten().map(|candidate| candidate.lost_labels.len()).sum()
    }

    async fn try_members(&self, pool: PoolId, paths: &[PathBuf]) -> (Found, Vec<OpenError>) {
        let mut devices: Vec<Rc<dyn BlockDevice>> = Vec::new();
        let mut refused = Vec::new();
        for path in paths {
            match LinuxDevice::open(&self.handle, path, OpenOptions::default()) {
                Ok(device) => devices.push(self.members.give(device, pool)),
                Err(error) => refused.push(error),
            }
        }
        let mut found = discover(&self.seams, &devices).await;
        found.pools.retain(|id, _| *id == pool);
        (found, refused)
    }

    /// Devices that belong to no open pool, and what they are good for.
    pub(crate) async fn devices(&self) -> Answer<dolmen_api::Devices> {
        let places: Vec<PathBuf> =
            self.places(&[]).into_iter().filter(|path| self.pool_with(path).is_none()).collect();
        let alternates = by_medium(&places);
        let mut devices = join_all(alternates.iter().map(|paths| self.describe_first(paths))).await;
        let mut devices: Vec<Device> = devices.drain(..).flatten().collect();
        devices.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(dolmen_api::Devices { schema: dolmen_api::SCHEMA, devices })
    }

    /// Describes a medium by the first of its paths that can be read, or else by the first.
    async fn describe_first(&self, paths: &[&Path]) -> Option<Device> {
        let mut first = None;
        for path in paths {
            let device = self.describe(path).await;
            if device.state != DeviceState::Unfit {
                return Some(device);
            }
            first.get_or_insert(device);
        }
        first
    }

    /// Describes a device: what it is good for, what it holds, and what tells it from another one at its path.
    pub(crate) async fn describe(&self, path: &Path) -> Device {
        let device = self.describe_contents(path).await;
        Device { identity: identity_of(&device), ..device }
    }

    async fn describe_contents(&self, path: &Path) -> Device {
        let shown = path.display().to_string();
        let device = |state, size_bytes, what: String, of: Option<(String, usize)>| {
            let (pool, count) = of.unzip();
            let pool_disk_count = count.map(|count| count as u64);
            Device {
                path: shown,
                size_bytes,
                state,
                what,
                pool,
                pool_disk_count,
                has_left: false,
                identity: None,
            }
        };
        if let Ok(Some(by)) = in_use(path) {
            return device(DeviceState::InUse, None, by.to_string(), None);
        }
        let options = OpenOptions { read_only: true, exclusive: false, ..OpenOptions::default() };
        let opened = match LinuxDevice::open(&self.handle, path, options) {
            Ok(opened) => opened,
            Err(error) => return device(DeviceState::Unfit, None, error.to_string(), None),
        };
        let size = opened.geometry().capacity;
        if let Err(error) = dolmen_disk::Extent::of(size) {
            return device(DeviceState::Unfit, Some(size.0), error.to_string(), None);
        }
        match look(&self.seams, opened.as_ref()).await {
            Ok(Contents::Empty) => device(DeviceState::Empty, Some(size.0), "nothing".to_owned(), None),
            Ok(Contents::Foreign(what)) => device(DeviceState::Foreign, Some(size.0), what.to_string(), None),
            Ok(Contents::Member { label, .. }) => {
                let has_left = self.has_left(&label);
                let what = match has_left {
                    true => format!("was a disk of pool {}, and has left it", label.pool_name),
                    false => format!("a disk of pool {}", label.pool_name),
                };
                let of = (label.pool_name.to_string(), label.base.members.len());
                Device { has_left, ..device(DeviceState::Member, Some(size.0), what, Some(of)) }
            }
            Ok(Contents::Unusable(error)) => {
                device(DeviceState::Unusable, Some(size.0), error.to_string(), None)
            }
            Err(error) => device(DeviceState::Unfit, Some(size.0), error.to_string(), None),
        }
    }

    /// Checks devices that are to become disks of a pool. One that is, or was, a disk of the very pool is called that: it is not
    /// the pool that would be destroyed.
    pub(crate) async fn check_for(
        &self,
        pool: &OpenPool,
        devices: &[Rc<dyn BlockDevice>],
        overwrite: &[String],
    ) -> Answer<Vec<Extent>> {
        let error = match check_devices(&self.seams, devices, overwrite).await {
            Ok(extents) => return Ok(extents),
            Err(error) => error,
        };
        let fault = fault::create(&error);
        let device = devices.iter().find(|device| Some(device.name()) == fault.object);
        let is_of_this = matches!(&error, CreateError::Member { pool: id, .. } if *id == pool.id());
        let Some(device) = device.filter(|_| is_of_this) else { return Err(fault) };
        let Ok(Contents::Member { label, .. }) = look(&self.seams, device.as_ref()).await else {
            return Err(fault);
        };
        let (name, inner) = (pool.name(), pool.spaces.pool());
        let known = inner.disks().into_iter().find(|disk| disk.id() == label.disk);
        let device = device.name();
        let message = if let Some(known) = known {
            let slot = known.slot().0;
            format!(
                "{device} is disk {slot} of pool {name} itself, which misses it; nothing was written. `dolmen disk online {name} \
                 {slot}` takes it back in, with what it holds"
            )
        } else if inner.members().is_former_member(&label) {
            format!(
                "{device} was a disk of pool {name} and has left it; the pool goes on without it, and what it holds is \
                 out of date; nothing was written. To take it in as a new one, confirm with --destroy={device}"
            )
        } else {
            return Err(fault);
        };
        Err(ErrorBody::new(fault.code, message).on(device))
    }

    /// Strikes a disk that holds nothing any more, and gives its device free; what went wrong behind that, in words, or `None` when
    /// the disk is to stay after all.
    pub(crate) async fn evict(
        &self,
        owner: &OpenPool,
        disk: &Rc<Disk>,
        is_wanted: impl Fn() -> bool,
    ) -> Answer<Option<String>> {
        let pool = owner.spaces.pool();
        // The one that it has now: it may have been away since whoever moved everything off it began.
        let device = disk.device();
        match pool.membership().evict(disk).await {
            Err(PoolError::NotReplaced { .. }) if !is_wanted() => return Ok(None),
            evicted => evicted.map_err(|error| fault::pool(&error))?,
        }
        let mut notes = String::new();
        if let Err(error) = pool.voter_tender().tend().await {
            notes.push_str(&format!("; the metadata has too few copies: {error}"));
        }
        if let Some(device) = device {
            // What is left of it must not be taken for a member by the next who looks.
            let wiped = dolmen_disk::wipe(&self.seams, device.as_ref(), Epoch(u64::MAX)).await;
            if let Err(error) = wiped {
                notes.push_str(&format!("; its labels could not be wiped: {error}"));
            }
            self.members.release(&device);
        }
        Ok(Some(notes))
    }

    /// Refuses to destroy what is at a path by now, where that is not what was listed.
    async fn check_seen(&self, destroy: &[String], seen: &[String]) -> Answer<()> {
        if seen.len() > destroy.len() {
            let message = format!(
                "{} identities were given for {} disks to destroy; nothing was changed",
                seen.len(),
                destroy.len()
            );
            return Err(ErrorBody::new(ErrorCode::BadRequest, message));
        }
        for (path, seen) in destroy.iter().zip(seen).filter(|(_, seen)| !seen.is_empty()) {
            let found = self.describe(&self.canonical(path)?).await;
            if found.identity.as_ref() != Some(seen) {
                let message = format!(
                    "{path} is another device than was listed, or holds something else by now: {}; nothing was changed",
                    found.what
                );
                let hint = "list the devices again, and confirm what may be destroyed again";
                return Err(ErrorBody::new(ErrorCode::ForeignData, message).on(path.as_str()).hint(hint));
            }
        }
        Ok(())
    }

    /// Returns the disks that a change names. Those whose content may be destroyed have to be as they were `seen`.
    pub(crate) async fn named_disks(
        &self,
        disks: &[String],
        destroy: &[String],
        seen: &[String],
    ) -> Answer<NamedDisks> {
        self.check_seen(destroy, seen).await?;
        if let Some(stranger) = destroy.iter().find(|name| !disks.contains(name)) {
            let message =
                format!("{stranger} may be destroyed, but is not among the disks named; nothing was changed");
            return Err(ErrorBody::new(ErrorCode::BadRequest, message).on(stranger.as_str()));
        }
        let paths = disks.iter().map(|path| self.canonical(path)).collect::<Answer<Vec<_>>>()?;
        let overwrite = destroy.iter().map(|path| self.canonical(path)).collect::<Answer<Vec<_>>>()?;
        Ok(NamedDisks { paths, overwrite: overwrite.iter().map(|path| path.display().to_string()).collect() })
    }
}

/// Returns the text that another device at the path, or other content, does not have.
fn identity_of(device: &Device) -> Option<String> {
    let connection = Connection::at(Path::new(&device.path))?;
    let mut hasher = DefaultHasher::new();
    (connection, device.size_bytes, discriminant(&device.state), &device.what).hash(&mut hasher);
    Some(format!("{:016x}", hasher.finish()))
}

impl Devices {
    /// Whether a label is that of a disk that has left a pool that is open here.
    fn has_left(&self, label: &Label) -> bool {
        let pools = self.pools.open.borrow();
        pools.values().any(|pool| pool.spaces.pool().members().is_former_member(label))
    }

    /// Runs something with the kernel's tables, and with the devices that this daemon shows.
    pub(crate) fn with_stacks<T>(&self, run: impl FnOnce(&DeviceStacks<'_>) -> T) -> io::Result<T> {
        let own = self.transports.all();
        let is_own = |device: &Path| own.iter().any(|one| one.device() == device);
        let is_space = |device: &Path| is_own(device) || dolmen_ublk::is_attached_space(device);
        Ok(run(&DeviceStacks::read(&is_space)?))
    }

    /// Refuses what is an attached space, or lies on one. Nothing at the path is touched.
    pub(crate) fn check_below(&self, path: &Path) -> Answer<()> {
        match self.with_stacks(|stacks| space_in(stacks, path)) {
            Ok(None) => Ok(()),
            Ok(Some(found)) => Err(self.on_space(path, &found)),
            Err(error) => {
                let name = path.display().to_string();
                let message = format!(
                    "the table of mounts cannot be read, and with it what {name} lies on: {error}; nothing was touched"
                );
                Err(ErrorBody::new(ErrorCode::Io, message).on(name))
            }
        }
    }

    /// Returns why disks at these paths are not looked at, in words: those that lie on a space.
    pub(crate) fn on_spaces<'a>(&self, paths: impl IntoIterator<Item = &'a Path>) -> Vec<String> {
        let reported = self.with_stacks(|stacks| {
            let found = paths.into_iter().filter_map(|path| Some((path, space_in(stacks, path)?)));
            found.map(|(path, found)| self.on_space(path, &found).message).collect()
        });
        reported.unwrap_or_default()
    }

    fn on_space(&self, path: &Path, found: &OnSpace) -> ErrorBody {
        let name = path.display().to_string();
        let is_it = |device: &Path| std::fs::canonicalize(path).is_ok_and(|path| path == device);
        let message = match (&found.mounted_at, &found.device) {
            (None, Some(device)) if is_it(device) => {
                format!("{name} is an attached space, which cannot be a disk of a pool; nothing was written")
            }
            _ => format!(
                "{name} lies on {}, and a pool would wait for what only its daemon can serve: nothing that lies on a space \
                 can be a disk of a pool; nothing was written",
                self.space_in_words(found)
            ),
        };
        ErrorBody::new(ErrorCode::UnfitDevice, message)
            .on(name)
            .hint("name a disk, or a file on a file system that lies on no space; a file that has to stay is copied there first")
    }

    fn space_in_words(&self, found: &OnSpace) -> String {
        let own = self.transports.all().into_iter().find(|one| found.device.as_ref() == Some(one.device()));
        let name = own.map(|one| one.name()).or_else(|| found.name.clone());
        let space = match name.as_deref().map(|name| (name, name.split_once('/'))) {
            Some((name, Some((pool, _)))) => format!("space {name} of pool {pool}"),
            _ => "an attached space".to_owned(),
        };
        let device = found.device.as_ref().map(|device| device.display().to_string());
        match (&found.mounted_at, device) {
            (Some(at), Some(device)) => format!("{space} (mounted at {} from {device})", at.display()),
            (Some(at), None) => format!("{space} (in the folder of attached spaces at {})", at.display()),
            (None, Some(device)) => format!("{space} ({device})"),
            (None, None) => space,
        }
    }
}

/// One device under two names, both of which are told: they may be hard links or partitions by different paths, which nobody
/// sees to be one.
fn listed_twice(first: &Path, again: &Path) -> ErrorBody {
    let (first, name) = (first.display().to_string(), again.display().to_string());
    let message = match first == name {
        true => format!("{name} is listed twice; nothing was written"),
        false => format!("{name} is listed twice, the other time as {first}; nothing was written"),
    };
    ErrorBody::new(ErrorCode::UnfitDevice, message).on(name)
}

/// Whether two paths lead to one medium.
fn are_one(one: Option<&MediumExtent>, other: Option<&MediumExtent>) -> bool {
    matches!((one, other), (Some(one), Some(other)) if one.overlaps(other))
}

/// Two paths to one medium: copies on both would be one copy.
fn one_medium(first: &Path, again: &Path) -> ErrorBody {
    let (first, name) = (first.display().to_string(), again.display().to_string());
    let message = format!("{name} and {first} are one disk by two paths; nothing was written");
    ErrorBody::new(ErrorCode::UnfitDevice, message)
        .on(name)
        .hint("name each disk once, by either of its paths")
}

/// Whether the device is locked, by a process that lives or by commands of one that does not.
fn is_locked(error: &OpenError) -> bool {
    matches!(error, OpenError::Locked { .. })
}

/// Whether a process that lives holds the device.
fn is_held(error: &OpenError) -> bool {
    matches!(error, OpenError::Locked { by: Some(_), .. })
}

/// Whether the device may well be there, and only no further file may be open.
fn is_unopened(error: &OpenError) -> bool {
    matches!(error, OpenError::TooManyFiles { .. }) && !mutation!(UnopenedIsAbsent)
}

/// Returns why disks count as absent; `None` where locks may end soon and time is left to wait for them.
///
/// # Errors
/// Disks that no further open file is left for, or that another process still holds: neither are absent.
fn absent_members(
    pool: &str,
    refused: &[OpenError],
    count: usize,
    is_over: bool,
) -> Answer<Option<Vec<String>>> {
    if refused.iter().any(is_unopened) {
        return Err(too_many_files(pool, refused, count));
    }
    let is_waited_for = refused.iter().any(is_locked);
    if is_waited_for && !is_over {
        return Ok(None);
    }
    let held: Vec<String> = refused.iter().filter(|error| is_held(error)).map(ToString::to_string).collect();
    match held.is_empty() {
        true => Ok(Some(reasons(refused))),
        false => Err(held_elsewhere(pool, held)),
    }
}

/// Refuses to take disks for absent that this process may not open.
fn too_many_files(pool: &str, refused: &[OpenError], count: usize) -> ErrorBody {
    let unopened = refused.iter().filter(|error| is_unopened(error)).count();
    let message = format!(
        "pool {pool} is not opened: {unopened} of its {count} disks that are here cannot be opened, because too many files \
         are open; nothing was changed"
    );
    let mut error = ErrorBody::new(ErrorCode::Io, message).on(pool);
    error.causes = reasons(refused);
    error.hint(format!(
        "raise the limit and start the daemon again; a pool takes two open files for each disk, {} here",
        2 * count
    ))
}

/// Returns why devices were not opened, each reason once.
fn reasons(refused: &[OpenError]) -> Vec<String> {
    let mut paths: BTreeMap<String, Vec<&Path>> = BTreeMap::new();
    for error in refused {
        let text = in_one_line(error);
        let opening = format!("opening {}: ", error.path().display());
        let reason = text.strip_prefix(&opening).unwrap_or(&text).to_owned();
        paths.entry(reason).or_default().push(error.path());
    }
    let reported = |(reason, paths): (String, Vec<&Path>)| {
        let first = paths.first().map(|path| path.display().to_string()).unwrap_or_default();
        match paths.len() {
            0 | 1 => format!("opening {first}: {reason}"),
            2 => format!("opening {first} and another: {reason}"),
            count => format!("opening {first} and {} others: {reason}", count - 1),
        }
    };
    paths.into_iter().map(reported).collect()
}

fn held_elsewhere(pool: &str, held: Vec<String>) -> ErrorBody {
    let message = format!("pool {pool} is in other hands on this host; nothing was changed");
    let mut error = ErrorBody::new(ErrorCode::DeviceInUse, message).on(pool);
    error.causes = held;
    error.hint(format!("if that is another daemon, ask it: `dolmen pool export {pool}` with its --socket; or end that process"))
}

/// Allocates the parts of files that hold labels, log and metadata, so that a file system that fills up below stops no
/// more than the claims of data. Content is left as it is.
pub(crate) fn allocate_metadata(paths: &[PathBuf], extents: &[Extent]) -> Answer<()> {
    for (path, extent) in paths.iter().zip(extents) {
        let at = &*path_of(path);
        if fs::metadata(at).is_ok_and(|status| status.is_file()) {
            allocate(at, extent).map_err(|error| no_room_for_metadata(path, extent, error))?;
        }
    }
    Ok(())
}

fn allocate(path: &Path, extent: &Extent) -> std::io::Result<()> {
    let file = fs::OpenOptions::new().write(true).open(path)?;
    let tail = extent.capacity.0.saturating_sub(extent.data_end);
    for (at, length) in
        [(0, extent.data_start), (extent.data_end, tail)].into_iter().filter(|(_, length)| *length > 0)
    {
        match rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), at, length) {
            // A file system that cannot allocate ahead is used as it is.
            Ok(()) | Err(rustix::io::Errno::OPNOTSUPP) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn no_room_for_metadata(path: &Path, extent: &Extent, error: std::io::Error) -> ErrorBody {
    let name = path.display().to_string();
    let wanted = Bytes(extent.data_start + extent.capacity.0.saturating_sub(extent.data_end));
    let message =
        format!("{wanted} for the metadata of {name} could not be allocated ({error}); nothing was written");
    ErrorBody::new(ErrorCode::NoSpace, message)
        .on(name)
        .hint("make room on the file system below, or use another disk")
}

/// Returns the places that were found; none where it is not known what they lie on.
fn known(found: std::io::Result<Vec<PathBuf>>) -> Vec<PathBuf> {
    found.unwrap_or_else(|error| {
        tracing::error!(%error, "the table of mounts cannot be read: no disks are looked for");
        Vec::new()
    })
}

/// Paths of disks, and those of them that may be overwritten, as the engine calls them.
pub(crate) struct NamedDisks {
    pub(crate) paths: Vec<PathBuf>,
    pub(crate) overwrite: Vec<String>,
}

impl NamedDisks {
    pub(crate) fn steps(&self, verb: &str) -> Vec<String> {
        let step = |path: &PathBuf| {
            let name = path.display().to_string();
            let loss = if self.overwrite.contains(&name) { ", destroying what it holds" } else { "" };
            format!("{verb} {name}{loss}")
        };
        self.paths.iter().map(step).collect()
    }
}

#[cfg(test)]
mod tests {
    use dolmen_block_linux::FileLimit;

    use super::*;

    /// Scenario: three disks that no further open file is left for, and one that is not there. Each reason is told once, with what
    /// the system said.
    #[test]
    fn many_refusals_for_one_reason_are_reported_once() {
        let path = |name: &str| PathBuf::from(name);
        let limit = FileLimit::Process(Some(64));
        let mut refused: Vec<_> =
            ["/a", "/b", "/c"].map(|name| OpenError::TooManyFiles { path: path(name), limit }).into();
        refused.push(OpenError::System {
            path: path("/d"),
            source: std::io::Error::from_raw_os_error(libc::EIO),
        });
        let reported = reasons(&refused);
        assert_eq!(reported.len(), 2, "{reported:?}");
        assert!(
            reported
                .iter()
                .any(|text| text.starts_with("opening /a and 2 others: ") && text.contains("64 files"))
        );
        assert!(
            reported
                .iter()
                .any(|text| text.starts_with("opening /d: ") && text.contains("Input/output error"))
        );
        let error = too_many_files("tank", &refused, 4).to_string();
        assert!(error.contains("3 of its 4 disks") && error.matches("/a").count() <= 1, "{error}");
    }

    /// Scenario: of the disks of a pool one does not answer, and one may not be opened, whether or not time is left. The pool is not
    /// opened without the second, and is opened without the first alone.
    #[test]
    fn a_disk_that_no_file_is_left_for_keeps_its_pool_closed() {
        let broken = || OpenError::System {
            path: PathBuf::from("/broken"),
            source: std::io::Error::from_raw_os_error(libc::EIO),
        };
        let unopened =
            OpenError::TooManyFiles { path: PathBuf::from("/unopened"), limit: FileLimit::Process(Some(64)) };
        let refused = [broken(), unopened];
        for is_over in [false, true] {
            let error = absent_members("tank", &refused, 3, is_over)
                .expect_err("a disk that may not be opened counts as absent")
                .to_string();
            assert!(error.contains("1 of its 3 disks"), "{error}");
            let absent = absent_members("tank", &[broken()], 3, is_over).unwrap();
            assert_eq!(absent.map(|absent| absent.len()), Some(1));
        }
    }
}
