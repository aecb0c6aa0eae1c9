//! What disks are in: enclosures, shelves, whatever may fail as one, by name (docs/design/0023).

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use dolmen_api::{ErrorBody, ErrorCode, Finding, FindingCode, Health, Object};
use dolmen_pool::{Disk, Pool};
use dolmen_units::Name;

use crate::advice::Advice;
use crate::answer::Answer;
use crate::finding::found;
use crate::open_pool::OpenPool;
use crate::plan::{Figures, usual_room};
use crate::words::counted;

/// Fault domains of disks that join, and names of those that are new.
pub(crate) struct Domains {
    /// A number for each disk, in order; 0 for a disk by itself.
    pub(crate) numbers: Vec<u32>,
    pub(crate) named: Vec<(u32, Name)>,
}

impl Domains {
    /// Of disks that are to be in these. Names that a pool has keep their numbers.
    pub(crate) fn of(enclosures: &[String], pool: Option<&Pool>) -> Answer<Self> {
        let mut new: BTreeMap<Name, u32> = BTreeMap::new();
        let mut numbers = Vec::with_capacity(enclosures.len());
        for text in enclosures {
            if text.is_empty() {
                numbers.push(0);
                continue;
            }
            let name = enclosure_name(text)?;
            let known =
                pool.and_then(|pool| pool.settings().domain_named(&name)).or_else(|| new.get(&name).copied());
            let taken: BTreeSet<u32> = new.values().copied().collect();
            let free = || match pool {
                Some(pool) => pool.settings().free_domain(&taken),
                None => (1..).find(|number| !taken.contains(number)).unwrap_or(0),
            };
            let number = known.unwrap_or_else(free);
            numbers.push(number);
            new.insert(name, number);
        }
        Ok(Self { numbers, named: new.into_iter().map(|(name, number)| (number, name)).collect() })
    }

    pub(crate) fn number(&self, index: usize) -> u32 {
        self.numbers.get(index).copied().unwrap_or(0)
    }
}

pub(super) fn enclosure_name(text: &str) -> Answer<Name> {
    text.parse().map_err(|error| {
        let message = format!("{error}; nothing was changed");
        ErrorBody::new(ErrorCode::BadRequest, message).on(text)
    })
}

/// Refuses more enclosures than disks, and numbers beside names.
pub(crate) fn check_count(enclosures: usize, numbers: usize, disks: usize) -> Answer<()> {
    if enclosures > 0 && numbers > 0 {
        let message = "fault domains are given by number or by name, not both; nothing was changed";
        return Err(ErrorBody::new(ErrorCode::BadRequest, message));
    }
    if enclosures > disks {
        let message = "there are more enclosures than disks; nothing was changed";
        return Err(ErrorBody::new(ErrorCode::BadRequest, message));
    }
    Ok(())
}

pub(super) fn in_words(pool: &Pool, number: u32, domains: &Domains) -> String {
    let new = domains.named.iter().find(|(known, _)| *known == number).map(|(_, name)| name.clone());
    match (number, pool.settings().domain_name(number).or(new)) {
        (0, _) => "by itself".to_owned(),
        (_, Some(name)) => format!("in {name}"),
        (number, None) => format!("in fault domain {number}"),
    }
}

/// Room for usual spaces, before and behind.
pub(super) fn figures(pool: &OpenPool, disk: &Disk, domain: u32) -> Figures {
    let mut offers = pool.offers();
    let before = usual_room(&offers);
    let number = if domain == 0 { (1 << 31) + u32::from(disk.slot().0) } else { domain };
    let own = offers.iter_mut().filter(|offer| offer.slot == disk.slot());
    own.for_each(|offer| offer.domain = dolmen_placement::DomainId(number));
    Figures::of_room(before, usual_room(&offers))
}

/// Refuses what would leave a space fewer fault domains than its rows want, where there are enough now.
pub(super) fn check_that_spaces_can_be(pool: &OpenPool, disk: &Rc<Disk>, domain: u32) -> Answer<()> {
    let inner = pool.spaces.pool();
    let of = |other: &Rc<Disk>, own: u32| {
        let number = if other.id() == disk.id() { own } else { other.member().fault_domain };
        if number == 0 { (1 << 31) + u32::from(other.slot().0) } else { number }
    };
    let count = |own: u32| {
        let disks = inner.disks();
        let takers = disks.iter().filter(|other| inner.members().takes_rows(other));
        takers.map(|other| of(other, own)).collect::<BTreeSet<u32>>().len()
    };
    let (before, after) = (count(disk.member().fault_domain), count(domain));
    for space in pool.spaces.kept() {
        let spec = space.spec();
        let Ok(request) = spec.check() else { continue };
        let needed = spec.domains_needed(request.resiliency().minimum_disks()) as usize;
        if spec.resiliency.redundancy() == 0 || before < needed || after >= needed {
            continue;
        }
        let message = format!(
            "space {}/{} keeps its rows apart over {needed} disks or enclosures, and {after} would be left; nothing was changed",
            pool.name(),
            spec.name
        );
        return Err(ErrorBody::new(ErrorCode::TooFewDisks, message).hint(format!(
            "add disks in other enclosures first: `dolmen pool add {} DISK --enclosure NAME`; or convert the space to what needs fewer",
            pool.name()
        )));
    }
    Ok(())
}

impl OpenPool {
    /// Counts rows that share an enclosure and need not, for those who look at what is the matter. Where no disk is in one, none
    /// does, and nothing is read.
    pub(crate) async fn count_badly_laid(&self) {
        let is_any = self.spaces.pool().disks().iter().any(|disk| disk.member().fault_domain != 0);
        let rows = match is_any {
            true => self.spaces.moves().rows_laid_badly().await.unwrap_or(0),
            false => 0,
        };
        self.laid_badly.set(rows);
    }
}

/// That rows share an enclosure.
pub(crate) fn rows_share(open: &OpenPool) -> Option<Finding> {
    let rows = open.laid_badly.get();
    if rows == 0 {
        return None;
    }
    let (name, lie) = (open.name(), if rows == 1 { "lies" } else { "lie" });
    let text = format!(
        "{} of pool {name} {lie} on disks of one enclosure that could be apart",
        counted(rows, "row", "rows")
    );
    let object = Object::pool(name);
    Some(Finding { amount: rows, ..found(FindingCode::RowsShareEnclosure, Health::Warning, object, text) })
}

/// What to do about that.
pub(crate) fn apart_advice(open: &OpenPool) -> Option<Advice> {
    let shared = rows_share(open)?;
    Some(Advice::new(
        shared.code,
        shared.object,
        format!("`dolmen pool rebalance {}` moves them apart", open.name()),
    ))
}
