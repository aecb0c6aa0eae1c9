//! Spaces attached as block devices: what the engine gives to FUSE, and what people ask for.
//!
//! FUSE's reading threads post their requests to the engine's mailbox; the engine answers them from its own thread. What
//! makes and unmakes devices asks the kernel, which may ask the engine: it runs on a thread of its own, the *usher*, and
//! the engine awaits it. The engine never calls [`Files`] itself, and knows what is attached from its own list.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};

use dolmen_api::{Attachment, Attachments, Change, ErrorBody, ErrorCode, SCHEMA, Simple};
use dolmen_block_io::Durability;
use dolmen_block_io::sync::Notify;
use dolmen_block_linux::{Inbox, Mailbox};
use dolmen_fuse::{
    Access, AttachError, Attached, DetachError, Fault, Files, FilesConfig, FlushRequest, Holder, Host,
    LedgerFile, LoopError, MountError, RangeRequest, ReadRequest, SpaceKey, StartError, Wanted, WriteRequest,
};
use dolmen_pool::{PoolError, PoolState};
use dolmen_space::{Segment, Space, SpaceError, Spaces};
use dolmen_units::Bytes;

use crate::caller::Answer;
use crate::engine::{Engine, OpenPool};
use crate::plan::{Undo, made, planned};
use crate::scribe::Scribe;
use crate::spaces::two_sides;

/// Zeros that are written at a time where a range has to stay allocated.
const ZEROS_BYTES: usize = 64 * 1024;

/// A request of the kernel's.
#[derive(Debug)]
pub(crate) enum Asked {
    Read(ReadRequest),
    Write(WriteRequest),
    Flush(FlushRequest),
    Discard(RangeRequest),
    WriteZeroes(RangeRequest),
}

impl Asked {
    fn space(&self) -> SpaceKey {
        match self {
            Self::Read(request) => request.space(),
            Self::Write(request) => request.space(),
            Self::Flush(request) => request.space(),
            Self::Discard(request) | Self::WriteZeroes(request) => request.space(),
        }
    }

    fn fail(self, fault: Fault) {
        match self {
            Self::Read(request) => request.fail(fault),
            Self::Write(request) => request.fail(fault),
            Self::Flush(request) => request.fail(fault),
            Self::Discard(request) | Self::WriteZeroes(request) => request.fail(fault),
        }
    }
}

/// What FUSE's threads see of the engine.
pub(crate) struct EngineHost {
    mailbox: Mailbox<Asked>,
    sizes: Mutex<BTreeMap<SpaceKey, Bytes>>,
}

impl EngineHost {
    pub(crate) fn new(mailbox: Mailbox<Asked>) -> Arc<Self> {
        Arc::new(Self { mailbox, sizes: Mutex::default() })
    }

    fn post(&self, asked: Asked) {
        // There are fewer slots than places in the mailbox; when the engine is gone, dropping the request leaves it to
        // the next daemon.
        if let Err(error) = self.mailbox.post(asked) {
            tracing::warn!(%error, "a request of an attached space could not be given to the engine");
        }
    }
}

impl Host for EngineHost {
    fn size(&self, space: SpaceKey) -> Option<Bytes> {
        self.sizes.lock().unwrap_or_else(PoisonError::into_inner).get(&space).copied()
    }

    fn read(&self, request: ReadRequest) {
        self.post(Asked::Read(request));
    }

    fn write(&self, request: WriteRequest) {
        self.post(Asked::Write(request));
    }

    fn flush(&self, request: FlushRequest) {
        self.post(Asked::Flush(request));
    }

    fn discard(&self, request: RangeRequest) {
        self.post(Asked::Discard(request));
    }

    fn write_zeroes(&self, request: RangeRequest) {
        self.post(Asked::WriteZeroes(request));
    }
}

/// The attached spaces, as the engine knows them.
pub(crate) struct Ways {
    pub(crate) host: Arc<EngineHost>,
    usher: Scribe,
    files: RefCell<Option<Arc<Files>>>,
    attached: RefCell<Vec<Attached>>,
    /// Requests of the kernel's that the engine is at.
    under_way: Cell<u64>,
    /// Rung when there is none left.
    bell: Notify,
}

impl Ways {
    pub(crate) fn new(host: Arc<EngineHost>, usher: Scribe) -> Self {
        let (files, attached) = (RefCell::default(), RefCell::default());
        Self { host, usher, files, attached, under_way: Cell::new(0), bell: Notify::new() }
    }

    /// Has something done with the files, off the engine's thread, and looks at what is attached afterwards.
    async fn with<T: Send + 'static>(
        &self,
        files: &Arc<Files>,
        action: impl FnOnce(&Files) -> T + Send + 'static,
    ) -> Answer<T> {
        let files = Arc::clone(files);
        let done = self.usher.run(move || {
            let result = action(&files);
            Ok((result, files.attached()))
        });
        match done.await {
            Ok((result, attached)) => {
                *self.attached.borrow_mut() = attached;
                Ok(result)
            }
            Err(error) => Err(ErrorBody::new(
                ErrorCode::Busy,
                format!("attached spaces cannot be changed now: {error}"),
            )),
        }
    }

    fn find(&self, key: SpaceKey) -> Option<Attached> {
        self.attached.borrow().iter().find(|one| one.attachment.space == key).cloned()
    }
}

fn key_of(pool: &OpenPool, space: &Space) -> SpaceKey {
    SpaceKey { pool: pool.id(), space: space.id() }
}

fn fault_of(error: &SpaceError) -> Fault {
    tracing::warn!(%error, "a request of an attached space failed");
    match error {
        SpaceError::NoSpaceBelow { .. }
        | SpaceError::Pool(
            PoolError::NoSpace { .. }
            | PoolError::Fragmented { .. }
            | PoolError::MetadataFull { .. }
            | PoolError::LogOccupied { .. },
        ) => Fault::NoRoom,
        SpaceError::Pool(PoolError::ReadOnly { .. }) => Fault::ReadOnly,
        SpaceError::Range { .. } | SpaceError::Gone { .. } => Fault::Invalid,
        _ => Fault::Io,
    }
}

async fn read(space: &Space, request: ReadRequest, zeros: &[u8]) {
    let length = usize::try_from(request.len().0).unwrap_or(usize::MAX);
    match space.read(request.at().0, length).await {
        Ok(segments) => {
            let mut pieces: Vec<&[u8]> = Vec::with_capacity(segments.len());
            for segment in &segments {
                match segment {
                    Segment::Data(bytes) => pieces.push(bytes),
                    Segment::Zeros(length) => {
                        let mut left = *length;
                        while left > 0 {
                            let part = zeros.get(..left.min(zeros.len())).unwrap_or(zeros);
                            pieces.push(part);
                            left -= part.len();
                        }
                    }
                }
            }
            request.answer(&pieces);
        }
        Err(error) => request.fail(fault_of(&error)),
    }
}

async fn write(spaces: &Spaces, space: &Space, request: WriteRequest) {
    let payload = request.payload();
    // The one copy between the kernel's buffer and the engine's: what the engine writes must not change meanwhile.
    let mut buffer = spaces.pool().seams().data.take(payload.len()).await;
    buffer.copy_in(payload);
    match space.write(request.at().0, &buffer.freeze(), Durability::Cached).await {
        Ok(()) => request.answer(),
        Err(error) => request.fail(fault_of(&error)),
    }
}

async fn finish(request: RangeRequest, done: impl Future<Output = Result<(), SpaceError>>) {
    match done.await {
        Ok(()) => request.answer(),
        Err(error) => request.fail(fault_of(&error)),
    }
}

async fn carry_out(spaces: Rc<Spaces>, space: Rc<Space>, asked: Asked, zeros: Rc<[u8]>) {
    match asked {
        Asked::Read(request) => read(&space, request, &zeros).await,
        Asked::Write(request) => write(&spaces, &space, request).await,
        Asked::Flush(request) => match space.flush().await {
            Ok(()) => request.answer(),
            Err(error) => request.fail(fault_of(&error)),
        },
        // Also the parts of blocks at the ends have to read as zeros. File systems zero their journals where they could
        // discard, so a thin space takes room for zeros only when they are asked for by a way in that can say so.
        Asked::Discard(request) | Asked::WriteZeroes(request) => {
            let (at, length) = (request.at().0, request.len().0);
            finish(request, space.write_zeroes(at, length)).await;
        }
    }
}

impl Engine {
    /// Answers the kernel's requests until nobody is left who could make one.
    pub(crate) async fn serve_kernel(self: Rc<Self>, mut inbox: Inbox<Asked>) {
        let zeros: Rc<[u8]> = vec![0; ZEROS_BYTES].into();
        while let Some(asked) = inbox.receive().await {
            let key = asked.space();
            let pool = self.pools.borrow().get(&key.pool).cloned();
            let space = pool
                .as_ref()
                .and_then(|pool| pool.spaces.list().into_iter().find(|one| one.id() == key.space));
            match (pool, space) {
                (Some(pool), Some(space)) => {
                    let work = carry_out(Rc::clone(&pool.spaces), space, asked, Rc::clone(&zeros));
                    self.ways.under_way.set(self.ways.under_way.get() + 1);
                    let engine = Rc::clone(&self);
                    let counted = async move {
                        work.await;
                        engine.ways.under_way.set(engine.ways.under_way.get() - 1);
                        if engine.ways.under_way.get() == 0 {
                            engine.ways.bell.notify_all();
                        }
                    };
                    self.seams.spawner.spawn("attached", Box::pin(counted));
                }
                // After the end of a pool in good order its requests wait for the next daemon.
                _ if self.is_stopping.get() => drop(asked),
                _ => asked.fail(Fault::Invalid),
            }
        }
    }

    /// Tells FUSE's threads how long each space is.
    pub(crate) fn tell_sizes(&self) {
        let mut sizes = BTreeMap::new();
        for pool in self.pools.borrow().values() {
            sizes.extend(pool.spaces.list().iter().map(|space| (key_of(pool, space), space.size())));
        }
        *self.ways.host.sizes.lock().unwrap_or_else(PoisonError::into_inner) = sizes;
    }

    /// Takes up what the daemon before has left attached.
    pub(crate) async fn take_up_attached(&self) {
        if !self.config.attached_record().exists() {
            return;
        }
        if let Err(error) = self.ways_files().await {
            tracing::error!(%error, "attached spaces could not be taken up; their I/O waits");
        }
    }

    /// The files, made or taken up when they are first needed.
    async fn ways_files(&self) -> Answer<Arc<Files>> {
        if let Some(files) = self.ways.files.borrow().as_ref() {
            return Ok(Arc::clone(files));
        }
        self.tell_sizes();
        let mut config = FilesConfig::new(self.config.run.clone(), self.config.keeper.clone());
        config.links.clone_from(&self.config.links);
        let host: Arc<dyn Host> = Arc::<EngineHost>::clone(&self.ways.host);
        let ledger = Box::new(LedgerFile::new(self.config.attached_record()));
        let started = self.ways.usher.run(move || Ok(Files::start(config, host, ledger))).await;
        let started = started.map_err(|error| ErrorBody::new(ErrorCode::Io, error.to_string()))?;
        let (files, found) = started.map_err(|error| start_fault(&error))?;
        for lost in &found.lost {
            tracing::warn!(pool = %lost.pool_name, space = %lost.space_name, "was attached, and is not any more");
        }
        for stranded in &found.stranded {
            let by: Vec<String> = stranded.by.iter().map(ToString::to_string).collect();
            tracing::error!(device = %stranded.device.display(), by = by.join(", "), "every request on this device fails: unmount it and detach it");
        }
        for resumed in &found.resumed {
            tracing::info!(link = %resumed.link.display(), survival = %resumed.survival, "the attached space goes on");
        }
        let files = Arc::new(files);
        *self.ways.files.borrow_mut() = Some(Arc::clone(&files));
        *self.ways.attached.borrow_mut() = found.resumed;
        Ok(files)
    }

    pub(crate) fn attached_at(&self, pool: &OpenPool, space: &Space) -> Option<String> {
        self.ways.find(key_of(pool, space)).map(|one| one.link.display().to_string())
    }

    /// Refuses what an attached space would not survive.
    pub(crate) fn check_not_attached(&self, pool: &OpenPool, space: &Space, doing: &str) -> Answer<()> {
        let Some(attached) = self.ways.find(key_of(pool, space)) else { return Ok(()) };
        let name = format!("{}/{}", pool.name(), space.name());
        let message = format!(
            "space {name} cannot be {doing} while it is attached at {}; nothing was changed",
            attached.link.display()
        );
        Err(ErrorBody::new(ErrorCode::Busy, message)
            .on(name.as_str())
            .hint(format!("dolmen space detach {name}")))
    }

    /// A pool's spaces that are attached, in words, with those who use them.
    pub(crate) async fn attached_of(&self, pool: &OpenPool) -> Answer<Vec<String>> {
        let files = self.ways.files.borrow().clone();
        let Some(files) = files else { return Ok(Vec::new()) };
        let id = pool.id();
        let found = self.ways.with(&files, move |files| {
            let attached = files.attached().into_iter().filter(|one| one.attachment.space.pool == id);
            attached.map(|one| (one.holders(), one)).collect::<Vec<_>>()
        });
        Ok(found.await?.iter().map(|(by, one)| attached_text(one, by)).collect())
    }

    pub(crate) async fn attach_space(
        self: Rc<Self>,
        pool: String,
        space: String,
        request: Simple,
    ) -> Answer<Change> {
        let pool = self.pool_to_change(&pool)?;
        let _turn = self.turn_to_change(&pool).await?;
        let space = pool.space(&space)?;
        let spec = space.spec();
        let name = format!("{}/{}", pool.name(), spec.name);
        let link = self.config.links.join(pool.name()).join(spec.name.as_str());
        let undo = Undo::By(format!("dolmen space detach {name}"));
        let plan = pool.plan(undo, vec![format!("show {name} as {}", link.display())]);
        if self.nbd.find(pool.id(), space.id()).is_some_and(|served| served.is_writable()) {
            return Err(two_sides(&name, "served for writing").hint(format!(
                "dolmen unserve {name}; what is served with --read-only can be attached too"
            )));
        }
        if request.dry_run {
            return Ok(planned(plan, format!("{name} would be attached as {}", link.display())));
        }
        let was_attached = self.ways.find(key_of(&pool, &space)).is_some();
        let files = self.ways_files().await?;
        self.tell_sizes();
        let writable = pool.spaces.pool().state() == PoolState::Writable;
        let wanted = Wanted {
            space: key_of(&pool, &space),
            pool_name: pool.spaces.pool().name().clone(),
            space_name: spec.name.clone(),
            access: if writable { Access::ReadWrite } else { Access::ReadOnly },
            sector_bytes: u32::try_from(spec.sector.0).unwrap_or(4096),
        };
        let attached = self.ways.with(&files, move |files| files.attach(&wanted)).await?;
        let attached = attached.map_err(|error| attach_fault(&error).on(name.as_str()))?;
        let text = format!("{name} is attached as {}", attached.link.display());
        let mut change = if was_attached { planned(plan, text) } else { made(plan, text) };
        change.attachment = Some(view(&attached, &[]));
        change.space = Some(self.view_space(&pool, &space).await?);
        Ok(change)
    }

    pub(crate) async fn detach_space(
        self: Rc<Self>,
        pool: String,
        space: String,
        request: Simple,
    ) -> Answer<Change> {
        let pool = self.pool_to_change(&pool)?;
        let _turn = self.turn_to_change(&pool).await?;
        let space = pool.space(&space)?;
        let name = format!("{}/{}", pool.name(), space.name());
        let key = key_of(&pool, &space);
        let undo = Undo::By(format!("dolmen space attach {name}"));
        let plan = pool.plan(undo, vec![format!("show {name} no more")]);
        let files = self.ways.files.borrow().clone();
        let Some((files, attached)) = files.zip(self.ways.find(key)) else {
            return Ok(planned(plan, format!("{name} is not attached")));
        };
        if request.dry_run {
            let by = self.ways.with(&files, move |files| files.holders(key)).await?.unwrap_or_default();
            if !by.is_empty() {
                return Err(detach_fault(&DetachError::Busy {
                    link: attached.link,
                    device: attached.device,
                    by,
                })
                .on(name));
            }
            return Ok(planned(plan, format!("{name} would be detached")));
        }
        let detached = self.ways.with(&files, move |files| files.detach(key)).await?;
        detached.map_err(|error| detach_fault(&error).on(name.as_str()))?;
        Ok(made(plan, format!("{name} is detached")))
    }

    pub(crate) async fn attachments(self: Rc<Self>) -> Answer<Attachments> {
        let files = self.ways.files.borrow().clone();
        let Some(files) = files else { return Ok(Attachments { schema: SCHEMA, attachments: Vec::new() }) };
        let found = self.ways.with(&files, |files| {
            let attached = files.attached();
            attached.into_iter().map(|one| (one.holders(), one)).collect::<Vec<_>>()
        });
        let attachments = found.await?.iter().map(|(by, one)| view(one, by)).collect();
        Ok(Attachments { schema: SCHEMA, attachments })
    }

    /// Where a space is attached, if it is.
    pub(crate) fn attached_link(&self, pool: &OpenPool, space: &Space) -> Option<PathBuf> {
        self.ways.find(key_of(pool, space)).map(|attached| attached.link)
    }

    /// Shows the new size of a space on its ways in; what did not work, in words.
    pub(crate) async fn ways_resized(&self, pool: &OpenPool, space: &Space) -> Option<String> {
        self.tell_sizes();
        let key = key_of(pool, space);
        self.ways.find(key)?;
        let files = self.ways.files.borrow().clone()?;
        match self.ways.with(&files, move |files| files.resize(key)).await {
            Ok(Ok(_)) => None,
            Ok(Err(error)) => Some(format!("the attached device keeps its old size: {error}")),
            Err(error) => Some(format!("the attached device keeps its old size: {error}")),
        }
    }

    /// Refuses to end while attached spaces are in use, and says by whom.
    pub(crate) async fn check_nothing_used(&self) -> Answer<()> {
        let files = self.ways.files.borrow().clone();
        let Some(files) = files else { return Ok(()) };
        let found = self.ways.with(&files, |files| {
            files.attached().into_iter().map(|one| (one.holders(), one)).collect::<Vec<_>>()
        });
        let used: Vec<String> = found
            .await?
            .iter()
            .filter(|(by, _)| !by.is_empty())
            .map(|(by, one)| format!("{} is {}", one.link.display(), holders_text(by)))
            .collect();
        if used.is_empty() {
            return Ok(());
        }
        let message =
            format!("the daemon does not end while attached spaces are in use: {}", used.join("; "));
        Err(ErrorBody::new(ErrorCode::Busy, message).hint(
            "unmount them; or hand them over to the next daemon (--hand-over): their I/O waits until it runs",
        ))
    }

    /// Leaves attached spaces to the next daemon, or takes them away; what stayed, in words. Afterwards no request of the
    /// kernel's is under way: those not begun wait for the next daemon.
    pub(crate) async fn let_go_of_attachments(&self, leave: Leave) -> Vec<String> {
        let files = self.ways.files.borrow_mut().take();
        let Some(files) = files else { return Vec::new() };
        let ended = self.ways.with(&files, move |files| {
            let left = match leave {
                Leave::ForTheNext => Vec::new(),
                Leave::Nothing => take_away(files),
            };
            files.let_go();
            left
        });
        let left = ended.await.unwrap_or_else(|error| vec![error.to_string()]);
        self.ways.bell.wait_for(|| (self.ways.under_way.get() == 0).then_some(())).await;
        left
    }
}

/// What the end of the daemon means for attached spaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Leave {
    /// They are detached.
    Nothing,
    /// They stay, and their I/O waits for the next daemon.
    ForTheNext,
}

fn take_away(files: &Files) -> Vec<String> {
    let detached = files.attached().into_iter().map(|one| files.detach(one.attachment.space));
    let mut left: Vec<String> = detached.filter_map(Result::err).map(|error| error.to_string()).collect();
    if left.is_empty() {
        left.extend(files.close().err().map(|error| error.to_string()));
    }
    left
}

fn holders_text(by: &[Holder]) -> String {
    by.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn attached_text(attached: &Attached, by: &[Holder]) -> String {
    let link = attached.link.display();
    if by.is_empty() {
        format!("space {link} is attached")
    } else {
        format!("space {link} is attached, {}", holders_text(by))
    }
}

fn view(attached: &Attached, by: &[Holder]) -> Attachment {
    let limit = attached.survival.absence_s_max;
    Attachment {
        pool: attached.attachment.pool_name.to_string(),
        space: attached.attachment.space_name.to_string(),
        path: attached.link.display().to_string(),
        device: attached.device.display().to_string(),
        used_by: by.iter().map(ToString::to_string).collect(),
        survives_daemon: limit.is_none(),
        limits: limit.map(|_| attached.survival.to_string()).into_iter().collect(),
    }
}

fn body(code: ErrorCode, error: &dyn std::error::Error) -> ErrorBody {
    ErrorBody::new(code, error.to_string()).caused_by(error)
}

fn start_fault(error: &StartError) -> ErrorBody {
    match error {
        StartError::Mount(inner) => mount_fault(inner),
        StartError::NotNegotiated { .. } => body(ErrorCode::Missing, error),
        StartError::Setting { .. } => body(ErrorCode::Config, error),
        StartError::System { .. } | StartError::Keeper(_) | StartError::Region(_) | StartError::Ledger(_) => {
            body(ErrorCode::Io, error)
        }
    }
}

const ADVICE: &str = "run the daemon as root with the modules fuse and loop loaded, or use `dolmen serve`";

fn mount_fault(error: &MountError) -> ErrorBody {
    let code = match error {
        MountError::NoFuse { .. } => ErrorCode::Missing,
        MountError::NotPermitted { .. } => ErrorCode::Permission,
        MountError::Failed { .. } => ErrorCode::Io,
        MountError::Occupied { .. } => ErrorCode::Busy,
    };
    body(code, error).hint(ADVICE)
}

fn loop_fault(error: &LoopError) -> ErrorBody {
    let code = match error {
        LoopError::NoLoop { .. } | LoopError::NotDirect { .. } => ErrorCode::Missing,
        LoopError::NotPermitted { .. } => ErrorCode::Permission,
        LoopError::Contended => ErrorCode::Busy,
        LoopError::Failed { .. } => ErrorCode::Io,
    };
    body(code, error).hint(ADVICE)
}

fn attach_fault(error: &AttachError) -> ErrorBody {
    match error {
        AttachError::NoSpace { .. } => body(ErrorCode::NoSuchSpace, error),
        AttachError::Shape { .. } => body(ErrorCode::BadSize, error),
        AttachError::Attached { .. } => body(ErrorCode::Busy, error),
        AttachError::NameTaken { .. } => body(ErrorCode::NameTaken, error),
        AttachError::Ended { .. }
        | AttachError::Open { .. }
        | AttachError::Link { .. }
        | AttachError::Ledger(_) => body(ErrorCode::Io, error),
        AttachError::Loop(inner) => loop_fault(inner),
    }
}

fn detach_fault(error: &DetachError) -> ErrorBody {
    match error {
        DetachError::NotAttached { .. } => body(ErrorCode::BadRequest, error),
        DetachError::Busy { .. } => body(ErrorCode::Busy, error),
        DetachError::Loop(inner) => loop_fault(inner),
        DetachError::Ledger(_) => body(ErrorCode::Io, error),
    }
}
