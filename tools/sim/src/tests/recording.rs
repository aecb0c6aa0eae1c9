//! Recordings, and the states that crashes could have left.

use std::collections::BTreeSet;

use super::*;
use crate::{BitFlip, Cut, DelayedWrites, DiskIndex, Fate, Recorder, StateOptions, Tearing};

/// Two disks; on both block 0 becomes 1, both are flushed, block 0 becomes 2; the cuts at which each was acknowledged.
fn mirror(profile: DiskProfile) -> (Recorder, Cut, Cut) {
    let world = World::new(3);
    let disks: Vec<_> = (0..2).map(|_| world.add_disk("copy", profile.clone())).collect();
    let recorder = world.record();
    let devices: Vec<_> = disks.iter().map(|disk| disk.attach(&world)).collect();
    let seams = world.seams();
    let write_all = |byte: u8| {
        let writes: Vec<_> =
            devices.iter().map(|device| put(device.as_ref(), &seams, 0, byte, Durability::Cached)).collect();
        world
            .run(async move {
                for write in writes {
                    write.await.unwrap();
                }
            })
            .unwrap();
    };
    write_all(1);
    for device in &devices {
        world.run(flush(device.as_ref(), TOKEN)).unwrap().unwrap();
    }
    let flushed = recorder.now();
    write_all(2);
    let written = recorder.now();
    world.stop_recording();
    write_all(3);
    assert_eq!(recorder.now(), written, "nothing is recorded after the end");
    (recorder, flushed, written)
}

fn found(recorder: &Recorder, cut: Cut, options: &StateOptions) -> Vec<Vec<Option<u8>>> {
    let of = |state: crate::CrashState| {
        (0..2).map(|disk| state.image(DiskIndex(disk)).map(|image| blocks(image, 1)[0])).collect()
    };
    recorder.states(cut, options).map(of).collect()
}

#[test]
fn every_cut_has_the_states_that_its_pending_writes_allow() {
    let (recorder, flushed, written) = mirror(profile());
    let options = StateOptions::default();
    let mut counts = Vec::new();
    for cut in recorder.cuts() {
        let states = found(&recorder, cut, &options);
        assert_eq!(states.len(), 1 << recorder.pending(cut).len());
        assert_eq!(states.iter().collect::<BTreeSet<_>>().len(), states.len(), "no state comes twice");
        if cut >= flushed {
            assert!(states.iter().flatten().all(|byte| matches!(byte, Some(1 | 2))), "{states:?}");
        }
        counts.push(states.len());
    }
    // Nothing; one write, both; flushed one after the other; one write, both.
    assert_eq!(counts, [1, 2, 4, 2, 1, 2, 4]);
    assert_eq!(found(&recorder, written, &options).len(), 4);
    assert!(found(&recorder, written, &options).contains(&vec![Some(2), Some(1)]));
}

#[test]
fn writes_are_torn_in_the_unit_of_their_disk() {
    let options = StateOptions { tearing: Tearing::OneTorn, ..StateOptions::default() };
    let (recorder, _, written) = mirror(profile());
    assert_eq!(found(&recorder, written, &options).len(), 4);
    let (recorder, _, written) = mirror(profile().tearing());
    let states = found(&recorder, written, &options);
    assert_eq!(states.len(), 4 + 2 * 4);
    assert_eq!(states.iter().filter(|state| state.contains(&Some(255))).count(), 8);
}

#[test]
fn all_copies_can_be_torn_at_the_same_sector() {
    let (recorder, _, written) = mirror(profile().tearing());
    let options = StateOptions { torn_equally: Some(3), ..StateOptions::default() };
    let torn = [2, 2, 2, 1, 1, 1, 1, 1];
    let same = recorder
        .states(written, &options)
        .any(|state| [0, 1].iter().all(|disk| sectors(state.image(DiskIndex(*disk)).unwrap(), 8) == torn));
    assert!(same);
}

#[test]
fn a_missing_disk_has_no_image_and_no_say() {
    let (recorder, _, written) = mirror(profile());
    let options = StateOptions { missing: Some(DiskIndex(0)), ..StateOptions::default() };
    let states = found(&recorder, written, &options);
    assert_eq!(states, [[None, Some(1)], [None, Some(2)]]);
    let reopened = recorder.states(written, &options).next().unwrap().reopen(1);
    assert!(reopened.disks[0].is_none() && reopened.disks[1].is_some());
}

#[test]
fn a_flipped_bit_is_in_every_state() {
    let (recorder, _, written) = mirror(profile());
    let flip = Some(BitFlip { disk: DiskIndex(1), at: 100, bit: 6 });
    for state in recorder.states(written, &StateOptions { flip, ..StateOptions::default() }) {
        let mut byte = [0];
        state.image(DiskIndex(1)).unwrap().read(100, &mut byte);
        assert!(matches!(byte[0] ^ 64, 1 | 2));
        assert_eq!(blocks(state.image(DiskIndex(0)).unwrap(), 1).len(), 1);
        assert!(state.to_string().contains("bit 6 of byte 100 of disk 1 turned"));
    }
}

#[test]
fn a_reopened_world_reads_what_the_state_says_and_late_writes_land_there() {
    let (recorder, flushed, _) = mirror(profile());
    let options = StateOptions { delayed_writes: DelayedWrites::Unanswered, ..StateOptions::default() };
    let submitted = recorder.cuts().into_iter().find(|cut| *cut > flushed).unwrap();
    let mut delayed = 0;
    for state in recorder.states(submitted, &options) {
        let lost: Vec<_> = state.fates().iter().filter(|(_, fate)| *fate == Fate::Lost).copied().collect();
        let reopened = state.reopen(9);
        let disk = reopened.disks[0].clone().unwrap();
        let before = blocks(&disk.truth(), 1)[0];
        assert_eq!(before, if lost.is_empty() { 2 } else { 1 });
        let _device = disk.attach(&reopened.world);
        reopened.world.run_until_idle().unwrap();
        assert_eq!(blocks(&disk.truth(), 1), [2]);
        delayed += lost.len();
    }
    assert_eq!(delayed, 1);
}

#[test]
fn a_durable_write_is_certain_as_soon_as_it_completed() {
    let bench = Bench::new(1, profile());
    let recorder = bench.world.record();
    bench.write_all(&[(0, 1)], Durability::Cached);
    bench.write_all(&[(0, 2)], Durability::Durable);
    let of = |cut| {
        recorder
            .states(cut, &StateOptions::default())
            .map(|state| blocks(state.image(DiskIndex(0)).unwrap(), 1)[0])
    };
    let per_cut: Vec<Vec<u8>> = recorder.cuts().into_iter().map(|cut| of(cut).collect()).collect();
    assert_eq!(per_cut, [vec![0], vec![0, 1], vec![0, 1, 2, 2], vec![2, 2]]);
}
