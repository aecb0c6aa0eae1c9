//! The service of requests about shares, and shares as the API shows them.

use std::rc::Rc;

use dolmen_api::{
    ErrorBody, ErrorCode, Health, OfferedShare, SCHEMA, Share, ShareAccountGrant, ShareDocument,
    ShareNetworkGrant, ShareProtocol, ShareSession, ShareSessions, ShareState, ShareStep, Shares,
};
use dolmen_volume::record::{DesiredShare, Encryption, Protocol, ShareRecord, VolumeRecord};
use dolmen_volume::share_mark::ShareMark;
use dolmen_worker::protocol::{Operation, Outcome};
use dolmen_worker::shares::order::ProbeState;

use crate::answer::Answer;
use crate::base::Base;
use crate::exports::NbdServer;
use crate::open_pool::{OpenPool, key_of};
use crate::volumes::numbered::Numbered;
use crate::volumes::records::{self, Found};
use crate::volumes::service::Volumes;
use crate::volumes::shares::book::KnownShare;
use crate::volumes::shares::serving::{ShareServers, held_text, mark_of, shares_of};
use crate::volumes::shares::words::{
    protocol_name, shown_access, shown_kind, shown_protocol, step_name, step_of,
};
use crate::volumes::volume::Volume;
use crate::volumes::workers::Wait;

/// A share with its record and its identity.
pub(super) struct FoundShare {
    pub(super) mark: ShareMark,
    pub(super) number: u64,
    pub(super) record: ShareRecord,
}

/// Shares of volumes, as requests ask for them.
pub(crate) struct VolumeShares {
    pub(super) volumes: Rc<Volumes>,
    pub(super) servers: Rc<ShareServers>,
    pub(super) nbd: Rc<NbdServer>,
}

impl VolumeShares {
    pub(crate) fn new(base: &Base, volumes: &Rc<Volumes>) -> Self {
        Self { volumes: Rc::clone(volumes), servers: Rc::clone(&volumes.shares), nbd: Rc::clone(&base.nbd) }
    }

    pub(crate) async fn all_shares(&self) -> Answer<Shares> {
        let mut shares = Vec::new();
        for pool in self.volumes.pools.open_pools() {
            let mut spaces = pool.spaces.list();
            spaces.sort_by_key(|space| space.name());
            for space in spaces {
                shares.extend(self.view_shares(&pool, space.name().as_str()).await?);
            }
        }
        Ok(Shares { schema: SCHEMA, shares })
    }

    pub(crate) async fn list_shares(&self, pool: String, space: String) -> Answer<Shares> {
        let pool = self.volumes.pools.pool(&pool)?;
        self.volumes.find(&pool, &space).await?;
        Ok(Shares { schema: SCHEMA, shares: self.view_shares(&pool, &space).await? })
    }

    pub(crate) async fn show_share(
        &self,
        pool: String,
        space: String,
        share: String,
    ) -> Answer<ShareDocument> {
        let pool = self.volumes.pools.pool(&pool)?;
        let volume = self.volumes.find(&pool, &space).await?;
        let found = self.find_share(&volume, &share).await?;
        let is_offered =
            self.volumes.uses.mounted_at(volume.key).is_some() && self.servers.known.of(found.mark).is_some();
        // An answer does not wait for another look or change: it shows the last finding.
        let busy = self.servers.busy_with(&volume).filter(|_| is_offered);
        if is_offered && busy.is_none() {
            self.servers.put_again(&volume, found.mark).await;
            self.servers.probe_share(&volume, found.mark, &found.record).await;
        }
        let mut share = self.view_share(&volume, &found);
        for one in share.protocols.iter_mut().filter(|one| one.state == ShareState::Unknown) {
            one.finding = busy.as_ref().map(|busy| format!("it was not looked at: {busy}"));
        }
        Ok(ShareDocument { schema: SCHEMA, share })
    }

    pub(crate) async fn share_sessions(
        &self,
        pool: String,
        space: String,
        share: String,
    ) -> Answer<ShareSessions> {
        let pool = self.volumes.pools.pool(&pool)?;
        let volume = self.volumes.find(&pool, &space).await?;
        let found = self.find_share(&volume, &share).await?;
        let operation =
            Operation::ShareSessions(self.servers.look_at(&volume, found.mark, &found.record).await?);
        match self.volumes.workers.run(volume.key, &volume.name, operation, Wait::Request).await? {
            Outcome::Sessions { sessions, unavailable } => {
                let shown = |one: dolmen_worker::shares::order::Session| ShareSession {
                    protocol: shown_protocol(one.protocol),
                    user: one.user,
                    client: one.client,
                    dialect: one.dialect,
                    cipher: one.cipher,
                    since: one.since,
                    open_files: one.open_files,
                };
                let sessions = sessions.into_iter().map(shown).collect();
                Ok(ShareSessions { schema: SCHEMA, sessions, unavailable })
            }
            other => {
                let message = format!("the list of clients was answered with {other:?}");
                Err(ErrorBody::new(ErrorCode::Internal, message))
            }
        }
    }

    /// Returns a share of a volume by its name, without regard to case.
    pub(super) async fn find_share(&self, volume: &Volume, name: &str) -> Answer<FoundShare> {
        for share in shares_of(&volume.space).await? {
            let Numbered { number, record: Ok(record) } = share else { continue };
            if !record.name.names_section(name) {
                continue;
            }
            if let Some(mark) = mark_of(volume.key.pool, &volume.space, number) {
                return Ok(FoundShare { mark, number, record });
            }
        }
        let message = format!("volume {} has no share {name:.80?}; nothing was changed", volume.name);
        let hint = format!("`dolmen share list {}` shows its shares", volume.name);
        Err(ErrorBody::new(ErrorCode::NoSuchObject, message).on(&volume.name).hint(hint))
    }

    /// Returns the shares on a space as they are shown.
    async fn view_shares(&self, pool: &Rc<OpenPool>, space: &str) -> Answer<Vec<Share>> {
        let space = pool.space(space)?;
        let found = shares_of(&space).await?;
        if found.is_empty() {
            return Ok(Vec::new());
        }
        let record = match records::read(&space).await? {
            Some(Found::Known(record)) => Some(*record),
            Some(Found::NotUnderstood(_)) | None => None,
        };
        let key = key_of(pool, &space);
        let is_mounted = self.volumes.uses.mounted_at(key).is_some();
        let mut shares: Vec<Share> = Vec::new();
        for one in found {
            let known = mark_of(key.pool, &space, one.number).and_then(|mark| self.servers.known.of(mark));
            let mut share = blank(pool.name(), space.name().to_string(), one.number);
            match one.record {
                Ok(share_record) => {
                    describe(&mut share, &share_record, record.as_ref(), known.filter(|_| is_mounted));
                    self.describe_held(&mut share, &share_record);
                }
                Err(why) => {
                    share.health = Health::Warning;
                    share.why.push(format!("its record is not understood: {why}"));
                }
            }
            shares.push(share);
        }
        shares.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(shares)
    }

    /// Returns a share as it is shown.
    pub(super) fn view_share(&self, volume: &Volume, found: &FoundShare) -> Share {
        let is_mounted = self.volumes.uses.mounted_at(volume.key).is_some();
        let known = self.servers.known.of(found.mark).filter(|_| is_mounted);
        let mut share = blank(volume.pool.name(), volume.space.name().to_string(), found.number);
        describe(&mut share, &found.record, Some(&volume.record), known);
        self.describe_held(&mut share, &found.record);
        share
    }

    /// Shows that the rights over NFS of a share are held.
    fn describe_held(&self, share: &mut Share, record: &ShareRecord) {
        if !record.is_held(self.servers.host) {
            return;
        }
        share.is_held = true;
        share.health = Health::Warning;
        share.why.push(held_text(&format!("{}/{}", share.pool, share.volume), record));
        for offered in share.protocols.iter_mut().filter(|one| one.protocol == ShareProtocol::Nfs) {
            (offered.state, offered.step, offered.finding) = (ShareState::Off, None, None);
        }
    }
}

fn blank(pool: String, volume: String, number: u64) -> Share {
    Share {
        pool,
        volume,
        number,
        name: None,
        health: Health::Healthy,
        why: Vec::new(),
        folder: String::new(),
        path: None,
        is_to_be_served: false,
        protocols: Vec::new(),
        accounts: Vec::new(),
        networks: Vec::new(),
        is_encryption_required: false,
        time_machine_bytes: None,
        is_held: false,
    }
}

/// Fills in what record and findings say; `known` is absent while the volume is not mounted.
fn describe(
    share: &mut Share,
    record: &ShareRecord,
    volume: Option<&VolumeRecord>,
    known: Option<KnownShare>,
) {
    share.name = Some(record.name.to_string());
    share.folder = record.folder.as_str().to_owned();
    share.path = volume.map(|volume| volume.mount_point.join(&record.folder));
    share.is_to_be_served = record.desired == DesiredShare::Served;
    share.is_encryption_required =
        record.protocols.contains(&Protocol::Smb) && record.encryption == Encryption::Required;
    share.time_machine_bytes = record.time_machine_bytes;
    let account = |grant: &dolmen_volume::record::AccountGrant| ShareAccountGrant {
        to: shown_kind(grant.to),
        name: grant.name.as_str().to_owned(),
        access: shown_access(grant.access),
    };
    share.accounts = record.accounts.iter().map(account).collect();
    let network = |grant: &dolmen_volume::record::NetworkGrant| ShareNetworkGrant {
        client: grant.client.to_string(),
        access: shown_access(grant.access),
    };
    share.networks = record.networks.iter().map(network).collect();
    share.protocols = record.protocols.iter().map(|one| offered(*one, known.as_ref())).collect();
    if !share.is_to_be_served {
        share.health = Health::Warning;
        share.why.push("its deletion was begun, and has not ended".to_owned());
    }
    for one in share.protocols.iter().filter(|one| one.state == ShareState::Down) {
        let step = one.step.map(step_name).unwrap_or_default();
        let finding = one.finding.as_deref().unwrap_or_default();
        let text = match one.step {
            // Both protocols have the same text.
            Some(ShareStep::Change | ShareStep::Probe) => format!("down, {step}: {finding}"),
            _ => format!("{} is down, {step}: {finding}", name_of(one)),
        };
        share.health = Health::Warning;
        if !share.why.contains(&text) {
            share.why.push(text);
        }
    }
}

fn name_of(offered: &OfferedShare) -> &'static str {
    protocol_name(crate::volumes::shares::words::protocol_of(offered.protocol))
}

fn offered(protocol: Protocol, known: Option<&KnownShare>) -> OfferedShare {
    let of = |state, step, finding| OfferedShare { protocol: shown_protocol(protocol), state, step, finding };
    let Some(known) = known else { return of(ShareState::Off, None, None) };
    if let Some((step, why)) = &known.trouble {
        return of(ShareState::Down, Some(*step), Some(why.clone()));
    }
    match known.probed.iter().find(|probed| probed.protocol == protocol).map(|probed| &probed.state) {
        None => of(ShareState::Unknown, None, None),
        Some(ProbeState::Up) => of(ShareState::Up, None, None),
        Some(ProbeState::Answers { finding }) => of(ShareState::Answers, None, Some(finding.clone())),
        Some(ProbeState::Down { step, finding }) => {
            of(ShareState::Down, Some(step_of(*step)), Some(finding.clone()))
        }
    }
}

#[cfg(test)]
mod tests {
    use dolmen_worker::shares::order::{ProbeStep, Probed};

    use super::*;

    fn record() -> ShareRecord {
        let record = serde_json::json!({
            "name": "docs", "folder": "a/b", "protocols": ["smb", "nfs"], "desired": "served",
            "networks": [{"client": "10.0.0.0/8", "access": "read-only"}],
        });
        serde_json::from_value(record).unwrap()
    }

    fn shown(known: Option<KnownShare>) -> Share {
        let mut share = blank("tank".to_owned(), "home".to_owned(), 7);
        describe(&mut share, &record(), None, known);
        share
    }

    fn known(trouble: Option<(ShareStep, String)>, probed: Vec<Probed>) -> KnownShare {
        KnownShare { volume: ("tank".to_owned(), "home".to_owned()), record: record(), trouble, probed }
    }

    /// Scenario: not mounted; one protocol up and one down; the change of a server failed.
    #[test]
    fn a_share_is_shown_with_the_step_that_failed() {
        let off = shown(None);
        assert_eq!((off.health, off.protocols[0].state), (Health::Healthy, ShareState::Off));
        let down = ProbeState::Down { step: ProbeStep::Connection, finding: "refused".to_owned() };
        let probed = vec![
            Probed { protocol: Protocol::Smb, state: ProbeState::Up },
            Probed { protocol: Protocol::Nfs, state: down },
        ];
        let half = shown(Some(known(None, probed)));
        let states: Vec<ShareState> = half.protocols.iter().map(|one| one.state).collect();
        assert_eq!(states, [ShareState::Up, ShareState::Down]);
        assert_eq!(half.why, ["NFS is down, connection: refused"]);
        assert_eq!((half.health, half.folder.as_str()), (Health::Warning, "a/b"));
        let failed = shown(Some(known(Some((ShareStep::Change, "no registry".to_owned())), Vec::new())));
        assert_eq!(failed.why, ["down, change of the server: no registry"]);
    }
}
