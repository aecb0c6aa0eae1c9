//! Shares created and deleted, and their rights.
//!
//! Steps of a creation: the record, the servers, a look at them. A refusal of a server takes the record back. Steps of a deletion:
//! `off` on record, the servers, the record; the next mount ends one that is cut short. A grant that a server refuses is taken
//! back; a revocation is not, so that no later start lets the account in again.
//!
//! Each of these holds the lock of the shares of its volume, and no other: a job that has the volume for hours delays no revocation.

use std::rc::Rc;

use dolmen_api::{
    Change, CreateShare, ErrorBody, ErrorCode, GrantShare, RevokeShare, ShareAccountGrant, ShareNetworkGrant,
    Simple,
};
use dolmen_mutation::mutation;
use dolmen_units::Bytes;
use dolmen_volume::mount_point::Folder;
use dolmen_volume::nfs::Client;
use dolmen_volume::record::{
    AccountGrant, DesiredShare, Encryption, NetworkGrant, Protocol, ShareRecord, Unknown,
};
use dolmen_volume::samba::{AccountName, ShareName};

use crate::answer::Answer;
use crate::open_pool::{OpenPool, key_of};
use crate::plan::{Undo, made, planned};
use crate::volumes::locks::Lane;
use crate::volumes::numbered::{self, SHARE, attribute};
use crate::volumes::service::pool_to_change;
use crate::volumes::shares::commands::{create_command, revoke_networks_command, share_command, undo_of};
use crate::volumes::shares::serving::{held_text, mark_of, shares_of};
use crate::volumes::shares::view::{FoundShare, VolumeShares};
use crate::volumes::shares::words::{access_name, access_of, kind_name, kind_of, protocol_name, protocol_of};
use crate::volumes::volume::Volume;
use crate::volumes::workers::Wait;

/// Grants of one share, at most: its record has to fit the map.
const GRANTS_MAX: usize = 64;
/// Bound of Time Machine, at least: the first pieces of a backup need more.
const TIME_MACHINE_BYTES_MIN: Bytes = Bytes(1 << 30);

/// What came of a change of the servers.
struct Served {
    notes: Vec<String>,
    is_mounted: bool,
}

impl VolumeShares {
    pub(crate) async fn create_share(
        &self,
        pool: String,
        space: String,
        request: CreateShare,
    ) -> Answer<Change> {
        let pool = pool_to_change(&self.volumes.pools, &pool)?;
        let volume = self.volumes.find(&pool, &space).await?;
        let name = volume.name.clone();
        volume.check_whole()?;
        self.check_not_served(&volume)?;
        let mut record = record_of(&name, &request)?;
        if !record.networks.is_empty() {
            record.accept(self.servers.host);
        }
        let share = record.name.to_string();
        self.check_share_name(&volume, &record, None).await?;
        self.servers.check_nfs(&name, &record).await?;
        let undo = Undo::By(share_command("delete", &[], &name, &share, &[]));
        let plan = pool.plan(undo, steps_of(&volume, &record));
        if request.dry_run {
            let mut change = planned(plan, format!("share {share} of volume {name} would be created"));
            change.warnings.extend(of_nfs(&name, &record));
            return Ok(change);
        }
        let mutex = self.volumes.locks.of(volume.key, Lane::Shares);
        let _exclusive = self.volumes.workers.turn_in(Lane::Shares, &mutex, volume.key, &name).await?;
        let volume = self.volumes.again(volume).await?;
        self.check_share_name(&volume, &record, None).await?;
        let number = numbered::draw(self.volumes.seams.entropy.as_ref(), &shares_of(&volume.space).await?);
        let mark = mark_of(volume.key.pool, &volume.space, number.into())
            .ok_or_else(|| ErrorBody::new(ErrorCode::Internal, "a number of a share has 32 bits"))?;
        let found = FoundShare { mark, number: number.into(), record };
        put_record(&volume, &found).await?;
        let served = match self.serve(&volume, &found).await {
            Ok(served) => served,
            Err(error) => return Err(self.take_share_back(&volume, &found, error).await),
        };
        let message = match served.is_mounted {
            true => format!("share {share} of volume {name} is created"),
            false => {
                format!("share {share} of volume {name} is created; servers offer it once it is mounted")
            }
        };
        let mut change = made(plan, message);
        change.warnings.extend(served.notes);
        change.warnings.extend(without_grants(&found.record));
        change.warnings.extend(of_nfs(&name, &found.record));
        change.share = Some(self.view_share(&volume, &found));
        Ok(change)
    }

    pub(crate) async fn grant_share(
        &self,
        pool: String,
        space: String,
        share: String,
        request: GrantShare,
    ) -> Answer<Change> {
        let granted = |record: &mut ShareRecord, name: &str| {
            for grant in accounts_of(name, &request.accounts)? {
                record.accounts.retain(|old| (old.to, &old.name) != (grant.to, &grant.name));
                record.accounts.push(grant);
                add_protocol(record, Protocol::Smb);
            }
            let networks = networks_of(name, &request.networks)?;
            if !networks.is_empty() {
                self.check_not_held(record, name)?;
                record.accept(self.servers.host);
            }
            for grant in networks {
                record.networks.retain(|old| old.client != grant.client);
                record.networks.push(grant);
                add_protocol(record, Protocol::Nfs);
            }
            check_count(record, name)
        };
        self.change_rights(pool, space, share, (request.dry_run, true), granted).await
    }

    pub(crate) async fn revoke_share(
        &self,
        pool: String,
        space: String,
        share: String,
        request: RevokeShare,
    ) -> Answer<Change> {
        let revoked = |record: &mut ShareRecord, name: &str| {
            for account in &request.accounts {
                let account_name = account_name(name, &account.name)?;
                record.accounts.retain(|old| (old.to, &old.name) != (kind_of(account.to), &account_name));
            }
            for client in &request.clients {
                let client = client_of(name, client)?;
                record.networks.retain(|old| old.client != client);
            }
            Ok(())
        };
        self.change_rights(pool, space, share, (request.dry_run, false), revoked).await
    }

    /// Accepts the rights over NFS that another host gave.
    pub(crate) async fn accept_share(
        &self,
        pool: String,
        space: String,
        share: String,
        request: Simple,
    ) -> Answer<Change> {
        let host = self.servers.host;
        let accepted = |record: &mut ShareRecord, _: &str| {
            if record.is_held(host) {
                record.accept(host);
            }
            Ok(())
        };
        self.change_rights(pool, space, share, (request.dry_run, true), accepted).await
    }

    /// Refuses another right over NFS on a share whose rights are held: the new one would stand for those that nobody accepted.
    fn check_not_held(&self, record: &ShareRecord, name: &str) -> Answer<()> {
        if !record.is_held(self.servers.host) {
            return Ok(());
        }
        let message = format!("{}; nothing was changed", held_text(name, record));
        let hint = format!("accept its rights first, or `{}`", revoke_networks_command(name, record));
        Err(ErrorBody::new(ErrorCode::NeedsConfirmation, message).on(name).hint(hint))
    }

    /// Changes the rights of a share on record and on the servers.
    async fn change_rights(
        &self,
        pool: String,
        space: String,
        share: String,
        (dry_run, is_grant): (bool, bool),
        change: impl Fn(&mut ShareRecord, &str) -> Answer<()>,
    ) -> Answer<Change> {
        let pool = pool_to_change(&self.volumes.pools, &pool)?;
        let volume = self.volumes.find(&pool, &space).await?;
        let name = volume.name.clone();
        volume.check_whole()?;
        let mutex = self.volumes.locks.of(volume.key, Lane::Shares);
        let _exclusive = self.volumes.workers.turn_in(Lane::Shares, &mutex, volume.key, &name).await?;
        let volume = self.volumes.again(volume).await?;
        let before = self.find_share(&volume, &share).await?;
        let mut record = before.record.clone();
        if record.desired == DesiredShare::Off {
            let message =
                format!("share {} of volume {name} is being deleted; nothing was changed", record.name);
            let delete = share_command("delete", &[], &name, record.name.as_str(), &[]);
            let hint = format!("`{delete}` ends that");
            return Err(ErrorBody::new(ErrorCode::Busy, message).on(name).hint(hint));
        }
        change(&mut record, &name)?;
        let shown = record.name.to_string();
        // A change that a server refused before is asked for again.
        if same_rights(&record, &before.record) && !self.servers.known.is_unchanged(before.mark) {
            let plan = pool.plan(Undo::NotNeeded, Vec::new());
            let mut change =
                planned(plan, format!("share {shown} of volume {name} has these rights already"));
            change.share = Some(self.view_share(&volume, &before));
            return Ok(change);
        }
        let undo = undo_of(&before.record, &record, &name);
        let after = FoundShare { mark: before.mark, number: before.number, record };
        self.check_share_name(&volume, &after.record, Some(after.number)).await?;
        if is_grant {
            self.servers.check_nfs(&name, &after.record).await?;
        }
        let plan = pool.plan(undo, steps_of(&volume, &after.record));
        let of_nfs = if is_grant { of_nfs(&name, &after.record) } else { Vec::new() };
        if dry_run {
            let message = format!("the rights on share {shown} of volume {name} would be changed");
            let mut change = planned(plan, message);
            change.warnings.extend(of_nfs);
            return Ok(change);
        }
        put_record(&volume, &after).await?;
        let served = match self.serve(&volume, &after).await {
            Ok(served) => served,
            Err(error) if is_grant => {
                let before = self.former(&volume, &after, before.record).await;
                return Err(error_after(error, before));
            }
            Err(error) => {
                let message = format!(
                    "the rights are revoked on record, and servers may still give them: {}",
                    error.message
                );
                return Err(ErrorBody { message, ..error });
            }
        };
        let mut change = made(plan, format!("the rights on share {shown} of volume {name} are changed"));
        change.warnings.extend(served.notes);
        change.warnings.extend(without_grants(&after.record));
        change.warnings.extend(of_nfs);
        change.share = Some(self.view_share(&volume, &after));
        Ok(change)
    }

    pub(crate) async fn delete_share(
        &self,
        pool: String,
        space: String,
        share: String,
        request: Simple,
    ) -> Answer<Change> {
        let pool = pool_to_change(&self.volumes.pools, &pool)?;
        let volume = self.volumes.find(&pool, &space).await?;
        let name = volume.name.clone();
        let found = self.find_share(&volume, &share).await?;
        let shown = found.record.name.to_string();
        let steps = found.record.protocols.iter().map(|protocol| {
            format!(
                "take share {shown} off the server for {}, which ends its connections",
                protocol_name(*protocol)
            )
        });
        let steps =
            steps.chain([format!("delete its record; folder {:?} stays", found.record.folder.as_str())]);
        let plan = pool.plan(Undo::By(create_command(&name, &found.record)), steps.collect());
        if request.dry_run {
            return Ok(planned(plan, format!("share {shown} of volume {name} would be deleted")));
        }
        let mutex = self.volumes.locks.of(volume.key, Lane::Shares);
        let _exclusive = self.volumes.workers.turn_in(Lane::Shares, &mutex, volume.key, &name).await?;
        let volume = self.volumes.again(volume).await?;
        // Its rights may be others by now, and so may the share of this name.
        let mut found = self.find_share(&volume, &share).await?;
        found.record.desired = DesiredShare::Off;
        put_record(&volume, &found).await?;
        if !mutation!(ShareRecordDeletedFirst) {
            self.servers.remove_share(&volume, found.mark, Wait::Request).await?;
        }
        numbered::delete(&volume.space, SHARE, found.number, &name).await?;
        self.servers.known.forget(found.mark);
        Ok(made(plan, format!("share {shown} of volume {name} is deleted; its folder stays")))
    }

    /// Lets servers offer a share whose volume is mounted, and looks at it.
    async fn serve(&self, volume: &Volume, found: &FoundShare) -> Answer<Served> {
        let (_, mounted) = self.volumes.mount_of(volume.key).await?;
        if mounted.is_none() {
            return Ok(Served { notes: Vec::new(), is_mounted: false });
        }
        let notes = self.servers.put_share(volume, found.mark, &found.record, Wait::Request).await?;
        self.servers.probe_share(volume, found.mark, &found.record).await;
        Ok(Served { notes, is_mounted: true })
    }

    /// Takes a share back that a server refused, and returns the refusal.
    async fn take_share_back(&self, volume: &Volume, found: &FoundShare, error: ErrorBody) -> ErrorBody {
        let taken = async {
            self.servers.remove_share(volume, found.mark, Wait::Request).await?;
            numbered::delete(&volume.space, SHARE, found.number, &volume.name).await
        };
        let taken = taken.await;
        if taken.is_ok() {
            self.servers.known.forget(found.mark);
        }
        error_after(error, taken)
    }

    /// Restores the record of a share that a server refused to change, and puts it again.
    async fn former(&self, volume: &Volume, after: &FoundShare, record: ShareRecord) -> Answer<()> {
        let before = FoundShare { mark: after.mark, number: after.number, record };
        put_record(volume, &before).await?;
        self.serve(volume, &before).await.map(drop)
    }

    /// Refuses to share a volume whose space is served raw: its clients see the blocks change below them.
    fn check_not_served(&self, volume: &Volume) -> Answer<()> {
        let is_it = |served: &Rc<crate::exports::Served>| {
            served.pool == volume.key.pool && served.space.id() == volume.space.id()
        };
        if !self.nbd.list().iter().any(is_it) {
            return Ok(());
        }
        let name = &volume.name;
        let message =
            format!("volume {name} cannot be shared while its space is served over NBD; nothing was changed");
        let hint = format!("`dolmen unserve {name}` first");
        Err(ErrorBody::new(ErrorCode::Busy, message).on(name).hint(hint))
    }

    /// Refuses a name that another share has: of this volume, or over SMB of any volume of this host.
    async fn check_share_name(&self, volume: &Volume, record: &ShareRecord, own: Option<u64>) -> Answer<()> {
        for pool in self.volumes.pools.open_pools() {
            for space in pool.spaces.list() {
                let is_same_volume = key_of(&pool, &space) == volume.key;
                for share in shares_of(&space).await? {
                    let Ok(other) = &share.record else { continue };
                    if !other.name.names_section(record.name.as_str())
                        || is_same_volume && own == Some(share.number)
                    {
                        continue;
                    }
                    let is_smb = |one: &ShareRecord| one.protocols.contains(&Protocol::Smb);
                    if is_same_volume || is_smb(other) && is_smb(record) {
                        return Err(taken(volume, record, &pool, space.name().as_str()));
                    }
                }
            }
        }
        Ok(())
    }
}

fn taken(volume: &Volume, record: &ShareRecord, pool: &OpenPool, other: &str) -> ErrorBody {
    let message = format!(
        "volume {} cannot have the share {}: volume {}/{other} has a share of this name; nothing was changed",
        volume.name,
        record.name,
        pool.name()
    );
    ErrorBody::new(ErrorCode::NameTaken, message).on(&volume.name).hint("choose another name")
}

/// Adds to a refusal that what was changed before it could not be taken back.
fn error_after(error: ErrorBody, taken_back: Answer<()>) -> ErrorBody {
    match taken_back {
        Ok(()) => error,
        Err(second) => {
            let message =
                format!("{}; what was changed before could not be taken back: {second}", error.message);
            ErrorBody { message, ..error }
        }
    }
}

async fn put_record(volume: &Volume, found: &FoundShare) -> Answer<()> {
    let put = attribute(SHARE, found.number, found.record.encode(), &volume.name)?;
    numbered::put(&volume.space, vec![put], &volume.name).await
}

fn bad(name: &str, error: &dyn std::fmt::Display) -> ErrorBody {
    ErrorBody::new(ErrorCode::BadRequest, format!("volume {name}: {error}; nothing was changed")).on(name)
}

fn account_name(name: &str, text: &str) -> Answer<AccountName> {
    text.parse().map_err(|error: dolmen_volume::samba::NameError| bad(name, &error))
}

fn client_of(name: &str, text: &str) -> Answer<Client> {
    text.parse().map_err(|error: dolmen_volume::nfs::ClientError| bad(name, &error))
}

fn accounts_of(name: &str, grants: &[ShareAccountGrant]) -> Answer<Vec<AccountGrant>> {
    let grant = |grant: &ShareAccountGrant| {
        Ok(AccountGrant {
            to: kind_of(grant.to),
            name: account_name(name, &grant.name)?,
            access: access_of(grant.access),
            unknown: Unknown::new(),
        })
    };
    grants.iter().map(grant).collect()
}

fn networks_of(name: &str, grants: &[ShareNetworkGrant]) -> Answer<Vec<NetworkGrant>> {
    let grant = |grant: &ShareNetworkGrant| {
        Ok(NetworkGrant {
            client: Client::parse_granted(&grant.client).map_err(|error| bad(name, &error))?,
            access: access_of(grant.access),
            unknown: Unknown::new(),
        })
    };
    grants.iter().map(grant).collect()
}

fn add_protocol(record: &mut ShareRecord, protocol: Protocol) {
    if !record.protocols.contains(&protocol) {
        record.protocols.push(protocol);
    }
}

fn check_count(record: &ShareRecord, name: &str) -> Answer<()> {
    let count = record.accounts.len() + record.networks.len();
    if count <= GRANTS_MAX {
        return Ok(());
    }
    let finding = format!("share {} would have {count} grants, and {GRANTS_MAX} are allowed", record.name);
    Err(bad(name, &finding).hint("grant groups and networks"))
}

/// Returns whether two records grant the same, in any order.
fn same_rights(one: &ShareRecord, other: &ShareRecord) -> bool {
    let has = |record: &ShareRecord, grant: &AccountGrant| record.accounts.contains(grant);
    let lets = |record: &ShareRecord, grant: &NetworkGrant| record.networks.contains(grant);
    one.protocols == other.protocols
        && one.granted_by == other.granted_by
        && (one.accounts.len(), one.networks.len()) == (other.accounts.len(), other.networks.len())
        && one.accounts.iter().all(|grant| has(other, grant))
        && one.networks.iter().all(|grant| lets(other, grant))
}

/// Reads the record of a new share.
fn record_of(name: &str, request: &CreateShare) -> Answer<ShareRecord> {
    let share: ShareName =
        request.name.parse().map_err(|error: dolmen_volume::samba::NameError| bad(name, &error))?;
    let folder: Folder = request
        .folder
        .as_deref()
        .unwrap_or_default()
        .parse()
        .map_err(|error: dolmen_volume::mount_point::PathError| bad(name, &error))?;
    let mut protocols: Vec<Protocol> = request.protocols.iter().map(|one| protocol_of(*one)).collect();
    protocols.sort_unstable();
    protocols.dedup();
    let (accounts, networks) = (accounts_of(name, &request.accounts)?, networks_of(name, &request.networks)?);
    let lacks = |protocol, is_granted: bool| is_granted && !protocols.contains(&protocol);
    if protocols.is_empty() {
        return Err(bad(name, &format!("share {share} has no protocol")).hint("name smb, nfs or both"));
    }
    if lacks(Protocol::Smb, !accounts.is_empty()) || lacks(Protocol::Nfs, !networks.is_empty()) {
        let finding = format!("share {share} grants rights of a protocol that it has not");
        return Err(bad(name, &finding).hint("accounts are of SMB, networks of NFS; name both protocols"));
    }
    let time_machine_bytes = request.time_machine_bytes;
    if let Some(bytes) = time_machine_bytes {
        if !protocols.contains(&Protocol::Smb) {
            let finding = format!("share {share} offers Time Machine without SMB");
            return Err(bad(name, &finding).hint("offer it over SMB too"));
        }
        if bytes < TIME_MACHINE_BYTES_MIN.0 {
            let finding = format!("the bound {} of Time Machine is too small for a backup", Bytes(bytes));
            return Err(bad(name, &finding).hint(format!("give it {TIME_MACHINE_BYTES_MIN} or more")));
        }
    }
    let encryption = if request.is_encryption_optional { Encryption::Desired } else { Encryption::Required };
    let unknown = Unknown::new();
    let desired = DesiredShare::Served;
    let record = ShareRecord {
        name: share,
        folder,
        protocols,
        desired,
        accounts,
        encryption,
        time_machine_bytes,
        networks,
        granted_by: None,
        unknown,
    };
    check_count(&record, name)?;
    Ok(record)
}

/// Returns a warning about protocols that let no client in.
fn without_grants(record: &ShareRecord) -> Option<String> {
    let lets_in = |protocol: &Protocol| match protocol {
        Protocol::Smb => !record.accounts.is_empty(),
        Protocol::Nfs => !record.networks.is_empty(),
    };
    let closed: Vec<&str> =
        record.protocols.iter().filter(|one| !lets_in(one)).map(|one| protocol_name(*one)).collect();
    (!closed.is_empty()).then(|| {
        format!(
            "share {} lets no client in over {}, since it has no grant",
            record.name,
            closed.join(" and ")
        )
    })
}

/// Returns warnings about what NFS does not protect.
fn of_nfs(name: &str, record: &ShareRecord) -> Vec<String> {
    if record.networks.is_empty() {
        return Vec::new();
    }
    let share = &record.name;
    let mut warnings = vec![format!(
        "share {share} over NFS is neither encrypted nor authenticated: a host at a granted address acts as any user"
    )];
    if !record.folder.is_root() {
        warnings.push(format!(
            "NFS opens files by handles: a granted host may reach all of volume {name}, and not the folder {:?} alone",
            record.folder.as_str()
        ));
    }
    warnings
}

fn steps_of(volume: &Volume, record: &ShareRecord) -> Vec<String> {
    let path = volume.record.mount_point.join(&record.folder);
    let mut steps = vec![format!("put share {} of volume {} on record", record.name, volume.name)];
    let none = || "no client".to_owned();
    for protocol in &record.protocols {
        let (server, granted): (&str, Vec<String>) = match protocol {
            Protocol::Smb => (
                "Samba",
                record
                    .accounts
                    .iter()
                    .map(|one| {
                        format!("{} {} {}", kind_name(one.to), one.name.as_str(), access_name(one.access))
                    })
                    .collect(),
            ),
            Protocol::Nfs => (
                "the server for NFS",
                record
                    .networks
                    .iter()
                    .map(|one| format!("{} {}", one.client, access_name(one.access)))
                    .collect(),
            ),
        };
        let granted = if granted.is_empty() { none() } else { granted.join(", ") };
        steps.push(format!("let {server} offer {path} to {granted}, while the volume is mounted"));
    }
    steps.push("look at it as a client".to_owned());
    steps
}

#[cfg(test)]
mod tests {
    use dolmen_api::{ShareAccess, ShareAccountKind, ShareProtocol};

    use super::*;

    fn request() -> CreateShare {
        CreateShare {
            name: "docs".to_owned(),
            folder: None,
            protocols: vec![ShareProtocol::Nfs, ShareProtocol::Smb, ShareProtocol::Smb],
            accounts: Vec::new(),
            networks: Vec::new(),
            is_encryption_optional: false,
            time_machine_bytes: None,
            dry_run: false,
        }
    }

    #[test]
    fn a_new_share_has_the_protocols_and_rights_of_its_request() {
        let account = ShareAccountGrant {
            to: ShareAccountKind::Group,
            name: "staff".to_owned(),
            access: ShareAccess::ReadWrite,
        };
        let network = ShareNetworkGrant { client: "10.0.0.0/8".to_owned(), access: ShareAccess::ReadOnly };
        let asked = CreateShare { accounts: vec![account], networks: vec![network], ..request() };
        let record = record_of("tank/home", &asked).unwrap();
        assert_eq!(record.protocols, [Protocol::Smb, Protocol::Nfs]);
        assert_eq!((record.encryption, record.desired), (Encryption::Required, DesiredShare::Served));
        assert_eq!(without_grants(&record), None);
        let closed = without_grants(&record_of("tank/home", &request()).unwrap()).unwrap();
        assert!(closed.contains("over SMB and NFS"), "{closed}");
    }

    #[test]
    fn a_share_that_cannot_be_is_refused_by_what_is_wrong() {
        let refused = |request: CreateShare| record_of("tank/home", &request).unwrap_err();
        let grant = |client: &str| {
            vec![ShareNetworkGrant { client: client.to_owned(), access: ShareAccess::ReadOnly }]
        };
        let no_protocol = refused(CreateShare { protocols: Vec::new(), ..request() });
        assert!(no_protocol.message.contains("has no protocol"), "{no_protocol}");
        let only_smb =
            CreateShare { protocols: vec![ShareProtocol::Smb], networks: grant("10.0.0.0/8"), ..request() };
        assert!(refused(only_smb).message.contains("protocol that it has not"));
        let without_smb = CreateShare {
            protocols: vec![ShareProtocol::Nfs],
            time_machine_bytes: Some(1 << 40),
            ..request()
        };
        assert!(refused(without_smb).message.contains("without SMB"));
        let small = refused(CreateShare { time_machine_bytes: Some((1 << 30) - 1), ..request() });
        assert!(small.message.contains("too small"), "{small}");
        for (name, folder, client, part) in [
            ("a/b", "x", "10.0.0.0/8", "'/'"),
            ("a", "/x", "10.0.0.0/8", "within the volume"),
            ("a", "../x", "10.0.0.0/8", "\"..\""),
            ("a", "x", "10.0.0.1/8", "10.0.0.0/8 for all of it"),
            ("a", "x", "*", "name hosts or networks"),
            ("a", "x", "host", "write its full name"),
        ] {
            let asked = CreateShare {
                name: name.to_owned(),
                folder: Some(folder.to_owned()),
                networks: grant(client),
                ..request()
            };
            let error = refused(asked);
            assert!(error.message.contains(part), "{error}");
            assert_eq!(error.code, ErrorCode::BadRequest);
        }
        let many = vec![grant("10.0.0.0/8"); GRANTS_MAX + 1].concat();
        assert!(refused(CreateShare { networks: many, ..request() }).message.contains("64 are allowed"));
    }

    #[test]
    fn a_grant_over_nfs_warns_of_what_nfs_does_not_protect() {
        let network = ShareNetworkGrant { client: "10.0.0.0/8".to_owned(), access: ShareAccess::ReadOnly };
        let asked = |folder: &str| CreateShare {
            folder: Some(folder.to_owned()),
            networks: vec![network.clone()],
            ..request()
        };
        let warnings = |asked: &CreateShare| of_nfs("tank/home", &record_of("tank/home", asked).unwrap());
        assert!(warnings(&asked(""))[0].contains("neither encrypted nor authenticated"));
        let folder = warnings(&asked("docs"));
        assert!(folder[1].contains("all of volume tank/home"), "{folder:?}");
        assert_eq!(warnings(&request()), [""; 0], "no host was granted anything");
    }

    #[test]
    fn rights_in_another_order_are_the_same_rights() {
        let record = |clients: [&str; 2]| {
            let grants = clients
                .map(|client| ShareNetworkGrant { client: client.to_owned(), access: ShareAccess::ReadOnly });
            record_of("tank/home", &CreateShare { networks: grants.to_vec(), ..request() }).unwrap()
        };
        let one = record(["a.example", "b.example"]);
        assert!(same_rights(&one, &record(["b.example", "a.example"])));
        assert!(!same_rights(&one, &record(["a.example", "c.example"])));
    }
}
