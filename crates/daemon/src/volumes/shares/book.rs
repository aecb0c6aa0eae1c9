//! Findings about shares, in memory: of those that this daemon put on servers, or looked at.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use dolmen_api::{Finding, FindingCode, Health, Object, ShareStep};
use dolmen_attach::SpaceKey;
use dolmen_volume::record::ShareRecord;
use dolmen_volume::share_mark::ShareMark;
use dolmen_worker::shares::order::{ProbeState, Probed};

use crate::finding::found;
use crate::volumes::shares::words::{protocol_name, step_name, step_of};

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

/// Findings about shares.
#[derive(Debug, Default)]
pub(in crate::volumes) struct KnownShares {
    known: RefCell<BTreeMap<ShareMark, KnownShare>>,
    /// Those that a look took off its servers.
    taken_off: RefCell<BTreeSet<ShareMark>>,
}

impl KnownShares {
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
        self.taken_off.borrow_mut().remove(&mark);
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

    /// Notes whether a look took a share off its servers.
    pub(super) fn note_taken_off(&self, mark: ShareMark, is_taken_off: bool) {
        let mut taken_off = self.taken_off.borrow_mut();
        if is_taken_off && self.known.borrow().contains_key(&mark) {
            taken_off.insert(mark);
        } else {
            taken_off.remove(&mark);
        }
    }

    /// Returns whether a look took a share off its servers, and nothing has put it again.
    pub(super) fn is_taken_off(&self, mark: ShareMark) -> bool {
        self.taken_off.borrow().contains(&mark)
    }

    /// Notes that servers could not be changed.
    pub(super) fn note_unchanged(&self, mark: ShareMark, why: String) {
        if let Some(known) = self.known.borrow_mut().get_mut(&mark) {
            known.trouble = Some((ShareStep::Change, why));
        }
    }

    /// Forgets a share.
    pub(super) fn forget(&self, mark: ShareMark) {
        self.taken_off.borrow_mut().remove(&mark);
        self.known.borrow_mut().remove(&mark);
    }

    /// Forgets the shares of a volume, which no server offers any more.
    pub(in crate::volumes) fn forget_volume(&self, volume: SpaceKey) {
        self.taken_off.borrow_mut().retain(|mark| !is_of(mark, volume));
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

#[cfg(test)]
mod tests {
    use dolmen_units::{PoolId, SpaceId};
    use dolmen_volume::record::Protocol;
    use dolmen_worker::shares::order::ProbeStep;

    use super::*;

    const MARK: ShareMark = ShareMark { pool: PoolId([1; 16]), space: 2, share: 3 };

    fn known(trouble: Option<(ShareStep, String)>) -> KnownShare {
        let record = serde_json::json!({"name": "docs", "protocols": ["nfs"], "desired": "served"});
        let record = serde_json::from_value(record).unwrap();
        KnownShare { volume: ("tank".to_owned(), "home".to_owned()), record, trouble, probed: Vec::new() }
    }

    fn down() -> Vec<Probed> {
        let state = ProbeState::Down { step: ProbeStep::Listing, finding: "absent".to_owned() };
        vec![Probed { protocol: Protocol::Nfs, state }]
    }

    /// Scenario: two shares of one volume are down; one of them comes up; the change of the other failed and a probe finds it up.
    #[test]
    fn shares_that_are_down_are_one_finding_of_their_volume() {
        let book = KnownShares::default();
        let other = ShareMark { share: 4, ..MARK };
        book.note(MARK, known(None));
        book.note(other, known(None));
        assert_eq!(book.findings(), []);
        book.note_probe(MARK, Ok(down()));
        book.note_probe(other, Err("no worker".to_owned()));
        let findings = book.findings();
        assert_eq!((findings.len(), findings[0].code), (1, FindingCode::ShareDown));
        assert!(
            findings[0].text.contains("over NFS, listing: absent; share docs, look"),
            "{}",
            findings[0].text
        );
        book.note_probe(other, Ok(Vec::new()));
        book.note(MARK, known(Some((ShareStep::Change, "refused".to_owned()))));
        book.note_probe(MARK, Ok(Vec::new()));
        assert!(book.is_unchanged(MARK) && !book.is_unchanged(other));
        assert!(book.findings()[0].text.ends_with("share docs, change of the server: refused"));
    }

    #[test]
    fn a_share_that_a_look_took_off_is_known_until_it_is_put_or_forgotten() {
        let book = KnownShares::default();
        book.note_taken_off(MARK, true);
        assert!(!book.is_taken_off(MARK), "a late look at a share that is forgotten");
        for put in [true, false] {
            book.note(MARK, known(None));
            book.note_taken_off(MARK, true);
            assert!(book.is_taken_off(MARK));
            if put {
                book.note(MARK, known(None))
            } else {
                book.forget(MARK)
            }
            assert!(!book.is_taken_off(MARK));
        }
    }

    #[test]
    fn shares_of_a_volume_that_is_not_mounted_are_forgotten() {
        let book = KnownShares::default();
        book.note(MARK, known(None));
        let volume = SpaceKey { pool: MARK.pool, space: SpaceId(2) };
        assert_eq!(book.of_volume(volume).len(), 1);
        book.forget_volume(SpaceKey { space: SpaceId(3), ..volume });
        assert!(book.of(MARK).is_some());
        book.forget_volume(volume);
        assert!(book.of(MARK).is_none());
        book.note_probe(MARK, Ok(down()));
        assert_eq!(book.findings(), [], "a late probe brings a share back");
    }
}
