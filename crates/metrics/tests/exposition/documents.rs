//! Documents of a host, of any content.

use dolmen_api::{
    Counters, Df, Disk, DiskFigures, DiskState, Eta, Figures, Finding, FindingCode, Fits, Health, Integrity,
    IoFigures, Job, JobKind, JobState, Jobs, LatencyBucket, Load, MountState, Object, Pool, PoolState,
    PoolTally, Provisioning, ResiliencyKind, Smart, Space, SpaceFigures, SpaceTally, Status, Version, Volume,
    VolumeState, Volumes, WriteCache,
};
use dolmen_metrics::{Certificate, Looks, exposition};

/// Documents of one look.
#[derive(Debug, Clone)]
pub(crate) struct Documents {
    pub(crate) status: Status,
    pub(crate) findings: Vec<Finding>,
    pub(crate) figures: Figures,
    pub(crate) counters: Counters,
    pub(crate) jobs: Jobs,
    pub(crate) volumes: Volumes,
    pub(crate) rooms: Vec<Df>,
}

impl Documents {
    pub(crate) fn exposition(&self) -> String {
        let certificates = [Certificate { name: "web", expires_s: 1_800_000_000 }];
        exposition(&Looks {
            status: Some(&self.status),
            findings: Some(&self.findings),
            figures: Some(&self.figures),
            counters: Some(&self.counters),
            jobs: Some(&self.jobs),
            volumes: Some(&self.volumes),
            rooms: &self.rooms,
            certificates: &certificates,
        })
    }
}

pub(crate) fn disk(slot: u16, state: DiskState) -> Disk {
    Disk {
        slot,
        id: format!("d{slot:07}"),
        path: (state != DiskState::Absent).then(|| format!("/dev/disk/by-id/wwn-{slot}")),
        last_path: None,
        state,
        backing_state: None,
        size_bytes: 4_000_787_030_016,
        gained_bytes: 0,
        data_bytes: 4_000_000_000_000,
        free_bytes: 1_500_000_000_000,
        fault_domain: 0,
        enclosure: None,
        is_voter: true,
        read_errors: 2,
        write_errors: 0,
        checksum_errors: 3,
        timed_out_reads: 1,
        times_slower: None,
        score: (state != DiskState::Absent).then_some(97),
        smart: Some(Smart {
            passed: Some(true),
            model: Some("Model X".to_owned()),
            serial: Some(format!("S{slot}")),
            temperature_c: Some(38),
            power_on_hours: Some(12_000),
            reallocated_sectors: Some(0),
            percentage_used: Some(12),
            ..Smart::default()
        }),
        smart_silence: None,
        bay: Some(format!("bay {slot}")),
    }
}

pub(crate) fn pool(name: &str, disks: Vec<Disk>) -> Pool {
    Pool {
        name: name.to_owned(),
        id: format!("id of {name}"),
        health: Health::Warning,
        why: vec![],
        state: PoolState::Writable,
        state_cause: None,
        epoch: "7".to_owned(),
        data_bytes: 12_000_000_000_000,
        used_bytes: 7_500_000_000_000,
        free_bytes: 4_500_000_000_000,
        space_count: 1,
        trash_count: 0,
        trash_bytes: 1 << 30,
        repair_after_s: Some(1800),
        keep_room_for: 1,
        has_room_for: 1,
        write_caches: vec![WriteCache {
            survives: 2,
            size_bytes: 1 << 33,
            waiting_bytes: 1 << 28,
            footprint_bytes: 3 << 33,
            copies: 3,
            disks: vec![0, 1, 2],
            fill_percent: 50,
            drain_bytes_per_s_max: 0,
            filled_bytes: 1 << 40,
            filled_bytes_per_s: 0,
            destaged_bytes: 1 << 39,
            destaged_bytes_per_s: 0,
        }],
        fill: Some(dolmen_api::FillForecast {
            state: dolmen_api::FillState::Filling,
            full_at_s: Some(1_900_000_000),
            earliest_s: Some(1_850_000_000),
            latest_s: None,
        }),
        history_problem: None,
        disks,
    }
}

pub(crate) fn space(pool: &str, name: &str) -> Space {
    Space {
        pool: pool.to_owned(),
        name: name.to_owned(),
        health: Health::Warning,
        why: vec![],
        size_bytes: 1 << 42,
        resiliency: ResiliencyKind::Mirror,
        copies: 3,
        parity: 0,
        columns: None,
        interleave_bytes: 1 << 18,
        row_bytes: 1 << 28,
        provisioning: Provisioning::Thin,
        integrity: Integrity::Strict,
        converted_from: None,
        sector_bytes: 4096,
        claimed_bytes: 1 << 41,
        footprint_bytes: 3 << 41,
        reserve_bytes: 0,
        reserve_unused_bytes: 0,
        limits: None,
        attached_at: None,
        served_at: None,
        network_at: None,
    }
}

pub(crate) fn io(latency: &[(u64, u64)]) -> IoFigures {
    let count = latency.iter().fold(0u64, |sum, (_, count)| sum.saturating_add(*count));
    let total_us =
        latency.iter().fold(0u64, |sum, (us, count)| sum.saturating_add(us.saturating_mul(*count)));
    let latency =
        latency.iter().map(|(up_to_us, count)| LatencyBucket { up_to_us: *up_to_us, count: *count });
    IoFigures { count, bytes: count.saturating_mul(4096), total_us, latency: latency.collect() }
}

pub(crate) fn load() -> Load {
    Load {
        since_us: 10,
        under_way: 3,
        queue_us: 5_250_000,
        busy_us: 2_000_001,
        errors: 1,
        reads: io(&[(19, 4), (95, 100), (1_023, 7), (40_000_000, 1)]),
        writes: io(&[(2_047, 50)]),
        discards: io(&[]),
        flushes: io(&[(8_191, 9)]),
    }
}

pub(crate) fn job(id: u64, pool: &str, state: JobState) -> Job {
    Job {
        id,
        pool: pool.to_owned(),
        kind: JobKind::new("resync"),
        verb: None,
        subject: "disk 1".to_owned(),
        state,
        is_pausing: false,
        is_stopping: false,
        rows_total: 100,
        rows_done: 25,
        total_bytes: 1000,
        done_bytes: 300,
        rate_bytes_per_s: 10,
        elapsed_s: 60,
        began_s: None,
        ended_s: None,
        eta: Some(Eta { earliest_s: 60, latest_s: 90 }),
        priority: None,
        latency_limit_ms: None,
        result: None,
        waits_for: None,
    }
}

pub(crate) fn volume(pool: &str, name: &str) -> Volume {
    Volume {
        pool: pool.to_owned(),
        name: name.to_owned(),
        health: Health::Healthy,
        why: vec![],
        state: VolumeState::Ready,
        size_bytes: 1 << 42,
        claimed_bytes: 1 << 41,
        file_system: None,
        uuid: None,
        label: None,
        purpose: None,
        oldest_kernel: None,
        mkfs_options: vec![],
        mount_options: vec![],
        mount_point: None,
        is_to_be_mounted: true,
        is_held: false,
        mount_state: MountState::Mounted,
        mounted_at: None,
        device: None,
        total_bytes: Some(1 << 42),
        free_bytes: Some(1 << 40),
        inodes: Some(1 << 20),
        free_inodes: Some(1 << 19),
        days_until_full: Some(40),
        errors: vec![],
        worker: None,
    }
}

fn room(pool: &str) -> Df {
    Df {
        schema: 1,
        pool: pool.to_owned(),
        raw_bytes: 12_002_361_090_048,
        metadata_bytes: 2_361_090_048,
        tail_bytes: 0,
        data_bytes: 12_000_000_000_000,
        used_bytes: 7_500_000_000_000,
        claimed_bytes: 2 << 40,
        redundancy_bytes: 4 << 40,
        write_cache_bytes: 3 << 33,
        trash_bytes: 1 << 30,
        tables_bytes: 1 << 30,
        free_bytes: 4_500_000_000_000,
        reserve_bytes: 1 << 30,
        kept_bytes: 1 << 40,
        promised_bytes: 2 << 40,
        fits: vec![Fits {
            resiliency: ResiliencyKind::Mirror,
            copies: 2,
            parity: 0,
            survives: 1,
            usable_bytes: 1_700_000_000_000,
            usable_fixed_bytes: None,
        }],
        disks: vec![],
        absent_disks: vec![],
    }
}

/// A host with one pool of three disks, one of which is absent, and names as given.
pub(crate) fn host(pool_name: &str, space_name: &str) -> Documents {
    let disks = vec![disk(0, DiskState::Present), disk(1, DiskState::Absent), disk(2, DiskState::Present)];
    let finding = |code, object, text: &str| Finding {
        code,
        health: Health::Warning,
        object,
        text: text.to_owned(),
        amount: 0,
    };
    Documents {
        status: Status {
            schema: 1,
            health: Health::Warning,
            summary: String::new(),
            why: vec![],
            doing: vec![],
            todo: vec![],
            findings: vec![],
            version: Version { schema: 1, daemon: "0.1.0".to_owned(), api: 1 },
            uptime_s: 3600,
            pid: 7,
            pools: vec![pool(pool_name, disks)],
            spaces: vec![space(pool_name, space_name)],
        },
        findings: vec![
            finding(FindingCode::DiskAbsent, Object::disk(pool_name, 1), "disk 1 is absent"),
            finding(FindingCode::SpaceDegraded, Object::space(pool_name, space_name), "it is degraded"),
        ],
        figures: Figures {
            schema: 1,
            run: "a".to_owned(),
            at_us: 3_600_000_000,
            spaces: vec![SpaceFigures {
                pool: pool_name.to_owned(),
                name: space_name.to_owned(),
                load: load(),
            }],
            disks: vec![DiskFigures {
                pool: pool_name.to_owned(),
                slot: 0,
                id: "d0000000".to_owned(),
                name: "/dev/sda".to_owned(),
                load: load(),
            }],
        },
        counters: Counters {
            schema: 1,
            driver: "io_uring".to_owned(),
            messages: 5,
            unparks: 4,
            polls: 100,
            fillings: 0,
            pools: vec![PoolTally {
                pool: pool_name.to_owned(),
                spaces: SpaceTally {
                    checksum_errors: 3,
                    healed_blocks: 3,
                    fresh_writes: 9,
                    ..SpaceTally::default()
                },
                disks: vec![],
            }],
        },
        jobs: Jobs {
            schema: 1,
            jobs: vec![job(6, pool_name, JobState::Done), job(7, pool_name, JobState::Running)],
            now_s: 1_790_000_000,
        },
        volumes: Volumes { schema: 1, volumes: vec![volume(pool_name, space_name)] },
        rooms: vec![room(pool_name)],
    }
}
