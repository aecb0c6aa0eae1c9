//! The whole of a checkpoint on every replica, compared with itself.

use dolmen_future_pool::pooled;
use dolmen_units::DiskId;

use crate::bitmap::Bitmap;
use crate::error::Finding;
use crate::fill::FILL_MIN_BYTES;
use crate::page::{Page, Shape};
use crate::replica::{Port, Replica};
use crate::store::{Pin, Store};
use crate::walk::{Step, Walk};

/// What was seen so far.
struct Seen {
    pages: Bitmap,
    entries: u64,
    /// Whether every page could be looked at: else nothing is known of pages that nothing seems to use.
    complete: bool,
    findings: Vec<Finding>,
}

impl Store {
    /// Reads every page of the checkpoint on every replica and compares all that can be compared. Changes nothing;
    /// checkpoints wait until it is done. An empty list is the verdict that all is well.
    #[pooled]
    pub async fn check(&self) -> Vec<Finding> {
        let _exclusive = self.mutex.take().await;
        let (pin, port) = (self.pin(), self.port());
        let replicas = self.set.borrow().list.clone();
        let pages = Bitmap::new(self.area.pages());
        let mut seen = Seen { pages, entries: 0, complete: true, findings: Vec::new() };
        self.check_blocks(&port, &pin, &replicas, &mut seen).await;
        let mut walk = Walk::new(self, &pin);
        while let Some(group) = walk.group() {
            self.check_group(&pin, &replicas, &group, &mut walk, &mut seen).await;
        }
        self.check_space(&pin, &mut seen);
        seen.findings
    }

    async fn check_blocks(&self, port: &Port, pin: &Pin, replicas: &[Replica], seen: &mut Seen) {
        for replica in replicas {
            let block = port.read_block(replica, pin.tree().slot()).await;
            if !matches!(block, Ok(Some(block)) if block == *pin.tree()) {
                seen.findings.push(self.stale_finding(replica.disk, pin));
            }
        }
    }

    fn stale_finding(&self, disk: DiskId, pin: &Pin) -> Finding {
        Finding::Stale { pool: self.pool, disk, expected: pin.tree().sequence }
    }

    #[pooled]
    async fn check_group(
        &self,
        pin: &Pin,
        replicas: &[Replica],
        group: &[Step],
        walk: &mut Walk,
        seen: &mut Seen,
    ) {
        let port = self.port();
        let expected: Vec<_> = group.iter().map(|step| step.expect).collect();
        let mut sound: Vec<Option<Page>> = group.iter().map(|_| None).collect();
        for replica in replicas {
            let found = port.read_pages(replica, &expected, None).await;
            for ((found, step), sound) in found.into_iter().zip(group).zip(&mut sound) {
                match found {
                    Ok(page) => *sound = Some(page),
                    Err(fault) => {
                        let page = step.expect.at.page;
                        seen.findings.push(Finding::PageOnReplica { pool: self.pool, page, fault });
                    }
                }
            }
        }
        for (step, page) in group.iter().zip(sound) {
            self.check_page(pin, step, page.as_ref(), walk, seen);
        }
    }

    fn check_page(&self, pin: &Pin, step: &Step, page: Option<&Page>, walk: &mut Walk, seen: &mut Seen) {
        let (pool, number) = (self.pool, step.expect.at.page);
        let Some(page) = page else {
            seen.complete = false;
            seen.findings.push(Finding::PageLost { pool, page: number });
            return;
        };
        if !seen.pages.insert(number) {
            // Looked at before: what hangs below was, too, and loops end here.
            seen.findings.push(Finding::UsedTwice { pool, page: number });
            return;
        }
        if let Some(key) = step.upper.and_then(|upper| page.last_key().filter(|last| *last >= upper)) {
            seen.findings.push(Finding::KeyOutOfPlace { pool, page: number, key });
        }
        let is_root = pin.tree().root.is_some_and(|root| root.child.at == step.expect.at);
        let in_tree = matches!(step.expect.shape, Shape::Tree { .. });
        if in_tree && !is_root && page.body().len() < FILL_MIN_BYTES {
            seen.findings.push(Finding::Thin { pool, page: number, used_bytes: page.body().len() });
        }
        if step.expect.shape == (Shape::Tree { level: 0 }) {
            seen.entries += page.count() as u64;
        }
        walk.descend(self, step, page);
    }

    fn check_space(&self, pin: &Pin, seen: &mut Seen) {
        if !seen.complete {
            return;
        }
        let pool = self.pool;
        let space = self.space.borrow();
        let lost = seen.pages.without(&space.used).map(|page| Finding::UsedButFree { pool, page });
        seen.findings.extend(lost);
        let mut leaked = space.used.without(&seen.pages);
        if let Some(first) = leaked.next() {
            seen.findings.push(Finding::Leaked { pool, first, count: 1 + leaked.count() as u64 });
        }
        let expected = pin.tree().entries;
        if seen.entries != expected {
            seen.findings.push(Finding::EntryCount { pool, found: seen.entries, expected });
        }
    }
}
