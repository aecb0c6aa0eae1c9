//! Shares put on servers, looked at, and taken off: with each mount and unmount of their volume.
//!
//! No step that fails here keeps a volume from being mounted; the health of the share names it. A share that cannot be taken off
//! keeps its volume mounted: clients would write beside the volume.

use std::path::PathBuf;
use std::rc::Rc;

use dolmen_api::{ErrorBody, ErrorCode, ImportMode, ShareStep};
use dolmen_attach::SpaceKey;
use dolmen_block_io::{Seams, sleep};
use dolmen_mutation::mutation;
use dolmen_space::Space;
use dolmen_units::{HostId, PoolId, SpaceId};
use dolmen_volume::record::{DesiredShare, Protocol, ShareRecord};
use dolmen_volume::share_mark::ShareMark;
use dolmen_worker::protocol::{Operation, Outcome};
use dolmen_worker::shares::order::{LookAtShare, Probed, PutShare, RemoveShare, Servers, SharedVolume};

use crate::answer::Answer;
use crate::attach::Transports;
use crate::base::Base;
use crate::io_worker::IoWorker;
use crate::open_pool::{OpenPool, key_of};
use crate::state::VolumeUses;
use crate::volumes::locks::{Lane, VolumeLocks};
use crate::volumes::numbered::{self, Numbered, SHARE, attribute};
use crate::volumes::records::{self, Found};
use crate::volumes::shares::book::{KnownShare, KnownShares};
use crate::volumes::shares::commands::share_command;
use crate::volumes::shares::host;
use crate::volumes::volume::Volume;
use crate::volumes::workers::{Unanswered, Wait, Workers};

/// Beginnings of the names of processes of servers, which leave a folder when its share is taken off. Samba appends the client.
const SERVERS: [&str; 2] = ["(smbd", "(ganesha.nfsd"];
/// Name of the lock file of the servers in the run folder.
const LOCK: &str = "servers.lock";
/// Stands for the volume of an order that is about all volumes: no pool has this id.
const ANY_VOLUME: SpaceKey = SpaceKey { pool: PoolId([0; 16]), space: SpaceId(0) };
/// Looks whether they have left, and the pause between two: ten seconds together.
const LOOKS_MAX: u32 = 50;
const LOOK_PAUSE: std::time::Duration = std::time::Duration::from_millis(200);

/// Returns the identity of a share; none if its number is none that this build gives.
pub(super) fn mark_of(pool: PoolId, space: &Space, number: u64) -> Option<ShareMark> {
    Some(ShareMark { pool, space: space.id().0, share: u32::try_from(number).ok()? })
}

/// Lists the shares of a space.
pub(super) async fn shares_of(space: &Space) -> Answer<Vec<Numbered<ShareRecord>>> {
    numbered::list(space, SHARE, ShareRecord::decode).await
}

fn unexpected(what: &str, outcome: &Outcome) -> ErrorBody {
    ErrorBody::new(ErrorCode::Internal, format!("{what} was answered with {outcome:?}"))
}

/// Shares as servers of this host offer them, and findings about each.
pub(in crate::volumes) struct ShareServers {
    settings: Option<PathBuf>,
    lock: PathBuf,
    seams: Seams,
    workers: Rc<Workers>,
    transports: Rc<Transports>,
    uses: Rc<VolumeUses>,
    looker: Rc<IoWorker>,
    locks: Rc<VolumeLocks>,
    /// Identity of this host.
    pub(in crate::volumes) host: HostId,
    pub(in crate::volumes) known: KnownShares,
}

impl ShareServers {
    pub(in crate::volumes) fn new(base: &Base, workers: &Rc<Workers>, locks: &Rc<VolumeLocks>) -> Self {
        Self {
            settings: base.config.servers.clone(),
            lock: base.config.run.join(LOCK),
            seams: base.seams.clone(),
            workers: Rc::clone(workers),
            transports: Rc::clone(&base.transports),
            uses: Rc::clone(&base.volume_uses),
            looker: Rc::clone(&base.volume_looker),
            locks: Rc::clone(locks),
            host: base.arbiter.host(),
            known: KnownShares::default(),
        }
    }

    /// Returns the servers of this host.
    pub(super) async fn servers(&self) -> Answer<Servers> {
        let (lock, settings) = (self.lock.clone(), self.settings.clone());
        let found = self.looker.run(move || host::servers(&lock, settings.as_deref())).await;
        found.map_err(|error| {
            let message = format!("DOLMEN_SERVERS names a file that describes no servers: {error}; no share was changed");
            let hint = "expected a JSON object, such as {\"smb_conf\": \"/etc/samba/smb.conf\", \"smb_port\": 445}; the guide \
                        page on shares lists its fields";
            ErrorBody::new(ErrorCode::Config, message).hint(hint)
        })
    }

    /// Refuses a share over NFS on a host that cannot offer it, before anything is on record.
    pub(super) async fn check_nfs(&self, name: &str, record: &ShareRecord) -> Answer<()> {
        if !record.protocols.contains(&Protocol::Nfs) || self.servers().await?.nfs.is_some() {
            return Ok(());
        }
        let (finding, hint) = match &self.settings {
            // What this host has does not count where settings describe its servers.
            Some(path) => (
                format!("{}, which DOLMEN_SERVERS names, has no field nfs", path.display()),
                "describe the NFS server there, as the guide page on shares shows",
            ),
            None => {
                let missing = self.looker.run(|| Ok(host::missing_for_nfs())).await;
                missing.unwrap_or_else(|error| (error.to_string(), "try again"))
            }
        };
        let share = &record.name;
        let message = format!(
            "share {share} of volume {name} cannot be offered over NFS by this host: {finding}; nothing was changed"
        );
        Err(ErrorBody::new(ErrorCode::Missing, message).on(name).hint(hint))
    }

    /// Lets servers offer a share as its record says, and returns notes for people.
    pub(super) async fn put_share(
        &self,
        volume: &Volume,
        mark: ShareMark,
        record: &ShareRecord,
        wait: Wait,
    ) -> Answer<Vec<String>> {
        let done = self.put_on_servers(volume, mark, record, wait).await;
        let failed = done.as_ref().err();
        let trouble = failed.map(|error| (ShareStep::Change, error.message.clone()));
        let names = (volume.pool.name(), volume.space.name().to_string());
        let known = KnownShare { volume: names, record: record.clone(), trouble, probed: Vec::new() };
        self.known.note(mark, known);
        done
    }

    async fn put_on_servers(
        &self,
        volume: &Volume,
        mark: ShareMark,
        record: &ShareRecord,
        wait: Wait,
    ) -> Answer<Vec<String>> {
        let servers = self.servers().await?;
        let device = self.device_of(volume)?;
        let offered = record.offered_by(self.host);
        let order = PutShare { volume: shared(volume, device), mark, record: offered, servers };
        match self.workers.run(volume.key, &volume.name, Operation::SharePut(order), wait).await? {
            Outcome::Shared { notes, is_changed } => {
                if is_changed {
                    let share = record.name.as_str();
                    tracing::info!(volume = volume.name, share, "servers offer the share as its record says");
                }
                Ok(notes)
            }
            other => Err(unexpected("a share", &other)),
        }
    }

    /// Takes a share off the servers.
    pub(super) async fn remove_share(&self, volume: &Volume, mark: ShareMark, wait: Wait) -> Answer<()> {
        self.remove_mark(volume.key, &volume.name, mark, wait).await
    }

    /// Takes a share off the servers by its identity, also where its pool is not open.
    async fn remove_mark(&self, volume: SpaceKey, name: &str, mark: ShareMark, wait: Wait) -> Answer<()> {
        let servers = self.servers().await?;
        let operation = Operation::ShareRemove(RemoveShare { mark, servers });
        match self.workers.run(volume, name, operation, wait).await? {
            Outcome::Shared { .. } => Ok(()),
            other => Err(unexpected("the removal of a share", &other)),
        }
    }

    /// Looks as a client whether servers offer a share, and notes the finding. A look that could not begin finds nothing.
    pub(super) async fn probe_share(&self, volume: &Volume, mark: ShareMark, record: &ShareRecord) {
        let found = match self.probe_servers(volume, mark, record).await {
            Ok((probed, is_taken_off)) => {
                self.known.note_taken_off(mark, is_taken_off);
                Ok(probed)
            }
            Err(Unanswered::NotBegun(_)) => return,
            Err(Unanswered::Failed(error) | Unanswered::Printed { error, .. }) => Err(error.message),
        };
        self.known.note_probe(mark, found);
    }

    /// Puts a share again that a look took off. Its folder may be there again; where it is not, nothing is changed.
    pub(super) async fn put_again(&self, volume: &Volume, mark: ShareMark) {
        if !self.known.is_taken_off(mark) {
            return;
        }
        // A change that is under way puts it.
        let mutex = self.locks.of(volume.key, Lane::Shares);
        let Some(_exclusive) = mutex.try_take() else { return };
        let Some(known) = self.known.of(mark).filter(|_| self.known.is_taken_off(mark)) else { return };
        let share = known.record.name.as_str();
        match self.put_on_servers(volume, mark, &known.record, Wait::Request).await {
            Ok(_) => self.known.note_taken_off(mark, false),
            Err(error) => {
                tracing::debug!(volume = volume.name, share, %error, "the share is not offered again");
            }
        }
    }

    async fn probe_servers(
        &self,
        volume: &Volume,
        mark: ShareMark,
        record: &ShareRecord,
    ) -> Result<(Vec<Probed>, bool), Unanswered> {
        let order = self.look_at(volume, mark, record).await.map_err(Unanswered::Failed)?;
        let operation = Operation::ShareProbe(order);
        match self.workers.ask(volume.key, &volume.name, operation, Wait::Request).await? {
            Outcome::Probed { protocols, is_taken_off } => Ok((protocols, is_taken_off)),
            other => Err(Unanswered::Failed(unexpected("a look at a share", &other))),
        }
    }

    /// Returns the process that changes the shares of a volume or looks at them, in words.
    pub(super) fn busy_with(&self, volume: &Volume) -> Option<String> {
        let worker = self.workers.at_work_in(volume.key, Lane::Shares)?;
        Some(format!("process {} is at {}", worker.pid, worker.operation))
    }

    /// Returns the order to look at a share of a mounted volume.
    pub(super) async fn look_at(
        &self,
        volume: &Volume,
        mark: ShareMark,
        record: &ShareRecord,
    ) -> Answer<LookAtShare> {
        let servers = self.servers().await?;
        let device = self.device_of(volume)?;
        let offered = record.offered_by(self.host);
        Ok(LookAtShare { volume: shared(volume, device), mark, record: offered, servers })
    }

    fn device_of(&self, volume: &Volume) -> Answer<PathBuf> {
        let device = self.transports.find(volume.key).map(|shown| shown.device().clone());
        device.ok_or_else(|| {
            let name = &volume.name;
            let message = format!("volume {name} is not mounted, so no server offers its shares");
            let hint = format!("`dolmen volume mount {name}` mounts it");
            ErrorBody::new(ErrorCode::Busy, message).on(name).hint(hint)
        })
    }

    /// Puts the shares of a volume that was mounted, and looks at them. Failures stand in the health of the shares. Those of a pool
    /// that is open for reading are not offered: the rights on record cannot be changed there.
    ///
    /// It takes the lock of the shares of the volume.
    pub(in crate::volumes) async fn serve(&self, volume: &Volume, wait: Wait) {
        if volume.pool.mode == ImportMode::Read {
            return;
        }
        let mutex = self.locks.of(volume.key, Lane::Shares);
        let _exclusive = mutex.take().await;
        let shares = match shares_of(&volume.space).await {
            Ok(shares) => shares,
            Err(error) => {
                tracing::error!(volume = volume.name, %error, "the shares of the volume are not known");
                return;
            }
        };
        // A host that crashed may find its volume changed elsewhere meanwhile.
        if wait == Wait::UntilDone
            && let Err(error) = self.remove_unrecorded(volume, &shares).await
        {
            tracing::warn!(volume = volume.name, %error, "shares without a record may still be on servers");
        }
        for share in &shares {
            let Some(mark) = mark_of(volume.key.pool, &volume.space, share.number) else { continue };
            match &share.record {
                Ok(record) => match self.put_share(volume, mark, record, wait).await {
                    Ok(_) if record.desired == DesiredShare::Served => {
                        self.probe_share(volume, mark, record).await;
                    }
                    Ok(_) => self.end_deletion(volume, mark, share.number).await,
                    Err(error) => {
                        let share = record.name.as_str();
                        tracing::error!(volume = volume.name, share, %error, "the share is not offered");
                    }
                },
                Err(why) => {
                    let number = share.number;
                    tracing::error!(volume = volume.name, number, why, "a share is not understood");
                }
            }
        }
    }

    /// Deletes the record of a share whose deletion was cut short; servers have just given the share up.
    async fn end_deletion(&self, volume: &Volume, mark: ShareMark, number: u64) {
        self.known.forget(mark);
        match numbered::delete(&volume.space, SHARE, number, &volume.name).await {
            Ok(()) => {
                tracing::info!(
                    volume = volume.name,
                    number,
                    "a deletion of a share that was cut short is ended"
                );
            }
            Err(error) => {
                tracing::error!(volume = volume.name, number, %error, "the record of a deleted share stays");
            }
        }
    }

    /// Takes shares of a volume off the servers that have no record.
    async fn remove_unrecorded(&self, volume: &Volume, shares: &[Numbered<ShareRecord>]) -> Answer<()> {
        let marks = self.listed(volume.key, &volume.name).await?;
        let is_own = |mark: &ShareMark| (mark.pool, mark.space) == (volume.key.pool, volume.key.space.0);
        let is_recorded = |mark: &ShareMark| shares.iter().any(|share| share.number == u64::from(mark.share));
        for mark in marks.into_iter().filter(|mark| is_own(mark) && !is_recorded(mark)) {
            self.remove_share(volume, mark, Wait::UntilDone).await?;
            tracing::warn!(volume = volume.name, share = mark.share, "servers had a share without a record");
        }
        Ok(())
    }

    /// Lists the shares of Dolmen that the servers have. The process goes in the lane of a volume.
    async fn listed(&self, lane_of: SpaceKey, name: &str) -> Answer<Vec<ShareMark>> {
        let servers = self.servers().await?;
        let looked = servers.clone();
        let is_any = self.looker.run(move || Ok(host::is_any(&looked))).await;
        if matches!(is_any, Ok(false)) {
            return Ok(Vec::new());
        }
        let operation = Operation::ShareList { servers };
        let run = self.workers.run(lane_of, name, operation, Wait::UntilDone);
        let Outcome::Shares { shares: listed } = run.await? else { return Ok(Vec::new()) };
        let mut marks: Vec<ShareMark> = listed.iter().filter_map(|listed| listed.mark).collect();
        marks.sort_unstable();
        marks.dedup();
        Ok(marks)
    }

    /// Takes shares off the servers whose volumes are not mounted, also those of pools that are not open.
    ///
    /// The configuration of a server survives a crash of the host, and the mount does not. The server would offer the folder below
    /// the mount point, of another file system. A mount puts its shares again.
    pub(in crate::volumes) async fn remove_unmounted(&self) {
        if mutation!(UnmountedShareKept) {
            return;
        }
        let marks = match self.listed(ANY_VOLUME, "of any pool").await {
            Ok(marks) => marks,
            Err(error) => {
                tracing::error!(%error, "servers may still offer shares of volumes that are not mounted");
                return;
            }
        };
        for mark in marks {
            let volume = SpaceKey { pool: mark.pool, space: SpaceId(mark.space) };
            let mutex = self.locks.of(volume, Lane::Shares);
            let _exclusive = mutex.take().await;
            if self.uses.mounted_at(volume).is_some() {
                continue;
            }
            let (pool, space, share) = (mark.pool, mark.space, mark.share);
            match self.remove_mark(volume, &format!("{pool}/{space}"), mark, Wait::UntilDone).await {
                Ok(()) => {
                    tracing::warn!(%pool, space, share, "servers had a share of a volume that is not mounted")
                }
                Err(error) => {
                    tracing::error!(%pool, space, share, %error, "servers still offer a share of a volume that is not mounted");
                }
            }
        }
    }

    /// Accepts the rights over NFS that another host gave on the shares of a pool.
    pub(in crate::volumes) async fn accept_all(&self, pool: &Rc<OpenPool>) -> Answer<()> {
        for space in pool.spaces.list() {
            let name = format!("{}/{}", pool.name(), space.name());
            let mut puts = Vec::new();
            for (number, mut record) in self.held_on(&space).await? {
                record.accept(self.host);
                puts.push(attribute(SHARE, number, record.encode(), &name)?);
            }
            if !puts.is_empty() {
                numbered::put(&space, puts, &name).await?;
            }
        }
        Ok(())
    }

    /// Returns which shares of a pool have rights over NFS that are held, in words.
    pub(in crate::volumes) async fn held_in(&self, pool: &Rc<OpenPool>) -> Answer<Vec<String>> {
        let mut held = Vec::new();
        for space in pool.spaces.list() {
            let name = format!("{}/{}", pool.name(), space.name());
            let shares = self.held_on(&space).await?;
            let in_words = shares.iter().map(|(_, record)| held_text(&name, record));
            held.extend(in_words);
        }
        Ok(held)
    }

    async fn held_on(&self, space: &Space) -> Answer<Vec<(u64, ShareRecord)>> {
        let shares = shares_of(space).await?.into_iter();
        let known = shares.filter_map(|share| Some((share.number, share.record.ok()?)));
        Ok(known.filter(|(_, record)| record.is_held(self.host)).collect())
    }

    /// Returns whether servers may offer shares of a volume.
    pub(in crate::volumes) fn is_offered(&self, volume: SpaceKey) -> bool {
        !self.known.of_volume(volume).is_empty()
    }

    /// Takes the shares of a volume off that is not mounted any more. One that stays is down, and is tried again.
    pub(in crate::volumes) async fn remove_offered(&self, volume: SpaceKey, name: &str) {
        let mutex = self.locks.of(volume, Lane::Shares);
        let _exclusive = mutex.take().await;
        for (mark, record) in self.known.of_volume(volume) {
            match self.remove_mark(volume, name, mark, Wait::Request).await {
                Ok(()) => self.known.forget(mark),
                Err(error) => {
                    let share = record.name.as_str();
                    tracing::error!(volume = name, share, %error, "servers offer a share of a volume that is not mounted");
                    self.known.note_unchanged(mark, error.message);
                }
            }
        }
    }

    /// Returns the steps of [`withdraw`](Self::withdraw), in words.
    pub(in crate::volumes) async fn steps_of_withdrawal(&self, volume: &Volume) -> Answer<Vec<String>> {
        let shares = shares_of(&volume.space).await?;
        let names = shares.iter().map(|share| match &share.record {
            Ok(record) => record.name.to_string(),
            Err(_) => format!("of record {}", share.number),
        });
        Ok(names
            .map(|name| format!("take share {name} off its servers, which ends its connections"))
            .collect())
    }

    /// Takes the shares of a volume off the servers, so that it can be unmounted. Their records stay. `users` returns the
    /// processes that use the volume. The caller holds the lock of the shares of the volume.
    ///
    /// # Errors
    /// A server could not be changed, or a process of it did not leave the volume. The caller puts the shares again.
    pub(in crate::volumes) async fn withdraw(
        &self,
        volume: &Volume,
        users: impl AsyncFn() -> Answer<Vec<String>>,
    ) -> Answer<()> {
        if mutation!(UnmountedWhileShared) {
            return Ok(());
        }
        let shares = shares_of(&volume.space).await?;
        // What a record of a later version offers is not known; its identity is.
        let numbers = shares.iter().map(|share| share.number);
        for mark in numbers.filter_map(|number| mark_of(volume.key.pool, &volume.space, number)) {
            self.remove_share(volume, mark, Wait::Request).await.map_err(|error| {
                let message =
                    format!("volume {} stays mounted, since its shares stay: {}", volume.name, error.message);
                ErrorBody { message, ..error }
            })?;
        }
        if shares.is_empty() {
            return Ok(());
        }
        for _ in 0..LOOKS_MAX {
            if users().await?.is_empty() {
                break;
            }
            sleep(self.seams.clock.as_ref(), LOOK_PAUSE).await;
        }
        self.known.forget_volume(volume.key);
        Ok(())
    }

    /// Looks at the shares of the mounted volumes of a pool; findings come in later.
    pub(in crate::volumes) fn look_at_shares(self: &Rc<Self>, pool: &Rc<OpenPool>) {
        for space in pool.spaces.list() {
            let key = key_of(pool, &space);
            let shares = self.known.of_volume(key);
            let is_idle =
                self.uses.mounted_at(key).is_some() && self.workers.at_work_in(key, Lane::Shares).is_none();
            if shares.is_empty() || !is_idle {
                continue;
            }
            let (servers, pool) = (Rc::clone(self), Rc::clone(pool));
            let looking = async move {
                let Ok(Some(Found::Known(record))) = records::read(&space).await else { return };
                let name = format!("{}/{}", pool.name(), space.name());
                let volume = Volume { pool, space, key, name, record: *record };
                for (mark, record) in shares {
                    servers.put_again(&volume, mark).await;
                    servers.probe_share(&volume, mark, &record).await;
                }
            };
            self.seams.spawner.spawn("shares", Box::pin(looking));
        }
    }
}

/// Returns users of a volume that stay when its shares are taken off.
pub(in crate::volumes) async fn but_servers(volume: &Volume, users: Vec<String>) -> Answer<Vec<String>> {
    if !users.iter().any(|user| is_server(user)) || shares_of(&volume.space).await?.is_empty() {
        return Ok(users);
    }
    Ok(users.into_iter().filter(|user| !is_server(user)).collect())
}

/// Returns whether a process, as `users` words it, is one of a server.
fn is_server(user: &str) -> bool {
    let name = user.find('(').and_then(|at| user.get(at..)).unwrap_or_default();
    SERVERS.iter().any(|server| name.starts_with(server))
}

/// Returns why the rights over NFS of a share are held, and the command that accepts them.
pub(super) fn held_text(volume: &str, record: &ShareRecord) -> String {
    let by = record
        .granted_by
        .map_or_else(|| "a host that is not on record".to_owned(), |host| format!("host {}", host.short()));
    let share = record.name.as_str();
    let accept = share_command("accept", &[], volume, share, &[]);
    let clients: Vec<String> = record.networks.iter().map(|grant| grant.client.to_string()).collect();
    format!(
        "share {share} is held over NFS: {by} gave its rights, and {} may be other machines here; \
         `{accept}` offers it",
        clients.join(", ")
    )
}

fn shared(volume: &Volume, device: PathBuf) -> SharedVolume {
    SharedVolume {
        name: volume.name.clone(),
        mount_point: volume.record.mount_point.clone(),
        file_system: volume.record.file_system,
        device: Some(device),
    }
}

#[cfg(test)]
mod tests {
    use super::is_server;

    #[test]
    fn processes_of_servers_are_known_by_their_names() {
        for user in ["process 7 (smbd)", "process 7 (smbd[127.0.0.1])", "process 7 (ganesha.nfsd)"] {
            assert!(is_server(user), "{user}");
        }
        for user in ["process 7 (bash)", "process 7 (my-smbd)", "process 7", ""] {
            assert!(!is_server(user), "{user}");
        }
    }
}
