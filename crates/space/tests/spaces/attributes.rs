//! Attributes of spaces: kept with their space, changed whole or not at all, deleted with it (docs/format/pool.md, kind 8).
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use dolmen_pool::{MemoryArbiter, PoolError, Purpose, keys};
use dolmen_sim::{Cut, Recorder, StateOptions};
use dolmen_space::{
    ATTRIBUTE_BYTES_MAX, ATTRIBUTES_CHANGE_BYTES_MAX, ATTRIBUTES_MAX, Attribute, AttributeFault,
    AttributeKey, Progress, Provisioning, Resiliency, Space, SpaceError, SpaceSpec, Spaces,
};
use dolmen_units::{Bytes, SpaceId};
use proptest::prelude::*;

use crate::harness::{Bench, Lab, Outcome, ROW};

const MIRROR: Resiliency = Resiliency::Mirror { copies: 2 };
const SIZE: Bytes = Bytes::mib(4);
const NOW_S: u64 = 1_234_567;

/// Values by type and number.
type Model = BTreeMap<(u8, u64), Vec<u8>>;

fn attribute(kind: u8, number: u64, value: &[u8]) -> Attribute {
    Attribute { kind, number, value: value.to_vec() }
}

fn key(kind: u8, number: u64) -> AttributeKey {
    AttributeKey { kind, number }
}

fn spec(name: &str, provisioning: Provisioning) -> SpaceSpec {
    let mut spec = SpaceSpec::usual(name.parse().unwrap(), SIZE, MIRROR);
    (spec.row, spec.provisioning) = (Some(ROW), provisioning);
    spec
}

fn model(attributes: &[Attribute]) -> Model {
    attributes.iter().map(|one| ((one.kind, one.number), one.value.clone())).collect()
}

async fn listed(space: &Space) -> Result<Model, SpaceError> {
    let found = space.attributes().list().await?;
    assert!(found.is_sorted_by_key(|one| (one.kind, one.number)), "{found:?}");
    Ok(model(&found))
}

/// Number of attributes in the map, of whatever space.
async fn mapped(spaces: &Spaces) -> Result<usize, PoolError> {
    Ok(spaces.pool().map().scan(keys::all(keys::Kind::Attribute), usize::MAX).await?.len())
}

async fn purge(spaces: &Spaces) -> Outcome {
    let all = spaces.trash().purge(&Progress::default()).await?;
    if all { Ok(()) } else { Err("something is left of a purge".into()) }
}

/// Scenario: a space is created with attributes, renamed, put into the trash, restored and deleted, with an opening in between, beside
/// another space. It has its attributes up to its deletion, and the other space afterwards too.
#[test]
fn attributes_stay_with_their_space_until_it_is_deleted() {
    for provisioning in [Provisioning::Thin, Provisioning::Fixed] {
        let bench = Bench::new(1, 2, Bytes::mib(128));
        let first =
            vec![attribute(1, 0, b"volume"), attribute(3, u64::MAX, b"share"), attribute(255, 7, &[0])];
        let (given, expected) = (first.clone(), model(&first));
        bench
            .run(async move |lab| {
                let spaces = lab.create().await?;
                let other =
                    spaces.create_with(spec("other", provisioning), vec![attribute(1, 0, b"x")]).await?;
                let space = spaces.create_with(spec("data", provisioning), given).await?;
                let third = spaces.create(spec("third", provisioning)).await?;
                third.attributes().change(vec![attribute(1, 0, b"z")], vec![]).await?;
                spaces.changes().rename(&space, "renamed".parse()?).await?;
                spaces.trash().move_to_trash(&space, NOW_S).await?;
                drop((other, space, third));
                lab.check_and_close(spaces).await
            })
            .unwrap();
        bench
            .run(async move |lab| {
                let spaces = lab.open().await?;
                let space = spaces.in_trash().remove(0);
                assert_eq!(listed(&space).await?, expected);
                space
                    .attributes()
                    .change(vec![attribute(1, 0, b"ready")], vec![key(255, 7), key(9, 9)])
                    .await?;
                spaces.trash().restore(&space, Some("again".parse()?)).await?;
                let changed = model(&[attribute(1, 0, b"ready"), attribute(3, u64::MAX, b"share")]);
                assert_eq!(listed(&space).await?, changed);
                spaces.pool().checkpoint().await?;
                spaces.changes().delete(&space).await?;
                let refused = space.attributes().change(vec![attribute(1, 0, b"late")], vec![]).await;
                assert!(matches!(refused, Err(SpaceError::Deleted { .. })), "{refused:?}");
                for (name, value) in [("other", b"x"), ("third", b"z")] {
                    assert_eq!(listed(&spaces.find(name)?).await?, model(&[attribute(1, 0, value)]));
                }
                crate::harness::check(&spaces).await?;
                assert_eq!(mapped(&spaces).await?, 2, "the deleted space has attributes");
                for name in ["other", "third"] {
                    let space = spaces.find(name)?;
                    spaces.trash().condemn(&space).await?;
                }
                purge(&spaces).await?;
                assert_eq!(mapped(&spaces).await?, 0);
                drop(space);
                lab.check_and_close(spaces).await
            })
            .unwrap();
    }
}

fn fault_of(outcome: Result<(), SpaceError>) -> (u8, u64, AttributeFault) {
    match outcome {
        Err(SpaceError::Attribute { kind, number, fault, name }) => {
            assert_eq!(name.as_str(), "data");
            (kind, number, fault)
        }
        other => panic!("{other:?}"),
    }
}

/// Scenario: changes exceed each limit, and a creation does. Each is refused by name and changes nothing; at the limit, none is.
#[test]
fn what_exceeds_a_limit_of_attributes_is_refused_and_changes_nothing() {
    let bench = Bench::new(2, 2, Bytes::mib(128));
    let outcome = bench.run(async |lab| {
        let spaces = lab.create().await?;
        let space = spaces.create(spec("data", Provisioning::Thin)).await?;
        let all = || space.attributes();
        all().change(vec![attribute(1, 0, b"stays")], vec![]).await?;
        let long = vec![7; ATTRIBUTE_BYTES_MAX + 1];
        let half = ATTRIBUTES_CHANGE_BYTES_MAX as u64 / ATTRIBUTE_BYTES_MAX as u64 + 1;
        let much: Vec<Attribute> = (0..half).map(|number| attribute(2, number, &long[1..])).collect();
        let many: Vec<Attribute> =
            (0..ATTRIBUTES_MAX as u64).map(|number| attribute(3, number, b"many")).collect();
        let too_much = AttributeFault::TooMuch { found: Bytes(half * ATTRIBUTE_BYTES_MAX as u64) };
        let too_many = AttributeFault::TooMany { found: ATTRIBUTES_MAX + 1 };
        let too_long = AttributeFault::TooLong { found: ATTRIBUTE_BYTES_MAX + 1 };
        let cases = [
            (vec![attribute(1, 1, b"x"), attribute(1, 2, b"")], vec![], (1, 2, AttributeFault::Empty)),
            (vec![attribute(1, 3, &long)], vec![], (1, 3, too_long)),
            (vec![attribute(1, 4, b"x")], vec![key(1, 4)], (1, 4, AttributeFault::Repeated)),
            (vec![attribute(1, 4, b"x"), attribute(1, 4, b"y")], vec![], (1, 4, AttributeFault::Repeated)),
            (much.clone(), vec![], (2, half - 1, too_much)),
            (many.clone(), vec![], (3, 0, too_many)),
        ];
        for (puts, deletes, expected) in cases {
            assert_eq!(fault_of(all().change(puts, deletes).await), expected);
        }
        assert_eq!(listed(&space).await?, model(&[attribute(1, 0, b"stays")]));
        all().change(many.clone(), vec![key(1, 0)]).await?;
        all().change(vec![attribute(3, 0, &long[1..])], vec![]).await?;
        assert_eq!(fault_of(all().change(vec![attribute(1, 0, b"x")], vec![]).await).2, too_many);
        assert_eq!(listed(&space).await?.len(), ATTRIBUTES_MAX);
        spaces.changes().delete(&space).await?;
        let more: Vec<Attribute> = many.into_iter().chain([attribute(4, 0, b"x")]).collect();
        for puts in [vec![attribute(1, 0, b"")], more, much] {
            let refused = spaces.create_with(spec("data", Provisioning::Thin), puts).await.map(drop);
            let _ = fault_of(refused);
        }
        assert_eq!((spaces.list().len(), mapped(&spaces).await?), (0, 0));
        drop(space);
        lab.check_and_close(spaces).await
    });
    outcome.unwrap();
}

/// Scenario: the map of a pool is full. Attributes cannot be added; they can be replaced by ones that are no longer, and deleted with
/// their space.
#[test]
fn a_full_map_takes_changes_of_attributes_that_need_no_room() {
    let bench = Bench::new(3, 2, Bytes::mib(2048));
    bench.world.set_steps_max(20_000_000);
    let outcome = bench.run(async |lab| {
        let spaces = lab.create().await?;
        let first = vec![attribute(1, 0, b"making"), attribute(1, 1, b"more")];
        let space = spaces.create_with(spec("data", Provisioning::Thin), first).await?;
        let pool = spaces.pool();
        let mut count = 0;
        loop {
            let mut change = pool.change(Purpose::Release).await;
            (count..count + 100).for_each(|row| change.put(keys::place(SpaceId(999), row), vec![7; 200]));
            change.commit().await?;
            count += 100;
            match pool.checkpoint().await {
                Ok(()) => {}
                Err(PoolError::MetadataFull { .. }) => break,
                Err(error) => return Err(error.into()),
            }
        }
        for refused in [attribute(2, 0, b"new"), attribute(1, 0, b"longer than before")] {
            let refused = space.attributes().change(vec![refused], vec![]).await;
            assert!(matches!(refused, Err(SpaceError::Pool(PoolError::MetadataFull { .. }))), "{refused:?}");
        }
        space.attributes().change(vec![attribute(1, 0, b"ready")], vec![key(1, 1)]).await?;
        assert_eq!(listed(&space).await?, model(&[attribute(1, 0, b"ready")]));
        spaces.changes().delete(&space).await?;
        assert_eq!(mapped(&spaces).await?, 0);
        Ok(())
    });
    outcome.unwrap();
}

/// Attributes of the space in a crash test at a time, or `None` where it does not exist.
type Stage = Option<Model>;

async fn verify(lab: Lab, allowed: BTreeSet<Stage>) -> Outcome {
    let spaces = lab.open().await?;
    crate::harness::check(&spaces).await?;
    let other = spaces.find("other")?;
    assert_eq!(listed(&other).await?, model(&[attribute(1, 0, b"x"), attribute(2, 1, b"y")]));
    let space = spaces.kept().into_iter().find(|space| space.id() != other.id());
    let stage = match &space {
        Some(space) => Some(listed(space).await?),
        None => None,
    };
    if !allowed.contains(&stage) {
        return Err(format!("{stage:?} instead of one of {allowed:?}").into());
    }
    if let Some(space) = &space {
        spaces.trash().condemn(space).await?;
    }
    purge(&spaces).await?;
    assert_eq!(mapped(&spaces).await?, 2, "attributes of a deleted space are left");
    drop((other, space));
    lab.check_and_close(spaces).await
}

/// Scenario: power fails at each write and flush of a creation with attributes, of changes that put and delete, of a checkpoint, a
/// rename, a deletion and a purge. The space has the attributes of before a step or of after it, or does not exist; a deleted one
/// leaves none.
#[test]
fn power_cut_at_any_write_of_a_change_of_attributes_leaves_all_of_it_or_nothing() {
    let bench = Rc::new(Bench::new(4, 2, Bytes::mib(96)));
    let steps: Rc<RefCell<Vec<(Cut, Cut, Stage)>>> = Rc::default();
    let recorded = Rc::new(RefCell::new(None));
    let (outside, stages, record) = (Rc::clone(&bench), Rc::clone(&steps), Rc::clone(&recorded));
    bench
        .run(async move |lab| {
            let spaces = lab.create().await?;
            let first = vec![attribute(1, 0, b"x"), attribute(2, 1, b"y")];
            let other = spaces.create_with(spec("other", Provisioning::Thin), first).await?;
            // The feature of the trash, which takes an epoch, is there from now on: the host's record stays as it is.
            spaces.trash().move_to_trash(&other, NOW_S).await?;
            spaces.trash().restore(&other, None).await?;
            let recorder = Rc::new(outside.world.record());
            record.replace(Some((Rc::clone(&recorder), outside.arbiter.snapshot())));
            let mut begun = recorder.now();
            let mut step = |stage: Option<&Model>| {
                stages.borrow_mut().push((begun, recorder.now(), stage.cloned()));
                begun = recorder.now();
            };
            let mut now = model(&[attribute(1, 0, b"making"), attribute(2, 5, &[5; 2000])]);
            let first = vec![attribute(1, 0, b"making"), attribute(2, 5, &[5; 2000])];
            let space = spaces.create_with(spec("data", Provisioning::Fixed), first).await?;
            step(Some(&now));
            lab.write(&space, 0, 4096, 1).await?;
            let puts = vec![attribute(1, 0, b"ready"), attribute(3, 9, &[9; 3000])];
            now.remove(&(2, 5));
            now.extend(model(&puts));
            space.attributes().change(puts, vec![key(2, 5)]).await?;
            step(Some(&now));
            spaces.pool().checkpoint().await?;
            step(Some(&now));
            let puts: Vec<Attribute> =
                (0..30).map(|number| attribute(4, number, &[4; ATTRIBUTE_BYTES_MAX])).collect();
            now.clear();
            now.extend(model(&puts));
            space.attributes().change(puts, vec![key(1, 0), key(3, 9)]).await?;
            step(Some(&now));
            spaces.changes().rename(&space, "renamed".parse()?).await?;
            step(Some(&now));
            spaces.pool().checkpoint().await?;
            spaces.trash().move_to_trash(&space, NOW_S).await?;
            step(Some(&now));
            spaces.trash().condemn(&space).await?;
            step(None);
            purge(&spaces).await?;
            step(None);
            spaces.pool().checkpoint().await?;
            outside.world.stop_recording();
            drop((other, space));
            Ok(spaces.close().await?)
        })
        .unwrap();
    let (recorder, arbiter) = recorded.borrow_mut().take().unwrap();
    let (verified, seen) = verify_cuts(&recorder, &arbiter, &steps.borrow());
    assert!(verified > 60 && seen >= 6, "{verified} states, of {seen} kinds");
}

/// Opens what each cut leaves. Returns how many states were verified, and how many sets of stages they allowed.
fn verify_cuts(
    recorder: &Recorder,
    arbiter: &Rc<MemoryArbiter>,
    steps: &[(Cut, Cut, Stage)],
) -> (usize, usize) {
    let (mut verified, mut seen) = (0, BTreeSet::new());
    for cut in recorder.cuts() {
        let mut allowed = BTreeSet::from([None]);
        for (begun, acked, stage) in steps {
            if *acked <= cut {
                allowed.clear();
            }
            if *begun <= cut {
                allowed.insert(stage.clone());
            }
        }
        seen.insert(allowed.clone());
        let states: Vec<_> = recorder.states(cut, &StateOptions::default()).take(64).collect();
        // Nothing of what waits, all of it, and one between them.
        for at in BTreeSet::from([0, states.len() / 2, states.len() - 1]) {
            let left = states[at].reopen(7);
            left.world.set_arenas(dolmen_buffer::ArenaConfig::MODEST, dolmen_buffer::ArenaConfig::MODEST);
            let disks = left.disks.iter().flatten().cloned().collect();
            let left = Bench { world: left.world, disks, arbiter: arbiter.snapshot() };
            let allowed = allowed.clone();
            let outcome = left.run(async move |lab| verify(lab, allowed).await);
            outcome.unwrap_or_else(|error| panic!("{cut:?}: {error}\n{}", states[at]));
            verified += 1;
        }
    }
    (verified, seen.len())
}

/// Scenario: the map has an attribute whose space does not exist, one of a hidden space, one of a type that no attribute has, and one
/// whose key has a byte that is zero in all keys. The check finds each, and a listing comes to its end.
#[test]
fn the_check_of_the_map_finds_attributes_that_no_space_can_have() {
    let bench = Bench::new(5, 2, Bytes::mib(96));
    let outcome = bench.run(async |lab| {
        let spaces = lab.create().await?;
        let first = vec![attribute(1, 0, b"x"), attribute(4, 0, b"y")];
        let space = spaces.create_with(spec("data", Provisioning::Thin), first.clone()).await?;
        assert_eq!(spaces.scrubs().check_map().await?, Vec::<String>::new());
        let mut odd = keys::attribute(2, space.id(), 0);
        odd.0[5] = 1;
        let forged = [
            (keys::attribute(1, SpaceId(77), 3), "no space"),
            (keys::attribute(1, SpaceId(space.id().0 | 1 << 63), 3), "no space"),
            (keys::attribute(256, space.id(), 3), "unknown key"),
            (odd, "unknown key"),
        ];
        for (key, words) in forged {
            let mut change = spaces.pool().change(Purpose::Release).await;
            change.put(key, b"forged".to_vec());
            change.commit().await?;
            let found = spaces.scrubs().check_map().await?;
            assert!(found.len() == 1 && found[0].contains(words), "{key}: {found:?}");
            let listed = space.attributes().list().await.map(|found| model(&found));
            match keys::parts(&key).0 {
                256 => assert!(listed.is_err(), "{key}: {listed:?}"),
                _ => assert_eq!(listed?, model(&first), "{key}"),
            }
            let mut change = spaces.pool().change(Purpose::Release).await;
            change.delete(key);
            change.commit().await?;
        }
        drop(space);
        lab.check_and_close(spaces).await
    });
    outcome.unwrap();
}

#[derive(Debug, Clone)]
enum Act {
    Change { space: usize, puts: Vec<(u8, u64, usize)>, deletes: Vec<(u8, u64)> },
    Delete { space: usize },
    Checkpoint,
    Reopen,
}

fn act() -> impl Strategy<Value = Act> {
    let place =
        || (prop_oneof![Just(0u8), Just(1), Just(2), Just(255)], prop_oneof![0u64..4, Just(u64::MAX)]);
    let puts = prop::collection::vec((place(), prop_oneof![1usize..40, 2900..=ATTRIBUTE_BYTES_MAX]), 0..8);
    let puts = puts.prop_map(|puts| puts.into_iter().map(|((kind, number), n)| (kind, number, n)).collect());
    let deletes = prop::collection::vec(place(), 0..4);
    prop_oneof![
        8 => (0..4usize, puts, deletes).prop_map(|(space, puts, deletes)| Act::Change { space, puts, deletes }),
        1 => (0..4usize).prop_map(|space| Act::Delete { space }),
        1 => Just(Act::Checkpoint),
        1 => Just(Act::Reopen),
    ]
}

async fn live(lab: Lab, acts: Vec<Act>) -> Outcome {
    let mut spaces = lab.create().await?;
    let mut known: [Option<(SpaceId, Model)>; 4] = [const { None }; 4];
    for (number, act) in acts.into_iter().enumerate() {
        match act {
            Act::Change { space, puts, deletes } => {
                let puts: BTreeMap<(u8, u64), usize> =
                    puts.into_iter().map(|(kind, number, length)| ((kind, number), length)).collect();
                let deletes: BTreeSet<(u8, u64)> =
                    deletes.into_iter().filter(|key| !puts.contains_key(key)).collect();
                let fill = u8::try_from(number % 256)?;
                let puts: Vec<Attribute> = puts
                    .iter()
                    .map(|((kind, number), length)| attribute(*kind, *number, &vec![fill; *length]))
                    .collect();
                match &mut known[space] {
                    Some((id, model_of)) => {
                        let found = spaces.get(*id).ok_or("a space is missing")?;
                        deletes.iter().for_each(|key| drop(model_of.remove(key)));
                        model_of.extend(model(&puts));
                        let deletes = deletes.into_iter().map(|(kind, number)| key(kind, number)).collect();
                        found.attributes().change(puts, deletes).await?;
                    }
                    none => {
                        let spec = spec(&format!("space{space}"), Provisioning::Thin);
                        let values = model(&puts);
                        let made = spaces.create_with(spec, puts).await?;
                        *none = Some((made.id(), values));
                    }
                }
            }
            Act::Delete { space } => {
                if let Some((id, _)) = known[space].take() {
                    let found = spaces.get(id).ok_or("a space is missing")?;
                    spaces.changes().delete(&found).await?;
                }
            }
            Act::Checkpoint => spaces.pool().checkpoint().await?,
            Act::Reopen => {
                lab.check_and_close(spaces).await?;
                spaces = lab.open().await?;
            }
        }
        for (id, expected) in known.iter().flatten() {
            assert_eq!(&listed(&spaces.get(*id).ok_or("a space is missing")?).await?, expected);
        }
        let all: usize = known.iter().flatten().map(|(_, of_space)| of_space.len()).sum();
        assert_eq!(mapped(&spaces).await?, all);
    }
    lab.check_and_close(spaces).await
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    /// Scenario: attributes of four spaces are put and deleted, spaces are created and deleted, checkpoints are taken and the pool is
    /// opened again, in any order. Each listing is what a map in memory says.
    #[test]
    fn attributes_are_what_a_model_says(acts in prop::collection::vec(act(), 1..40)) {
        let bench = Bench::new(6, 2, Bytes::mib(96));
        bench.run(async move |lab| live(lab, acts).await).unwrap();
    }
}
