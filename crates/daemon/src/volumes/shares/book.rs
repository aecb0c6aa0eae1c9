//! Findings about shares, in memory: of those that this daemon put on servers, or looked at.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::rc::Rc;

use dolmen_api::{Finding, FindingCode, Health, Object, ShareStep};
use dolmen_attach::SpaceKey;
use dolmen_volume::record::ShareRecord;
use dolmen_volume::share_mark::ShareMark;
use dolmen_worker::shares::order::{ProbeState, Probed};

use crate::base::Base;
use crate::exports::NbdServer;
use crate::finding::found;
use crate::volumes::shares::words::{protocol_name, step_name, step_of};

/// Name of the lock file of the servers in the run folder.
const LOCK: &str = "servers.lock";

/// Findings about one share.
#[derive(Debug, Clone)]
pub(super) struct KnownShare {
    /// Pool and volume, by name.
    pub(super) volume: (String, String),
    /// Record that was put last.
    pub(super) record: ShareRecord,
    /// Step that failed last, and why.
    pub(super) trouble: Option<(ShareStep, String)>,
    /// Findings of the last look.
    pub(super) probed: Vec<Probed>,
}

impl KnownShare {
    /// Returns why it is down, in words; none if it is not.
    fn down(&self) -> Option<String> {
        let name = &self.record.name;
        if let Some((step, why)) = &self.trouble {
            return Some(format!("share {name}, {}: {why}", step_name(*step)));
        }
        let down = self.probed.iter().find_map(|probed| match &probed.state {
            ProbeState::Down { step, finding } => Some((probed.protocol, *step, finding)),
            ProbeState::Up | ProbeState::Answers { .. } => None,
        });
        down.map(|(protocol, step, finding)| {
            let (protocol, step) = (protocol_name(protocol), step_name(step_of(step)));
            format!("share {name} over {protocol}, {step}: {finding}")
        })
    }
}

/// Settings of servers, and findings about shares.
pub(in crate::volumes) struct ShareBook {
    pub(super) settings: Option<PathBuf>,
    pub(super) lock: PathBuf,
    pub(super) nbd: Rc<NbdServer>,
    known: RefCell<BTreeMap<ShareMark, KnownShare>>,
}

impl ShareBook {
    pub(in crate::volumes) fn new(base: &Base) -> Self {
        Self {
            settings: base.config.servers.clone(),
            lock: base.config.run.join(LOCK),
            nbd: Rc::clone(&base.nbd),
            known: RefCell::default(),
        }
    }

    /// Returns the findings about a share.
    pub(super) fn of(&self, mark: ShareMark) -> Option<KnownShare> {
        self.known.borrow().get(&mark).cloned()
    }

    /// Returns whether servers may offer something else than the record says.
    pub(super) fn is_unchanged(&self, mark: ShareMark) -> bool {
        let known = self.known.borrow();
        let trouble = known.get(&mark).and_then(|known| known.trouble.as_ref());
        trouble.is_some_and(|(step, _)| *step == ShareStep::Change)
    }

    /// Notes findings about a share.
    pub(super) fn note(&self, mark: ShareMark, known: KnownShare) {
        self.known.borrow_mut().insert(mark, known);
    }

    /// Notes the findings of a look.
    pub(super) fn note_probe(&self, mark: ShareMark, found: Result<Vec<Probed>, String>) {
        let mut all = self.known.borrow_mut();
        let Some(known) = all.get_mut(&mark) else { return };
        // A server that was not changed stays so until it is.
        if known.trouble.as_ref().is_some_and(|(step, _)| *step == ShareStep::Change) {
            return;
        }
        match found {
            Ok(probed) => (known.probed, known.trouble) = (probed, None),
            Err(why) => known.trouble = Some((ShareStep::Probe, why)),
        }
    }

    /// Forgets a share.
    pub(super) fn forget(&self, mark: ShareMark) {
        self.known.borrow_mut().remove(&mark);
    }

    /// Forgets the shares of a volume, which no server offers any more.
    pub(in crate::volumes) fn forget_volume(&self, volume: SpaceKey) {
        self.known.borrow_mut().retain(|mark, _| !is_of(mark, volume));
    }

    /// Returns the shares of a volume that are known.
    pub(super) fn of_volume(&self, volume: SpaceKey) -> Vec<(ShareMark, ShareRecord)> {
        let known = self.known.borrow();
        let own = known.iter().filter(|(mark, _)| is_of(mark, volume));
        own.map(|(mark, known)| (*mark, known.record.clone())).collect()
    }

    /// Returns the findings about shares that are down, one for each volume.
    pub(in crate::volumes) fn findings(&self) -> Vec<Finding> {
        let mut down: BTreeMap<(String, String), Vec<String>> = BTreeMap::new();
        for known in self.known.borrow().values() {
            if let Some(why) = known.down() {
                down.entry(known.volume.clone()).or_default().push(why);
            }
        }
        let finding = |((pool, volume), why): ((String, String), Vec<String>)| {
            let text = format!("shares of volume {pool}/{volume} are down: {}", why.join("; "));
            found(FindingCode::ShareDown, Health::Warning, Object::space(pool, volume), text)
        };
        down.into_iter().map(finding).collect()
    }
}

fn is_of(mark: &ShareMark, volume: SpaceKey) -> bool {
    mark.pool == volume.pool && mark.space == volume.space.0
}
