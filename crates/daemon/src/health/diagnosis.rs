//! Health of everything on this host, and what to do about it.

use std::rc::Rc;

use dolmen_api::{Finding, FindingCode, Health, Object, SCHEMA, Status};
use dolmen_block_io::{Instant, Seams};

use crate::answer::Answer;
use crate::attach::Transports;
use crate::base::Base;
use crate::finding::found;
use crate::health::findings::pool_findings;
use crate::health::status::{advice, doing, not_open, to_open, to_resume, version};
use crate::jobs::Jobs;
use crate::open_pools::OpenPools;
use crate::spaces::NetworkListeners;
use crate::views::Views;
use crate::volumes::{VolumeWatch, volume_advice};
use crate::words::counted;

/// Health of pools, and what to do.
pub(crate) struct Diagnosis {
    pools: Rc<OpenPools>,
    views: Rc<Views>,
    network: Rc<NetworkListeners>,
    seams: Seams,
    jobs: Rc<Jobs>,
    transports: Rc<Transports>,
    volumes: Rc<VolumeWatch>,
    began: Instant,
}

impl Diagnosis {
    pub(crate) fn new(base: &Base, network: &Rc<NetworkListeners>, volumes: &Rc<VolumeWatch>) -> Self {
        Self {
            pools: Rc::clone(&base.pools),
            views: Rc::clone(&base.views),
            network: Rc::clone(network),
            seams: base.seams.clone(),
            jobs: Rc::clone(&base.jobs),
            transports: Rc::clone(&base.transports),
            volumes: Rc::clone(volumes),
            began: base.began,
        }
    }
}

impl Diagnosis {
    pub(crate) async fn status(&self) -> Answer<Status> {
        let now = self.seams.clock.now();
        let (mut pools, mut spaces) = (Vec::new(), Vec::new());
        let mut going_on: Vec<String> = self.pools.doing.borrow().clone();
        let (mut to_do, mut findings) = (Vec::new(), Vec::new());
        for open in self.pools.open_pools() {
            let jobs = self.jobs.of_pool(open.id(), now);
            going_on.extend(jobs.iter().map(doing));
            to_do.extend(advice(&open, &jobs, now).await.into_iter().map(|one| one.text));
            to_do.extend(self.jobs.unfinished_of(open.id()).iter().filter_map(|job| to_resume(job)));
            let of_pool = pool_findings(&open).await;
            pools.push(self.views.view_pool_with(&open, &of_pool).await?);
            findings.extend(of_pool);
            spaces.extend(self.views.view_spaces(&open).await?);
        }
        to_do.extend(
            self.pools.closed.borrow().values().map(|closed| to_open(&closed.remembered.name, &closed.cause)),
        );
        pools.extend(self.views.view_closed());
        pools.sort_by(|a, b| a.name.cmp(&b.name));
        let besides = self.findings_besides();
        let of_these = besides.iter().map(|one| one.health).max().unwrap_or(Health::Healthy);
        let health = pools.iter().map(|pool| pool.health).max().unwrap_or(Health::Healthy).max(of_these);
        let mut why: Vec<String> = pools.iter().flat_map(|pool| pool.why.clone()).collect();
        to_do.extend(self.advice_besides(&besides));
        why.extend(besides.iter().map(|one| one.text.clone()));
        findings.extend(self.pools.closed.borrow().values().map(not_open));
        findings.extend(besides);
        Ok(Status {
            schema: SCHEMA,
            health,
            summary: summary(health, pools.len(), spaces.len(), why.len()),
            why,
            doing: going_on,
            todo: to_do,
            findings,
            version: version(),
            uptime_s: now.since(self.began).as_secs(),
            pid: std::process::id(),
            pools,
            spaces,
        })
    }

    /// What is the matter with anything but pools that are open.
    pub(crate) fn findings_besides(&self) -> Vec<Finding> {
        let warn = |code, name: String, text| found(code, Health::Warning, Object::daemon(name), text);
        let is_open = |pool| self.pools.open.borrow().contains_key(&pool);
        let shown = self.transports.all();
        let waiting = shown.iter().filter(|one| !is_open(one.space().pool));
        let mut findings: Vec<Finding> =
            waiting.map(|one| warn(FindingCode::AttachedWaits, one.name(), one.waits_text())).collect();
        for name in self.ended_with_daemon() {
            let text = format!(
                "space {name} was attached by io_uring (loop-uring), which ended with the daemon before: it is not attached any more"
            );
            findings.push(warn(FindingCode::AttachmentEnded, name, text));
        }
        let listeners = self.network.listener_problems().into_iter();
        findings.extend(listeners.map(|(at, text)| warn(FindingCode::ListenerClosed, at, text)));
        let certificates = self.network.certificate_warnings().into_iter();
        findings.extend(certificates.map(|(at, text)| warn(FindingCode::CertificateTrouble, at, text)));
        findings.extend(self.volumes.findings());
        findings
    }

    /// What to do about it.
    pub(crate) fn advice_besides(&self, findings: &[Finding]) -> Vec<String> {
        let has = |code| findings.iter().any(|one| one.code == code);
        let is_open = |pool| self.pools.open.borrow().contains_key(&pool);
        let shown = self.transports.all();
        let waiting = shown.iter().filter(|one| !is_open(one.space().pool));
        let mut advice: Vec<String> = waiting.map(|one| one.to_go_on()).collect();
        let ended = findings.iter().filter(|one| one.code == FindingCode::AttachmentEnded);
        advice.extend(ended.map(|one| {
            format!(
                "attach it again: `dolmen space attach {0}`; `dolmen space detach {0}` says that it is not to be",
                one.object
            )
        }));
        if has(FindingCode::ListenerClosed) {
            advice.push(
                "mend what is said of the address or its files; it is tried again every few seconds"
                    .to_owned(),
            );
        }
        if has(FindingCode::CertificateTrouble) {
            let text =
                "put new files in the place of those that are named; they are read again by themselves";
            advice.push(text.to_owned());
        }
        advice.extend(findings.iter().filter_map(volume_advice));
        advice
    }

    /// Spaces that were attached in the way that ends with the daemon, and did.
    fn ended_with_daemon(&self) -> Vec<String> {
        let pools = self.pools.open.borrow();
        let mut ended = self.transports.ended();
        // One that was deleted is nobody's concern; of a pool that is not open nobody knows.
        ended.retain(|(key, _)| pools.get(&key.pool).is_none_or(|pool| pool.spaces.get(key.space).is_some()));
        ended.into_iter().map(|(_, name)| name).collect()
    }
}

fn summary(health: Health, pools: usize, spaces: usize, reasons: usize) -> String {
    let all = format!("{} with {}", counted(pools, "pool", "pools"), counted(spaces, "space", "spaces"));
    match health {
        Health::Healthy if pools == 0 => "healthy: no pool is open here".to_owned(),
        Health::Healthy => format!("healthy: {all}, everything is as it should be"),
        Health::Warning => {
            format!(
                "warning: {all}; nothing that was flushed is lost, but there {} to look at",
                plural(reasons)
            )
        }
        Health::Unhealthy => format!("unhealthy: {all}; data or a whole pool is out of reach or lost"),
    }
}

fn plural(reasons: usize) -> String {
    if reasons == 1 { "is 1 thing".to_owned() } else { format!("are {reasons} things") }
}
