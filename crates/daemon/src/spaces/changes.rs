//! Spaces: made, shown, changed, deleted, served.

use std::cmp::Ordering;
use std::rc::Rc;

use dolmen_api::{
    Change, CreateSpace, ErrorBody, ErrorCode, Plan, RenameSpace, ResiliencyKind, ResizeSpace, SCHEMA,
    ServeSpace, Simple, SpaceDocument,
};
use dolmen_block_io::Geometry;
use dolmen_block_io::Seams;
use dolmen_mutation::mutation;
use dolmen_nbd::Access;
use dolmen_pool::PoolState;
use dolmen_space::{Integrity, Provisioning, Resiliency, Space, SpaceError, SpaceSpec};
use dolmen_units::{BLOCK_BYTES, Bytes, SECTOR_BYTES};

use crate::answer::Answer;
use crate::attaching::SpaceAttachments;
use crate::base::Base;
use crate::exports::{NbdServer, Network, Served};
use crate::fault;
use crate::fault::two_sides;
use crate::open_pool::{OpenPool, key_of, parse_name};
use crate::open_pools::OpenPools;
use crate::plan::{Figures, Undo, made, planned, usual_room};
use crate::records::Records;
use crate::rooms::usable_now;
use crate::settings::with_kept_room;
use crate::spaces::listeners::NetworkListeners;
use crate::state::VolumeUses;
use crate::views::Views;
use crate::words::clients_of;

/// What is done to a space that gets smaller.
const SHRUNK: &str = "made smaller";

/// Sizes of a fixed space that are tried, a row apart, until one can be made.
const FIXED_TRIES_MAX: usize = 4;

fn spec_of(request: &CreateSpace) -> Answer<SpaceSpec> {
    let name = parse_name(&request.name)?;
    let resiliency = match (request.resiliency, request.copies) {
        (ResiliencyKind::Simple, None | Some(1)) => Resiliency::Simple,
        (ResiliencyKind::Span, None | Some(1)) => Resiliency::Span,
        (ResiliencyKind::Mirror, copies) => Resiliency::Mirror { copies: copies.unwrap_or(2) },
        (ResiliencyKind::Parity, None | Some(1)) => {
            let parity = request.parity.unwrap_or(1);
            if !(1..=2).contains(&parity) {
                let message = format!("a space has 1 or 2 parities, not {parity}; nothing was made");
                return Err(ErrorBody::new(ErrorCode::BadRequest, message).on(name.as_str()));
            }
            Resiliency::Parity { parity }
        }
        (ResiliencyKind::Simple | ResiliencyKind::Span | ResiliencyKind::Parity, Some(copies)) => {
            let message = format!(
                "a simple or span space and one with parity have one copy, not {copies}; nothing was made"
            );
            return Err(ErrorBody::new(ErrorCode::BadRequest, message)
                .on(name.as_str())
                .hint("choose mirror"));
        }
    };
    if let Some(parity) = request.parity.filter(|_| request.resiliency != ResiliencyKind::Parity) {
        let message = format!("only a space with parity has parity columns, here {parity}; nothing was made");
        return Err(ErrorBody::new(ErrorCode::BadRequest, message).on(name.as_str()).hint("choose parity"));
    }
    let mut spec = SpaceSpec::usual(name, Bytes(request.size_bytes), resiliency);
    spec.columns = request.columns;
    spec.interleave = request.interleave_bytes.map_or(spec.interleave, Bytes);
    spec.row = request.row_bytes.map(Bytes);
    spec.sector = request.sector_bytes.map_or(spec.sector, Bytes);
    spec.provisioning = match request.provisioning {
        dolmen_api::Provisioning::Thin => Provisioning::Thin,
        dolmen_api::Provisioning::Fixed => Provisioning::Fixed,
    };
    spec.integrity = match request.integrity {
        None => spec.integrity,
        Some(dolmen_api::Integrity::Relaxed) => Integrity::Relaxed,
        Some(dolmen_api::Integrity::Strict) => Integrity::Strict,
    };
    Ok(spec)
}

pub(crate) fn full_name(pool: &OpenPool, space: &Space) -> String {
    format!("{}/{}", pool.name(), space.name())
}

/// Why a space is not made; of a fixed one that is too large, with the largest that could be.
fn not_made(open: &OpenPool, spec: &SpaceSpec, error: &SpaceError) -> ErrorBody {
    let body = open.lacks_room(error);
    let is_fixed = spec.provisioning == Provisioning::Fixed;
    if !is_fixed || !matches!(error, SpaceError::Size { .. }) || spec.check().is_err() {
        return body;
    }
    let (pool, name) = (open.name(), format!("{}/{}", open.name(), spec.name));
    let (fits, smaller) = match largest_fixed(open, spec) {
        // Rounded, the most is no size that could be typed.
        Some(most) => {
            (format!("it can have {most} at most"), format!("smaller, to --size {}M", most.0 >> 20))
        }
        None => ("not one row of it finds room".to_owned(), "smaller".to_owned()),
    };
    let message = format!(
        "space {name} of {} cannot be made: it is fixed, so all of it has to fit pool {pool}, where {fits}; nothing was made",
        spec.size
    );
    let hint = format!("make it {smaller}, or thin, or add disks; `dolmen df {pool}` shows what fits");
    // What the trash would give back is told as well.
    let hint = open.to_purge().map_or_else(|| hint.clone(), |purge| format!("{hint}; {purge}"));
    ErrorBody::new(body.code, message).on(name).hint(hint)
}

/// The largest size that a fixed space could have, in whole rows as this one was to have.
fn largest_fixed(pool: &OpenPool, spec: &SpaceSpec) -> Option<Bytes> {
    let row = spec.row_bytes();
    let offers = pool.spaces.changes().offers_with_cache(spec.write_cache()).ok()?;
    let rows = usable_now(&offers, spec).0 / row.0;
    // Where the next row goes decides whether the last one finds a place.
    let halves = std::iter::successors(Some(rows / 2), |rows| Some(rows / 2)).take_while(|rows| *rows > 0);
    (1..=rows).rev().take(FIXED_TRIES_MAX).chain(halves).map(|rows| Bytes(rows * row.0)).find(|size| {
        let spec = SpaceSpec { size: *size, ..spec.clone() };
        pool.spaces.changes().check_create(&spec).is_ok()
    })
}

/// What a new size means for the room of the pool: at once for a fixed space, and when it is full for a thin one.
async fn plan_resize(
    pool: &OpenPool,
    space: &Space,
    spec: &SpaceSpec,
    undo: Undo,
) -> Answer<(Plan, Option<String>)> {
    let (name, had) = (full_name(pool, space), space.size());
    let full = pool.full_size(spec)?;
    let full_before = pool.full_size(&SpaceSpec { size: had, ..spec.clone() })?;
    let free = pool.free();
    let before = usual_room(&pool.offers());
    if spec.size == had {
        return Ok((pool.plan(undo, Vec::new()), None));
    }
    let step = format!("change the size of {name} from {had} to {}", spec.size);
    if spec.provisioning == Provisioning::Thin {
        let taken = space.footprint().await.map_err(|error| fault::space(&error))?.total.0;
        let is_too_much = spec.size > had && full.saturating_sub(taken) > free;
        let warning = is_too_much
            .then(|| format!("when it is full, it takes {}; the pool has {} free", Bytes(full), Bytes(free)));
        return Ok((pool.plan(undo, vec![step]), warning));
    }
    let free_after = (free + full_before).saturating_sub(full);
    let claims = match full.cmp(&full_before) {
        Ordering::Greater => {
            format!(", claiming {} now{}", Bytes(full - full_before), in_whole_rows(spec))
        }
        Ordering::Less => format!(", giving {} back", Bytes(full_before - full)),
        Ordering::Equal => String::new(),
    };
    let after = if free_after == free { before } else { pool.room_with_free(free_after) };
    Ok((Figures::of_room(before, after).plan(undo, vec![step + &claims]), None))
}

/// Returns the sector of a space that was asked for without one. Images of disks and most software are made for 512 bytes;
/// 4096 is for pools whose every disk addresses no less. A file is no such disk: its unit is that of its file system.
fn usual_sector(mut disks: impl Iterator<Item = Geometry>) -> Bytes {
    let is_4kn = |disk: Geometry| u64::from(disk.logical_block_bytes) >= BLOCK_BYTES && !disk.thin;
    let Some(first) = disks.next() else { return Bytes(SECTOR_BYTES) };
    Bytes(if is_4kn(first) && disks.all(is_4kn) { BLOCK_BYTES } else { SECTOR_BYTES })
}

/// Why a fixed space takes more than its size, where its last row goes on behind its end.
fn in_whole_rows(spec: &SpaceSpec) -> String {
    match spec.size.0.is_multiple_of(spec.row_bytes().0) {
        true => String::new(),
        false => format!(", in whole rows of {}", spec.row_bytes()),
    }
}

/// A space that could be made.
pub(crate) struct NewSpace {
    pub(crate) spec: SpaceSpec,
    pub(crate) plan: Plan,
    pub(crate) warning: Option<String>,
}

/// Plans a new space, or refuses it. The caller holds the lock of changes of the pool.
pub(crate) fn plan_new_space(pool: &OpenPool, request: &CreateSpace) -> Answer<NewSpace> {
    let mut spec = spec_of(request)?;
    if request.sector_bytes.is_none() {
        let disks = pool.spaces.pool().disks();
        spec.sector = usual_sector(disks.iter().filter_map(|disk| disk.geometry()));
    }
    let refused = |error| with_kept_room(pool, &spec, not_made(pool, &spec, &error));
    pool.spaces.changes().check_create(&spec).map_err(refused)?;
    let full = pool.full_size(&spec)?;
    let cache = pool.spaces.caches().new_write_cache(&spec);
    let of_cache = cache.map_or(0, |size| size.0 * u64::from(spec.resiliency.redundancy() + 1));
    let before = usual_room(&pool.offers());
    let now = match spec.provisioning {
        Provisioning::Thin => of_cache,
        Provisioning::Fixed => of_cache + full,
    };
    let after = if now == 0 { before } else { pool.room_with_free(pool.free().saturating_sub(now)) };
    let what = format!("{}/{}, {} of {}, ", pool.name(), spec.name, spec.resiliency, spec.size);
    let claims = match spec.provisioning {
        Provisioning::Thin => format!("thin: claims room as it is written, up to {}", Bytes(full)),
        Provisioning::Fixed => format!("fixed: claims {} now{}", Bytes(full), in_whole_rows(&spec)),
    };
    let of_pool = cache.map(|size| {
        format!(
            "make the write cache that {} needs: {size}, {} times; it goes with the last such space",
            match spec.resiliency {
                Resiliency::Parity { .. } => "parity",
                _ => "a strict space",
            },
            spec.resiliency.redundancy() + 1
        )
    });
    let steps = of_pool.into_iter().chain([format!("make space {what}{claims}")]).collect();
    let undo = Undo::By(format!("dolmen space delete {}/{}", pool.name(), spec.name));
    let plan = Figures::of_room(before, after).plan(undo, steps);
    let warning = (full + of_cache > pool.free()).then(|| {
        format!("when it is full, it takes {}; the pool has {} free", Bytes(full), Bytes(pool.free()))
    });
    Ok(NewSpace { spec, plan, warning })
}

/// Spaces: made, changed, and served.
pub(crate) struct SpaceChanges {
    pools: Rc<OpenPools>,
    records: Rc<Records>,
    views: Rc<Views>,
    attachments: Rc<SpaceAttachments>,
    network: Rc<NetworkListeners>,
    seams: Seams,
    nbd: Rc<NbdServer>,
    volume_uses: Rc<VolumeUses>,
}

impl SpaceChanges {
    pub(crate) fn new(
        base: &Base,
        attachments: &Rc<SpaceAttachments>,
        network: &Rc<NetworkListeners>,
    ) -> Self {
        Self {
            pools: Rc::clone(&base.pools),
            records: Rc::clone(&base.records),
            views: Rc::clone(&base.views),
            attachments: Rc::clone(attachments),
            network: Rc::clone(network),
            seams: base.seams.clone(),
            nbd: Rc::clone(&base.nbd),
            volume_uses: Rc::clone(&base.volume_uses),
        }
    }
}

impl SpaceChanges {
    pub(crate) async fn create_space(&self, pool: String, request: CreateSpace) -> Answer<Change> {
        let pool = self.pools.pool_to_change(&pool)?;
        let _exclusive = self.pools.lock_for_change(&pool).await?;
        let NewSpace { spec, plan, warning } = plan_new_space(&pool, &request)?;
        if request.dry_run {
            let mut change = planned(plan, format!("space {}/{} would be made", pool.name(), spec.name));
            change.warnings.extend(warning);
            return Ok(change);
        }
        let space = pool.spaces.create(spec).await.map_err(|error| pool.lacks_room(&error))?;
        let mut change = made(plan, format!("space {} is made", full_name(&pool, &space)));
        change.warnings.extend(warning);
        change.space = Some(self.views.view_space(&pool, &space).await?);
        Ok(change)
    }

    pub(crate) async fn all_spaces(&self) -> Answer<dolmen_api::Spaces> {
        let mut spaces = Vec::new();
        for pool in self.pools.open_pools() {
            spaces.extend(self.views.view_spaces(&pool).await?);
        }
        Ok(dolmen_api::Spaces { schema: SCHEMA, spaces })
    }

    pub(crate) async fn spaces(&self, pool: String) -> Answer<dolmen_api::Spaces> {
        let pool = self.pools.pool(&pool)?;
        Ok(dolmen_api::Spaces { schema: SCHEMA, spaces: self.views.view_spaces(&pool).await? })
    }

    pub(crate) async fn show_space(&self, pool: String, space: String) -> Answer<SpaceDocument> {
        let pool = self.pools.pool(&pool)?;
        let space = pool.space(&space)?;
        Ok(SpaceDocument { schema: SCHEMA, space: self.views.view_space(&pool, &space).await? })
    }

    pub(crate) async fn resize_space(
        &self,
        pool: String,
        space: String,
        request: ResizeSpace,
    ) -> Answer<Change> {
        let pool = self.pools.pool_to_change(&pool)?;
        let _exclusive = self.pools.lock_for_change(&pool).await?;
        let space = pool.space(&space)?;
        let (before, after) = (space.size(), Bytes(request.size_bytes));
        let name = full_name(&pool, &space);
        let mut spec = space.spec();
        spec.size = after;
        spec.row = Some(Bytes(space.row_bytes()));
        spec.check().map_err(|error| fault::space(&error).on(name.as_str()))?;
        if after < before {
            self.check_shrink(&pool, &space, after).await?;
        } else {
            pool.spaces.changes().check_grow(&space, after).map_err(|error| pool.lacks_room(&error))?;
        }
        let undo = self.undo_of_resize(&pool, &space, after);
        let (plan, warning) = plan_resize(&pool, &space, &spec, undo).await?;
        if after == before {
            return Ok(planned(plan, format!("{name} has {after} already")));
        }
        if request.dry_run {
            let mut change = planned(plan, format!("{name} would have {after} instead of {before}"));
            change.warnings.extend(warning);
            return Ok(change);
        }
        if after < before {
            // Whoever came while data was looked for has been told the old size. Who comes from here on is told the new one.
            self.check_space_unused(&pool, &space, SHRUNK).await?;
        }
        pool.spaces.changes().resize(&space, after).await.map_err(|error| pool.lacks_room(&error))?;
        let resized = self.attachments.transports_resized(&pool, &space).await;
        let mut change = made(plan, format!("{name} has {after} now"));
        change.warnings.extend(warning.into_iter().chain(resized));
        change.space = Some(self.views.view_space(&pool, &space).await?);
        Ok(change)
    }

    /// What takes a new size back. A space is made smaller only while it is not attached, and where nothing lies behind its end.
    fn undo_of_resize(&self, pool: &OpenPool, space: &Space, after: Bytes) -> Undo {
        let (name, before) = (full_name(pool, space), space.size());
        let back = format!("dolmen space resize {name} {}", before.0);
        match after.cmp(&before) {
            Ordering::Equal => Undo::NotNeeded,
            Ordering::Greater if self.attachments.attached_link(pool, space).is_some() => {
                Undo::By(format!("dolmen space detach {name}, then {back}"))
            }
            Ordering::Less | Ordering::Greater => Undo::By(back),
        }
    }

    /// Whether a space can be made smaller: nobody uses it, and nothing lies behind its new end.
    async fn check_shrink(&self, pool: &OpenPool, space: &Space, after: Bytes) -> Answer<()> {
        self.check_space_unused(pool, space, SHRUNK).await?;
        let attributes = space.attributes().list().await.map_err(|error| fault::space(&error))?;
        if !attributes.is_empty() && !mutation!(ShrunkBelowVolume) {
            let name = full_name(pool, space);
            let message = format!(
                "space {name} cannot shrink to {after}: it carries a volume, whose file system takes all of it; nothing was changed"
            );
            let hint = "make a smaller volume, and copy the files";
            return Err(ErrorBody::new(ErrorCode::NotEmpty, message).on(name).hint(hint));
        }
        let used_end = space.used_end(after.0).await.map_err(|error| fault::space(&error))?;
        let Some(used_end) = used_end else { return Ok(()) };
        let name = full_name(pool, space);
        let message = format!(
            "space {name} cannot shrink to {after}: there is data behind that, up to {} (byte {used_end}); nothing was changed",
            Bytes(used_end)
        );
        Err(ErrorBody::new(ErrorCode::NotEmpty, message).on(name).hint("trim it, or move the data first"))
    }

    pub(crate) async fn rename_space(
        &self,
        pool: String,
        space: String,
        request: RenameSpace,
    ) -> Answer<Change> {
        let pool = self.pools.pool_to_change(&pool)?;
        let _exclusive = self.pools.lock_for_change(&pool).await?;
        let space = pool.space(&space)?;
        let name = parse_name(&request.name)?;
        if pool.spaces.find(name.as_str()).is_ok() {
            let message =
                format!("pool {} has a space named {name} already; nothing was changed", pool.name());
            return Err(ErrorBody::new(ErrorCode::NameTaken, message).on(name.as_str()));
        }
        let old = full_name(&pool, &space);
        self.volume_uses.check_free(key_of(&pool, &space), &old, "renamed")?;
        self.check_space_idle(&pool, &space, "renamed").await?;
        let undo = Undo::By(format!("dolmen space set {}/{name} --name {}", pool.name(), space.name()));
        let plan = pool.plan(undo, vec![format!("call {old} {}/{name}", pool.name())]);
        if request.dry_run {
            return Ok(planned(plan, format!("{old} would be called {name}")));
        }
        pool.spaces.changes().rename(&space, name.clone()).await.map_err(|error| fault::space(&error))?;
        let mut change = made(plan, format!("{old} is called {name} now"));
        change.space = Some(self.views.view_space(&pool, &space).await?);
        Ok(change)
    }

    /// Refuses what clients of the space would not survive.
    async fn check_space_unused(&self, pool: &OpenPool, space: &Space, doing: &str) -> Answer<()> {
        let clients = match self.nbd.find(pool.id(), space.id()) {
            Some(served) => served.lasting_clients(self.seams.clock.as_ref()).await,
            None => 0,
        };
        if clients > 0 {
            let name = full_name(pool, space);
            let message = format!(
                "space {name} cannot be {doing} while it is open by {}; nothing was changed",
                clients_of(clients)
            );
            return Err(ErrorBody::new(ErrorCode::Busy, message).on(name).hint("disconnect them first"));
        }
        self.attachments.check_not_attached(pool, space, doing)
    }

    /// Refuses what ways in to the space would not survive.
    pub(crate) async fn check_space_idle(&self, pool: &OpenPool, space: &Space, doing: &str) -> Answer<()> {
        self.check_space_unused(pool, space, doing).await?;
        self.check_not_served(pool, space, doing)
    }

    /// Refuses what clients over NBD would not survive.
    pub(crate) fn check_not_served(&self, pool: &OpenPool, space: &Space, doing: &str) -> Answer<()> {
        if self.nbd.find(pool.id(), space.id()).is_some() {
            let name = full_name(pool, space);
            let message = format!("space {name} cannot be {doing} while it is served; nothing was changed");
            return Err(ErrorBody::new(ErrorCode::Busy, message)
                .on(name.as_str())
                .hint(format!("dolmen unserve {name}")));
        }
        Ok(())
    }

    /// Returns how a space is served: clients are told at once what the first write would tell them.
    fn access_of(&self, pool: &OpenPool, space: &Space, is_read_only: bool) -> Answer<Access> {
        if is_read_only {
            return Ok(Access::ReadOnly);
        }
        self.volume_uses.check_free(key_of(pool, space), &full_name(pool, space), "served for writing")?;
        Ok(Access::ReadWrite)
    }

    pub(crate) async fn serve_space(
        &self,
        pool: String,
        space: String,
        request: ServeSpace,
    ) -> Answer<Change> {
        let pool = self.pools.pool_to_change(&pool)?;
        let _exclusive = self.pools.lock_for_change(&pool).await?;
        let space = pool.space(&space)?;
        let name = full_name(&pool, &space);
        let is_read_only = matches!(pool.spaces.pool().state(), PoolState::ReadOnly(_));
        let access = self.access_of(&pool, &space, request.read_only || is_read_only)?;
        let mut steps = vec![format!("serve {name} on {}", self.nbd.socket.display())];
        let network = request.network.map(Network::parse).transpose()?;
        let keys = match &network {
            Some(network) => {
                steps.push(format!("serve {name} on {}", network.listen));
                self.network.check_listener(network).await?
            }
            None => None,
        };
        let warnings = keys.iter().flat_map(|keys| keys.warnings.clone()).collect::<Vec<_>>();
        let served = self.nbd.find(pool.id(), space.id());
        if let Some(served) = &served {
            check_same(&name, served, access, network.as_ref())?;
        }
        if let Some(link) =
            self.attachments.attached_link(&pool, &space).filter(|_| access == Access::ReadWrite)
        {
            return Err(two_sides(&name, &format!("attached as {}", link.display()))
                .hint(format!("dolmen space detach {name}, or serve it with --read-only")));
        }
        let is_done = |served: &Rc<Served>| network.is_none() || *served.network.borrow() == network;
        let is_done = served.as_ref().is_some_and(is_done);
        let plan = match is_done {
            true => pool.plan(Undo::NotNeeded, Vec::new()),
            false => pool.plan(Undo::By(format!("dolmen unserve {name}")), steps),
        };
        if request.dry_run {
            let word = if is_done { "is served already" } else { "would be served" };
            let mut change = planned(plan, format!("{name} {word}"));
            change.warnings.extend(warnings);
            return Ok(change);
        }
        if let Some(network) = &network {
            self.network.open_listener(network, keys)?;
        }
        let is_new = served.is_none();
        let served = served.unwrap_or_else(|| self.nbd.add(name.clone(), &pool.spaces, &space, access));
        let before = served.network.borrow().clone();
        let wanted = network.or_else(|| before.clone());
        let mut change = if is_new || before != wanted {
            served.network.replace(wanted);
            // On record before anybody is told, so that clients find it again after a restart.
            if let Err(error) = self.records.try_remember(&pool).await {
                served.network.replace(before);
                if is_new {
                    self.nbd.remove(&name);
                }
                self.network.close_unused_listeners();
                let message =
                    format!("space {name} cannot be put on record as served: {error}; nothing was changed");
                return Err(ErrorBody::new(ErrorCode::Io, message).on(name));
            }
            made(plan, format!("{name} is served"))
        } else {
            planned(plan, format!("{name} is served already"))
        };
        change.warnings.extend(warnings);
        change.warnings.extend(
            (is_read_only && !request.read_only)
                .then(|| format!("it takes no writes, because pool {} is open read-only", pool.name())),
        );
        change.export = Some(self.views.view_export(&served));
        Ok(change)
    }

    pub(crate) async fn unserve_space(&self, pool: String, space: String, request: Simple) -> Answer<Change> {
        let pool = self.pools.pool_to_change(&pool)?;
        let _exclusive = self.pools.lock_for_change(&pool).await?;
        let space = pool.space(&space)?;
        let name = full_name(&pool, &space);
        let found = self.nbd.find(pool.id(), space.id());
        let read_only =
            if found.as_ref().is_some_and(|served| !served.is_writable()) { " --read-only" } else { "" };
        let network =
            found.as_ref().and_then(|served| served.network.borrow().as_ref().map(Network::options));
        let network = network.unwrap_or_default();
        let Some(served) = found else {
            return Ok(planned(pool.plan(Undo::NotNeeded, Vec::new()), format!("{name} is not served")));
        };
        let undo = Undo::By(format!("dolmen serve {name}{read_only}{network}"));
        let plan = pool.plan(undo, vec![format!("serve {name} no more")]);
        let clients = served.lasting_clients(self.seams.clock.as_ref()).await;
        if clients > 0 {
            let message = format!("space {name} is open by {}; nothing was changed", clients_of(clients));
            return Err(ErrorBody::new(ErrorCode::Busy, message).on(name).hint("disconnect them first"));
        }
        if request.dry_run {
            return Ok(planned(plan, format!("{name} would be served no more")));
        }
        self.nbd.remove(&served.name);
        self.network.close_unused_listeners();
        self.records.remember(&pool).await;
        Ok(made(plan, format!("{name} is served no more")))
    }
}

/// Refuses to serve in another way what is served already: clients may count on how it was. A listener may be added.
fn check_same(name: &str, served: &Served, access: Access, network: Option<&Network>) -> Answer<()> {
    let now = served.network.borrow();
    let differs = network.zip(now.as_ref()).is_some_and(|(wanted, now)| wanted != now);
    let what = match (served.access == access, differs) {
        (true, false) => return Ok(()),
        (false, _) => "not with that access".to_owned(),
        (true, true) => {
            let at = now.as_ref().map(|now| now.listen.to_string()).unwrap_or_default();
            format!("on {at}, not with these settings")
        }
    };
    let message = format!("space {name} is served already, and {what}; nothing was changed");
    Err(ErrorBody::new(ErrorCode::Busy, message).on(name).hint(format!("dolmen unserve {name}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use dolmen_block_io::Zoning;

    fn disk(logical_block_bytes: u32, thin: bool) -> Geometry {
        Geometry {
            capacity: Bytes::gib(1),
            logical_block_bytes,
            physical_block_bytes: 4096,
            optimal_io_bytes: 0,
            atomic_write_bytes: 4096,
            volatile_cache: true,
            fua: false,
            discard_granularity_bytes: None,
            thin,
            rotational: false,
            zoning: Zoning::None,
            shareable: false,
        }
    }

    #[test]
    fn a_space_has_sectors_of_512_bytes_unless_every_disk_is_4kn() {
        // Scenario: disks by logical block and whether they are files. Expected: 4096 for devices of 4096 alone.
        let (native, usual, file) = (disk(4096, false), disk(512, false), disk(4096, true));
        let cases: [(&[Geometry], u64); 7] = [
            (&[], 512),
            (&[usual], 512),
            (&[file], 512),
            (&[native, file], 512),
            (&[native, usual, native], 512),
            (&[native], 4096),
            (&[native, native], 4096),
        ];
        for (disks, sector) in cases {
            assert_eq!(usual_sector(disks.iter().copied()), Bytes(sector), "{disks:?}");
        }
    }
}
