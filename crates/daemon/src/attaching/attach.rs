//! Spaces attached as block devices: what people ask for.
//!
//! There are two ways that survive the daemon. A loop device over a file of FUSE works wherever there is FUSE; a ublk device
//! is faster, and is taken where the kernel has what it needs. A third one is never taken unless it is asked for by name: a
//! loop device over FUSE by io_uring, which ends with the daemon. Which one a space has is told with it.

use std::path::PathBuf;
use std::rc::Rc;

use dolmen_api::{AttachSpace, AttachedBy, Attachments, Change, ErrorBody, ErrorCode, SCHEMA, Transport};
use dolmen_attach::{Access, Holder, SpaceKey, Wanted};
use dolmen_block_linux::DriverChoice;
use dolmen_fuse::{AttachError, DetachError};
use dolmen_pool::PoolState;
use dolmen_space::{Segment, Space};
use dolmen_ublk::{Devices, RecordFile};

use crate::answer::Answer;
use crate::attach::{Makers, Refused, Shown, Transports, body, loop_fault, rings_fault};
use crate::attaching::transports::KernelTransports;
use crate::base::Base;
use crate::config::Config;
use crate::exports::NbdServer;
use crate::fault;
use crate::fault::two_sides;
use crate::open_pool::{OpenPool, key_of};
use crate::open_pools::OpenPools;
use crate::plan::{Undo, made, planned};
use crate::state::VolumeUses;
use crate::views::Views;

/// What is looked at for a table of partitions: both kinds begin within the first two blocks.
const TABLE_BYTES: usize = 8192;

/// Spaces attached to this host, and detached.
pub(crate) struct SpaceAttachments {
    pub(super) pools: Rc<OpenPools>,
    views: Rc<Views>,
    kernel: Rc<KernelTransports>,
    config: Rc<Config>,
    nbd: Rc<NbdServer>,
    pub(super) transports: Rc<Transports>,
    pub(super) volume_uses: Rc<VolumeUses>,
}

impl SpaceAttachments {
    pub(crate) fn new(base: &Base, kernel: &Rc<KernelTransports>) -> Self {
        Self {
            pools: Rc::clone(&base.pools),
            views: Rc::clone(&base.views),
            kernel: Rc::clone(kernel),
            config: Rc::clone(&base.config),
            nbd: Rc::clone(&base.nbd),
            transports: Rc::clone(&base.transports),
            volume_uses: Rc::clone(&base.volume_uses),
        }
    }
}

impl SpaceAttachments {
    /// Refuses what an attached space would not survive.
    pub(crate) fn check_not_attached(&self, pool: &OpenPool, space: &Space, doing: &str) -> Answer<()> {
        let Some(attached) = self.transports.find(key_of(pool, space)) else { return Ok(()) };
        let name = format!("{}/{}", pool.name(), space.name());
        let message = format!(
            "space {name} cannot be {doing} while it is attached at {}; nothing was changed",
            attached.link().display()
        );
        Err(ErrorBody::new(ErrorCode::Busy, message).on(name.as_str()).hint(self.to_detach(pool, &attached)))
    }

    /// A pool's spaces that are attached except some, in words, with those who use them.
    pub(crate) async fn attached_of(&self, pool: &OpenPool, except: &[SpaceKey]) -> Answer<Vec<String>> {
        let id = pool.id();
        let found = self.transports.with_holders().await?;
        Ok(found
            .iter()
            .filter(|(one, _)| one.space().pool == id && !except.contains(&one.space()))
            .map(|(one, by)| attached_text(one, by))
            .collect())
    }

    pub(crate) async fn attach_space(
        &self,
        pool: String,
        space: String,
        request: AttachSpace,
    ) -> Answer<Change> {
        let pool = self.pools.pool_to_change(&pool)?;
        let _exclusive = self.pools.lock_for_change(&pool).await?;
        let space = pool.space(&space)?;
        let spec = space.spec();
        let name = format!("{}/{}", pool.name(), spec.name);
        let link = self.config.links.join(pool.name()).join(spec.name.as_str());
        let undo = Undo::By(format!("dolmen space detach {name}"));
        let writable = pool.spaces.pool().state() == PoolState::Writable;
        let how = if writable { "" } else { ", for reading only, as its pool is open" };
        let plan = pool.plan(undo, vec![format!("show {name} as {}{how}", link.display())]);
        if self.nbd.find(pool.id(), space.id()).is_some_and(|served| served.is_writable()) {
            return Err(two_sides(&name, "served for writing").hint(format!(
                "dolmen unserve {name}; what is served with --read-only can be attached too"
            )));
        }
        if matches!(pool.spaces.pool().state(), PoolState::Latched(_)) {
            pool.spaces
                .pool()
                .log()
                .check_writable()
                .map_err(|error| fault::pool(&error).on(name.as_str()))?;
        }
        let key = key_of(&pool, &space);
        let before = self.transports.find(key);
        if request.transport == Transport::LoopUring && before.is_none() {
            self.check_rings().await.map_err(|error| error.on(name.as_str()))?;
        }
        if request.dry_run {
            return Ok(planned(plan, format!("{name} would be attached as {}{how}", link.display())));
        }
        let wanted = Wanted {
            space: key,
            pool_name: pool.spaces.pool().name().clone(),
            space_name: spec.name.clone(),
            access: if writable { Access::ReadWrite } else { Access::ReadOnly },
            sector_bytes: u32::try_from(spec.sector.0).unwrap_or(4096),
        };
        if let Some(other) = self.transports.named(&link, key) {
            let error = AttachError::NameTaken { name: name.clone(), other: other.space(), link };
            return Err(attach_fault(&error).on(name.as_str()));
        }
        let transport = transport_of_space(before.as_ref(), request.transport, &name)?;
        let (attached, passed_over) =
            self.attach_by(transport, &wanted, &space).await.map_err(|error| error.on(name.as_str()))?;
        let text = format!(
            "{name} is attached as {}, by {}, with sectors of {} bytes{how}",
            attached.link().display(),
            by_words(attached.by()),
            spec.sector.0
        );
        let mut change = if before.is_some() { planned(plan, text) } else { made(plan, text) };
        let mut view = attached.view(&[]);
        view.not_faster_because = passed_over;
        change.attachment = Some(view);
        change.space = Some(self.views.view_space(&pool, &space).await?);
        Ok(change)
    }

    /// Attaches a space in a way, or the fastest that works; and why that is not the fastest of all.
    async fn attach_by(
        &self,
        transport: Transport,
        wanted: &Wanted,
        space: &Space,
    ) -> Answer<(Shown, Option<String>)> {
        let passed_over = match transport {
            Transport::Loop => None,
            Transport::LoopUring => return self.attach_over_rings(wanted).await.map(|shown| (shown, None)),
            Transport::Ublk => {
                return match self.attach_by_ublk(wanted).await? {
                    Ok(shown) => Ok((shown, None)),
                    Err(error) => Err(error),
                };
            }
            Transport::Auto => match self.passes_over_ublk(space).await? {
                Some(why) => Some(why),
                None => match self.attach_by_ublk(wanted).await? {
                    Ok(shown) => return Ok((shown, None)),
                    // What is left of it would be a second device on the same space.
                    Err(error) if self.transports.find(wanted.space).is_some() => return Err(error),
                    Err(error) => Some(error.message),
                },
            },
        };
        self.refuse_second_to_ublk(wanted)?;
        let mut attached = self.attach_by_loop(wanted).await?;
        if matches!(attached, Err(AttachError::Ended { .. } | AttachError::PutBack { .. }))
            && self.transports.has_ended()
        {
            // The folder was unmounted a moment ago, with nothing attached: a new one is begun.
            attached = self.attach_by_loop(wanted).await?;
        }
        attached.map(|one| (Shown::Loop(one), passed_over)).map_err(|error| attach_fault(&error))
    }

    async fn attach_by_loop(&self, wanted: &Wanted) -> Answer<Result<dolmen_fuse::Attached, AttachError>> {
        let files = self.kernel.fuse_files().await?;
        self.kernel.report_sizes();
        let wanted = wanted.clone();
        self.transports.with(move |_| files.attach(&wanted)).await
    }

    /// One that could not be taken up, or not yet, has requests that wait, and perhaps a file system that is mounted.
    fn refuse_second_to_ublk(&self, wanted: &Wanted) -> Answer<()> {
        let record = RecordFile::new(self.config.ublk_record());
        let is_on_record = Devices::is_on_record(&record, wanted.space);
        if !is_on_record.map_err(|error| body(ErrorCode::Io, &error))? {
            return Ok(());
        }
        let name = format!("{}/{}", wanted.pool_name, wanted.space_name);
        let message = format!(
            "{name} has a ublk device that is not taken up; another one beside it would be a second writer"
        );
        Err(ErrorBody::new(ErrorCode::Busy, message)
            .hint("the daemon's log says why it is not; try again when that is mended, or take the device away with `dolmen space clear`"))
    }

    /// Refuses what this host does not have, before anything is made.
    async fn check_rings(&self) -> Answer<()> {
        let usable = self.transports.with(|_| dolmen_fuse::rings_usable()).await?;
        usable.map_err(|error| rings_fault(&error))
    }

    /// Attaches a space in the way that ends with the daemon.
    async fn attach_over_rings(&self, wanted: &Wanted) -> Answer<Shown> {
        self.refuse_second_to_ublk(wanted)?;
        // What the daemon before left on the other connection is taken up first, if that has not succeeded yet.
        if self.config.attached_record().exists() {
            self.kernel.fuse_files().await?;
        }
        if let Some(other) = self.transports.find(wanted.space).filter(|other| other.survives_daemon()) {
            let message = format!("{} is attached already, by {}", other.name(), by_words(other.by()));
            return Err(ErrorBody::new(ErrorCode::Busy, message));
        }
        let files = self.kernel.ring_files().await?;
        self.kernel.report_sizes();
        let wanted = wanted.clone();
        let attached = self.transports.with(move |_| files.attach(&wanted)).await?;
        attached.map(Shown::Loop).map_err(|error| attach_fault(&error))
    }

    /// The inner result is what came of it; the outer one, whether it could be tried.
    async fn attach_by_ublk(&self, wanted: &Wanted) -> Answer<Answer<Shown>> {
        let devices = match self.kernel.ublk_devices().await {
            Ok(devices) => devices,
            Err(error) => return Ok(Err(error)),
        };
        self.kernel.report_sizes();
        let (key, wanted) = (wanted.space, wanted.clone());
        let attached = self.transports.with(move |_| devices.attach(&wanted)).await?;
        Ok(match attached {
            Ok(_) => self.transports.find(key).ok_or_else(|| {
                ErrorBody::new(ErrorCode::Internal, "the space that was attached is not attached")
            }),
            Err(error) => Err(ublk_attach_fault(&error)),
        })
    }

    /// Why ublk is not even tried for a space, though nobody forbids it.
    async fn passes_over_ublk(&self, space: &Space) -> Answer<Option<String>> {
        if dolmen_block_linux::driver_asked_for(self.config.runtime.driver) == DriverChoice::Threads {
            return Ok(Some("ublk needs io_uring, and threads were asked for instead".to_owned()));
        }
        let Ok(devices) = self.kernel.ublk_devices().await else { return Ok(None) };
        if !devices.shows_partitions() && has_partitions(space).await {
            return Ok(Some(
                "it has a table of partitions, which this kernel does not show on ublk devices".to_owned(),
            ));
        }
        Ok(None)
    }

    pub(crate) async fn attachments(&self) -> Answer<Attachments> {
        let found = self.transports.with_holders().await?;
        let mut attachments: Vec<_> = found.iter().map(|(one, by)| one.view(by)).collect();
        attachments.sort_by(|a, b| (&a.pool, &a.space).cmp(&(&b.pool, &b.space)));
        Ok(Attachments { schema: SCHEMA, attachments })
    }

    /// Where a space is attached, if it is.
    pub(crate) fn attached_link(&self, pool: &OpenPool, space: &Space) -> Option<PathBuf> {
        self.transports.find(key_of(pool, space)).map(|attached| attached.link().clone())
    }

    /// Shows the new size of a space on its ways in; what did not work, in words.
    pub(crate) async fn transports_resized(&self, pool: &OpenPool, space: &Space) -> Option<String> {
        self.kernel.report_sizes();
        let key = key_of(pool, space);
        let shown = self.transports.find(key)?;
        match self.transports.with(move |makers| makers.resize(&shown)).await {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(format!("the attached device keeps its old size: {error}")),
            Err(error) => Some(format!("the attached device keeps its old size: {error}")),
        }
    }

    /// Refuses to end while attached spaces, except some, are in use that would not live on, and says by whom.
    pub(crate) async fn check_nothing_used(&self, leave: Leave, except: &[SpaceKey]) -> Answer<()> {
        let found = self.transports.with_holders().await?;
        let ends = |one: &Shown| {
            !except.contains(&one.space()) && (leave == Leave::Nothing || !one.survives_daemon())
        };
        let used: Vec<&(Shown, Vec<Holder>)> =
            found.iter().filter(|(one, by)| !by.is_empty() && ends(one)).collect();
        if used.is_empty() {
            return Ok(());
        }
        let reported: Vec<String> = used
            .iter()
            .map(|(one, by)| format!("{} is {}", one.link().display(), holders_text(by)))
            .collect();
        let message =
            format!("the daemon does not end while attached spaces are in use: {}", reported.join("; "));
        let hint = if used.iter().all(|(one, _)| one.survives_daemon()) {
            "unmount them; or hand them over to the next daemon (--hand-over): their I/O waits until it runs"
        } else {
            "unmount them; what is attached by io_uring (--transport loop-uring) cannot be handed over to the next daemon"
        };
        Err(ErrorBody::new(ErrorCode::Busy, message).hint(hint))
    }

    /// Leaves attached spaces to the next daemon, or takes them away; what stayed, in words. Afterwards no request of the
    /// kernel's is under way: those not begun wait for the next daemon.
    pub(crate) async fn let_go_of_attachments(&self, leave: Leave) -> Vec<String> {
        if self.transports.makers.borrow().is_empty() {
            return Vec::new();
        }
        let ended = self.transports.with(move |makers| {
            let left = match leave {
                Leave::ForTheNext => makers.take_away_mortal(),
                Leave::Nothing => makers.take_away(),
            };
            makers.let_go();
            left
        });
        let mut left = ended.await.unwrap_or_else(|error| vec![error.to_string()]);
        self.transports.notify.wait_for(|| (self.transports.under_way.get() == 0).then_some(())).await;
        // What was answered last goes to the kernel before this daemon ends.
        let finished =
            self.transports.with(|makers| makers.devices.iter().for_each(|devices| devices.finish()));
        left.extend(finished.await.err().map(|error| error.to_string()));
        *self.transports.makers.borrow_mut() = Makers::default();
        left
    }
}

/// What the end of the daemon means for attached spaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Leave {
    /// They are detached.
    Nothing,
    /// They stay, and their I/O waits for the next daemon; those that cannot are detached.
    ForTheNext,
}

fn holders_text(by: &[Holder]) -> String {
    by.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn attached_text(shown: &Shown, by: &[Holder]) -> String {
    let link = shown.link().display();
    if by.is_empty() {
        format!("space {link} is attached")
    } else {
        format!("space {link} is attached, {}", holders_text(by))
    }
}

fn attach_fault(error: &AttachError) -> ErrorBody {
    match error {
        AttachError::NoSpace { .. } => body(ErrorCode::NoSuchSpace, error),
        AttachError::Shape { .. } => body(ErrorCode::BadSize, error),
        AttachError::Attached { .. } => body(ErrorCode::Busy, error),
        AttachError::NameTaken { .. } => body(ErrorCode::NameTaken, error),
        AttachError::Ended { .. }
        | AttachError::PutBack { .. }
        | AttachError::Open { .. }
        | AttachError::Link { .. }
        | AttachError::Ledger(_) => body(ErrorCode::Io, error),
        AttachError::Loop(inner) => loop_fault(inner),
    }
}

pub(crate) fn refusal(error: &Refused) -> ErrorBody {
    match error {
        Refused::Loop(error) => detach_fault(error),
        Refused::Ublk(error) => {
            use dolmen_ublk::DetachError;
            let code = match error {
                DetachError::NotAttached { .. } => ErrorCode::BadRequest,
                DetachError::Busy { .. } => ErrorCode::Busy,
                DetachError::CannotResize { .. } => ErrorCode::Missing,
                DetachError::Device(_) | DetachError::Record(_) => ErrorCode::Io,
            };
            body(code, error)
        }
    }
}

fn ublk_attach_fault(error: &dolmen_ublk::AttachError) -> ErrorBody {
    use dolmen_ublk::AttachError;
    let code = match error {
        AttachError::NoSpace { .. } => ErrorCode::NoSuchSpace,
        AttachError::Shape { .. } => ErrorCode::BadSize,
        AttachError::Attached { .. } | AttachError::Contended { .. } | AttachError::TooMany { .. } => {
            ErrorCode::Busy
        }
        AttachError::NameTaken { .. } => ErrorCode::NameTaken,
        AttachError::Remains { .. }
        | AttachError::Link { .. }
        | AttachError::Device(_)
        | AttachError::Record(_) => ErrorCode::Io,
    };
    body(code, error)
}

/// The way in which a space is to be attached; one that is attached is not moved to another.
fn transport_of_space(before: Option<&Shown>, asked: Transport, name: &str) -> Answer<Transport> {
    let Some(before) = before else { return Ok(asked) };
    let now = match before.by() {
        AttachedBy::Loop => Transport::Loop,
        AttachedBy::Ublk => Transport::Ublk,
        AttachedBy::LoopUring => Transport::LoopUring,
    };
    if asked == now || asked == Transport::Auto {
        return Ok(now);
    }
    let message = format!("{name} is attached already, by {}; nothing was changed", by_words(before.by()));
    Err(ErrorBody::new(ErrorCode::Busy, message).on(name).hint(format!("dolmen space detach {name}")))
}

fn by_words(by: AttachedBy) -> &'static str {
    match by {
        AttachedBy::Loop => "a loop device over FUSE",
        AttachedBy::LoopUring => "a loop device over FUSE by io_uring",
        AttachedBy::Ublk => "ublk",
    }
}

/// Whether a space begins with a table of partitions. One that cannot be read has none that could be shown.
async fn has_partitions(space: &Space) -> bool {
    let length = usize::try_from(space.size().0).unwrap_or(usize::MAX).min(TABLE_BYTES);
    let Ok(segments) = space.read(0, length).await else { return false };
    let mut begin = Vec::with_capacity(length);
    for segment in &segments {
        match segment {
            Segment::Data(bytes) => begin.extend_from_slice(bytes),
            Segment::Zeros(length) => begin.resize(begin.len() + length, 0),
        }
    }
    is_table(&begin)
}

/// A GPT, behind a sector of either length; or an MBR whose four entries are plausible and not all empty.
fn is_table(begin: &[u8]) -> bool {
    let is_gpt =
        [512, 4096].iter().any(|at| begin.get(*at..).is_some_and(|rest| rest.starts_with(b"EFI PART")));
    let is_signed = begin.get(510..512) == Some(&[0x55, 0xaa]);
    let entries: Vec<&[u8]> = begin.get(446..510).unwrap_or_default().chunks(16).collect();
    let plausible = |entry: &&[u8]| matches!(entry.first(), Some(0 | 0x80));
    let names_one = |entry: &&[u8]| entry.get(4).is_some_and(|kind| *kind != 0);
    is_gpt || is_signed && entries.iter().all(plausible) && entries.iter().any(names_one)
}

pub(crate) fn detach_fault(error: &DetachError) -> ErrorBody {
    match error {
        DetachError::NotAttached { .. } => body(ErrorCode::BadRequest, error),
        DetachError::Busy { .. } => body(ErrorCode::Busy, error),
        DetachError::Unwritten { .. } => body(ErrorCode::Io, error),
        DetachError::Loop(inner) => loop_fault(inner),
        DetachError::Ledger(_) => body(ErrorCode::Io, error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_of_partitions_are_known_and_file_systems_are_none() {
        // Scenario: GPT on both sectors, an MBR with one entry; nothing, a signed MBR without entries, the boot sector of a
        // FAT, whose code stands where the entries would.
        let mut gpt = vec![0; TABLE_BYTES];
        gpt[512..520].copy_from_slice(b"EFI PART");
        let mut gpt_4k = vec![0; TABLE_BYTES];
        gpt_4k[4096..4104].copy_from_slice(b"EFI PART");
        let mut signed = vec![0; TABLE_BYTES];
        signed[510..512].copy_from_slice(&[0x55, 0xaa]);
        let mut mbr = signed.clone();
        mbr[446 + 4] = 0x83;
        let mut fat = signed.clone();
        fat[446..510].fill(0xf4);
        assert!(is_table(&gpt) && is_table(&gpt_4k) && is_table(&mbr));
        for none in [&[][..], &[0; 300], &[0; TABLE_BYTES], &signed, &fat] {
            assert!(!is_table(none));
        }
    }
}
