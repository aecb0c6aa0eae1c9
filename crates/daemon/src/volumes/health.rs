//! Health of volumes: looked at now and then, and told with that of pools.
//!
//! Usage of a file system is counted by a worker: the call may hang.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use dolmen_api::{Finding, FindingCode, Health, Object, VolumeState};
use dolmen_block_io::sleep;
use dolmen_worker::protocol::{Operation, Outcome};

use crate::finding::found;
use crate::jobs::seconds_now;
use crate::open_pool::{OpenPool, key_of};
use crate::state::DAYS_REPORTED;
use crate::volumes::records::{self, Found};
use crate::volumes::service::Volumes;
use crate::volumes::view::{
    NEARLY_FULL_PERCENT, NOT_MOUNTED, SLOW_S, days_text, has_few_inodes, is_missing, percent_used,
    view_volumes,
};
use crate::volumes::volume::Volume;
use crate::volumes::workers::Wait;

/// Pause between two looks.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Looks between two counts of usage.
const LOOKS_PER_COUNT: u32 = 12;

/// What is the matter with volumes.
pub(crate) struct VolumeWatch {
    volumes: Rc<Volumes>,
    findings: RefCell<Vec<Finding>>,
}

impl VolumeWatch {
    pub(crate) fn new(volumes: &Rc<Volumes>) -> Self {
        Self { volumes: Rc::clone(volumes), findings: RefCell::default() }
    }

    /// Looks at volumes for as long as the service lives.
    pub(crate) fn keep_looking(self: &Rc<Self>) {
        let service = Rc::downgrade(self);
        let clock = Rc::clone(&self.volumes.seams.clock);
        let looking = async move {
            let mut look = 0_u32;
            while let Some(service) = service.upgrade() {
                if !service.volumes.pools.is_stopping.get() {
                    service.look(look.is_multiple_of(LOOKS_PER_COUNT)).await;
                }
                drop(service);
                look = look.wrapping_add(1);
                sleep(clock.as_ref(), LOOK_EVERY).await;
            }
        };
        self.volumes.seams.spawner.spawn("volumes", Box::pin(looking));
    }

    /// Judges all volumes; counts their usage where that is due.
    async fn look(&self, is_count_due: bool) {
        let mut findings = Vec::new();
        for pool in self.volumes.pools.open_pools() {
            // What cannot be read is told of its pool.
            let Ok(volumes) = view_volumes(&self.volumes, &pool).await else { continue };
            for volume in &volumes {
                findings.extend(findings_of(volume));
            }
            if is_count_due {
                self.volumes.shares.look_at_shares(&pool);
            }
            self.count_usage(&pool, is_count_due).await;
            self.volumes.unit_files.follow(&pool).await;
        }
        findings.extend(self.volumes.shares.known.findings());
        self.findings.replace(findings);
    }

    /// Has the usage of mounted volumes counted that is due, or was never counted; the counts come in later.
    async fn count_usage(&self, pool: &Rc<OpenPool>, is_due: bool) {
        for space in pool.spaces.list() {
            let key = key_of(pool, &space);
            let is_known = self.volumes.known.borrow().get(&key).is_some_and(|known| known.usage.is_some());
            if !is_due && is_known {
                continue;
            }
            if self.volumes.uses.mounted_at(key).is_none() || self.volumes.workers.at_work(key).is_some() {
                continue;
            }
            let Ok(Some(Found::Known(record))) = records::read(&space).await else { continue };
            let name = format!("{}/{}", pool.name(), space.name());
            let volume = Volume { pool: Rc::clone(pool), space, key, name, record: *record };
            let volumes = Rc::clone(&self.volumes);
            let counting = async move { count(&volumes, &volume).await };
            self.volumes.seams.spawner.spawn("volume usage", Box::pin(counting));
        }
    }

    /// Returns what was the matter with volumes when they were looked at last.
    pub(crate) fn findings(&self) -> Vec<Finding> {
        self.findings.borrow().clone()
    }
}

/// Has the usage of a mounted volume counted, unless a change of it is under way.
async fn count(volumes: &Volumes, volume: &Volume) {
    // One that somebody unmounted has no usage, and whoever follows that needs the lock.
    if matches!(volumes.mount_of(volume.key).await, Ok((_, None))) {
        return;
    }
    let mutex = volumes.mutex_of(volume.key);
    let Some(_exclusive) = mutex.try_take() else { return };
    count_held(volumes, volume).await;
}

/// Has the usage of a mounted volume counted. The caller holds the lock of changes of the volume.
pub(super) async fn count_held(volumes: &Volumes, volume: &Volume) {
    let Some(shown) = volumes.transports.find(volume.key) else { return };
    let operation = Operation::Usage { volume: volume.for_worker(shown.device().clone()) };
    match volumes.workers.run(volume.key, &volume.name, operation, Wait::Request).await {
        Ok(Outcome::Usage(usage)) => {
            if usage.total > 0 {
                let used = usage.total.saturating_sub(usage.free);
                volume.pool.volume_fillings.of(volume.space.id()).note(seconds_now(), used);
            }
            volumes.known.borrow_mut().entry(volume.key).or_default().usage = Some(usage);
        }
        Ok(_) => {}
        Err(error) => {
            tracing::debug!(volume = volume.name, %error, "the usage of a volume was not counted")
        }
    }
}

/// Returns what to do about a finding of a volume, in words.
pub(crate) fn volume_advice(finding: &Finding) -> Option<String> {
    let name = &finding.object;
    match finding.code {
        FindingCode::VolumeNotMounted => Some(format!(
            "see what `dolmen volume show {name}` says, mend it, and `dolmen volume mount {name}`; `dolmen volume unmount {name}` says \
             that it is not to be mounted"
        )),
        FindingCode::VolumeNotUnderstood => {
            Some(format!("use the build that wrote the record of {name}, or a later one"))
        }
        FindingCode::VolumeSlow => {
            Some(format!("see whether the disks of {name} answer: `dolmen why {name}`"))
        }
        FindingCode::VolumeNearlyFull => {
            Some(format!("delete files of {name}, or `dolmen volume grow {name} SIZE`"))
        }
        FindingCode::VolumeFilling => {
            Some(format!("delete files of {name} in time, or `dolmen volume grow {name} SIZE`"))
        }
        FindingCode::VolumeInodesNearlyUsed => Some(format!(
            "delete files of {name}, or `dolmen volume grow {name} SIZE`: a larger file system has more inodes"
        )),
        FindingCode::VolumeErrors => Some(format!(
            "see which files `dolmen why {name}` names; `dolmen volume unmount {name}`, then `dolmen volume check {name}`, which can \
             repair"
        )),
        FindingCode::ShareDown => Some(format!(
            "see which step `dolmen share list {name}` names, mend it, and `dolmen volume mount {name}` to put its shares again"
        )),
        _ => None,
    }
}

/// Whether the creation of a volume has failed: what stands in its way is known, and no process is at work.
fn is_unmade(volume: &dolmen_api::Volume) -> bool {
    volume.state == VolumeState::Making && volume.worker.is_none() && !volume.why.is_empty()
}

fn findings_of(volume: &dolmen_api::Volume) -> Vec<Finding> {
    let object = || Object::space(volume.pool.as_str(), volume.name.as_str());
    let name = format!("{}/{}", volume.pool, volume.name);
    let warn = |code, text: String| found(code, Health::Warning, object(), text);
    let mut findings = Vec::new();
    if volume.state == VolumeState::NotUnderstood {
        findings.push(warn(
            FindingCode::VolumeNotUnderstood,
            format!("volume {name}: {}", volume.why.join("; ")),
        ));
    }
    if is_missing(volume) {
        let at = volume.mount_point.as_deref().unwrap_or_default();
        let cause = volume.why.iter().filter(|why| *why != NOT_MOUNTED).cloned().collect::<Vec<_>>();
        let cause = match cause.is_empty() {
            true => "another program unmounted it, or it is about to be mounted".to_owned(),
            false => cause.join("; "),
        };
        let text = format!("volume {name} is to be mounted at {at}, and is not: {cause}");
        findings.push(warn(FindingCode::VolumeNotMounted, text));
    }
    if is_unmade(volume) {
        let text =
            format!("volume {name} is not made yet, and nothing goes on with it: {}", volume.why.join("; "));
        findings.push(warn(FindingCode::VolumeNotMounted, text));
    }
    if let Some(worker) =
        volume.worker.as_ref().filter(|worker| worker.elapsed_s >= SLOW_S && !worker.is_long)
    {
        let text = format!(
            "{} of volume {name} takes long: process {} is at it since {} seconds or more",
            worker.operation, worker.pid, SLOW_S
        );
        findings.push(warn(FindingCode::VolumeSlow, text));
    }
    if let (Some(total), Some(free)) = (volume.total_bytes, volume.free_bytes)
        && percent_used(total, free).is_some_and(|percent| percent > NEARLY_FULL_PERCENT)
    {
        let text = format!("more than {NEARLY_FULL_PERCENT} % of the file system of volume {name} is used");
        findings.push(warn(FindingCode::VolumeNearlyFull, text));
    }
    if let Some(days) = volume.days_until_full.filter(|days| *days < DAYS_REPORTED) {
        let text = format!(
            "the file system of volume {name} is full in {} at the rate of the last week",
            days_text(days)
        );
        findings.push(warn(FindingCode::VolumeFilling, text));
    }
    if has_few_inodes(volume) {
        let text = format!("more than {NEARLY_FULL_PERCENT} % of the inodes of volume {name} are used");
        findings.push(warn(FindingCode::VolumeInodesNearlyUsed, text));
    }
    if let Some(first) = volume.errors.first() {
        let more = volume.errors.len() - 1;
        let more = if more == 0 { String::new() } else { format!("; and {more} more") };
        let text = format!("the file system of volume {name}: {first}{more}");
        findings.push(found(FindingCode::VolumeErrors, Health::Unhealthy, object(), text));
    }
    findings
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// Returns the codes of what is the matter with a volume that has these fields.
    fn codes(fields: &Value) -> Vec<FindingCode> {
        let mut volume = json!({
            "pool": "tank", "name": "v", "health": "healthy", "why": [], "state": "ready", "size_bytes": 100, "claimed_bytes": 0,
            "is_to_be_mounted": true, "mounted_at": "/srv/v",
        });
        for (name, value) in fields.as_object().unwrap() {
            volume[name] = value.clone();
        }
        let found = findings_of(&serde_json::from_value(volume).unwrap());
        assert!(found.iter().all(|one| one.text.contains("tank/v") && volume_advice(one).is_some()));
        found.into_iter().map(|one| one.code).collect()
    }

    #[test]
    fn each_trouble_of_a_volume_has_its_finding_and_advice() {
        let worker = |seconds: u64| json!({"pid": 7, "operation": "mkfs", "elapsed_s": seconds});
        for (fields, expected) in [
            (json!({}), vec![]),
            (json!({"mounted_at": null}), vec![FindingCode::VolumeNotMounted]),
            (json!({"mounted_at": null, "is_to_be_mounted": false}), vec![]),
            (json!({"mounted_at": null, "state": "making"}), vec![]),
            (json!({"state": "making", "why": ["mkfs failed"]}), vec![FindingCode::VolumeNotMounted]),
            (json!({"state": "making", "why": ["mkfs failed"], "worker": worker(1)}), vec![]),
            (json!({"mounted_at": null, "mount_state": "mounting"}), vec![]),
            (json!({"mounted_at": null, "mount_state": "unmounting"}), vec![]),
            (json!({"mounted_at": null, "worker": worker(SLOW_S - 1)}), vec![]),
            (json!({"mounted_at": null, "worker": worker(SLOW_S)}), vec![FindingCode::VolumeSlow]),
            (json!({"state": "not_understood"}), vec![FindingCode::VolumeNotUnderstood]),
            (json!({"total_bytes": 1000, "free_bytes": 100}), vec![]),
            (json!({"total_bytes": 1000, "free_bytes": 89}), vec![FindingCode::VolumeNearlyFull]),
            (json!({"total_bytes": 0, "free_bytes": 0}), vec![]),
            (json!({"inodes": 1000, "free_inodes": 100}), vec![]),
            (json!({"inodes": 1000, "free_inodes": 89}), vec![FindingCode::VolumeInodesNearlyUsed]),
            (json!({"days_until_full": DAYS_REPORTED}), vec![]),
            (json!({"days_until_full": DAYS_REPORTED - 1}), vec![FindingCode::VolumeFilling]),
            (json!({"errors": ["the kernel counted 2 errors", "more"]}), vec![FindingCode::VolumeErrors]),
        ] {
            assert_eq!(codes(&fields), expected, "{fields}");
        }
    }
}
