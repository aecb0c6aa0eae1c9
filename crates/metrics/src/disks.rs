//! Disks: identity, state, errors, and what they report of themselves.

use dolmen_api::{Disk, DiskState, PoolState, Smart, Status};

use crate::family::Family;
use crate::text::{Number, Text};

pub(crate) const DISK_STATES: [DiskState; 5] =
    [DiskState::Present, DiskState::Retired, DiskState::Absent, DiskState::Spare, DiskState::Idle];
const HOUR_S: u64 = 3600;

pub(crate) const fn disk_state_word(state: DiskState) -> &'static str {
    match state {
        DiskState::Present => "present",
        DiskState::Retired => "retired",
        DiskState::Absent => "absent",
        DiskState::Spare => "spare",
        DiskState::Idle => "idle",
    }
}

pub(crate) fn put(text: &mut Text, status: &Status) {
    for pool in status.pools.iter().filter(|pool| pool.state != PoolState::Closed) {
        pool.disks.iter().for_each(|disk| put_disk(text, &pool.name, disk));
    }
}

fn put_disk(text: &mut Text, pool: &str, disk: &Disk) {
    let slot = disk.slot.to_string();
    let at = [pool, slot.as_str()];
    put_info(text, at, disk);
    for state in DISK_STATES {
        text.put(Family::DiskState, &[pool, &slot, disk_state_word(state)], disk.state == state);
    }
    text.put(Family::DiskSizeBytes, &at, disk.size_bytes);
    let used = disk.data_bytes.saturating_sub(disk.free_bytes);
    text.put(Family::DiskBytes, &[pool, &slot, "used"], used);
    text.put(Family::DiskBytes, &[pool, &slot, "free"], disk.free_bytes);
    let score = disk.score.map(|score| Number::Ratio { part: u64::from(score), of: 100 });
    text.put_some(Family::DiskScore, &at, score);
    text.put_some(Family::DiskTimesSlower, &at, disk.times_slower);
    for (family, count) in [
        (Family::DiskReadErrors, disk.read_errors),
        (Family::DiskWriteErrors, disk.write_errors),
        (Family::DiskChecksumErrors, disk.checksum_errors),
        (Family::DiskTimedOutReads, disk.timed_out_reads),
    ] {
        text.put(family, &at, count);
    }
    if let Some(smart) = &disk.smart {
        put_smart(text, at, smart);
    }
}

fn put_info(text: &mut Text, [pool, slot]: [&str; 2], disk: &Disk) {
    let path = disk.path.as_deref().or(disk.last_path.as_deref()).unwrap_or_default();
    let of_smart =
        |field: fn(&Smart) -> Option<&str>| disk.smart.as_ref().and_then(field).unwrap_or_default();
    let (model, serial) =
        (of_smart(|smart| smart.model.as_deref()), of_smart(|smart| smart.serial.as_deref()));
    let enclosure = disk.enclosure.as_deref().unwrap_or_default();
    let bay = disk.bay.as_deref().unwrap_or_default();
    text.put(Family::DiskInfo, &[pool, slot, &disk.id, path, model, serial, enclosure, bay], true);
}

fn put_smart(text: &mut Text, at: [&str; 2], smart: &Smart) {
    text.put_some(Family::DiskSmartPassed, &at, smart.passed);
    text.put(Family::DiskSmartFailing, &at, smart.is_failing());
    text.put_some(Family::DiskTemperature, &at, smart.temperature_c.map(Number::Signed));
    let wear = smart.percentage_used.map(|percent| Number::Ratio { part: percent, of: 100 });
    text.put_some(Family::DiskWear, &at, wear);
    let power_on = smart.power_on_hours.map(|hours| hours.saturating_mul(HOUR_S));
    for (family, count) in [
        (Family::DiskPowerOn, power_on),
        (Family::DiskReallocated, smart.reallocated_sectors),
        (Family::DiskPending, smart.pending_sectors),
        (Family::DiskUncorrectable, smart.uncorrectable_sectors),
        (Family::DiskMediaErrors, smart.media_errors),
    ] {
        text.put_some(family, &at, count);
    }
}
