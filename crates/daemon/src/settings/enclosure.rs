//! What disks are in: enclosures, shelves, whatever may fail as one, by name (docs/design/0023).

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use dolmen_api::{Change, ErrorBody, ErrorCode, Finding, FindingCode, Health, Object, SetEnclosure};
use dolmen_pool::{Disk, Pool};
use dolmen_units::Name;

use crate::advice::Advice;
use crate::answer::Answer;
use crate::disks::find_disk;
use crate::fault;
use crate::finding::found;
use crate::open_pool::OpenPool;
use crate::plan::{Figures, Undo, made, planned, usual_room};
use crate::settings::service::Settings;
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
            let known = pool.and_then(|pool| pool.domain_named(&name)).or_else(|| new.get(&name).copied());
            let taken: BTreeSet<u32> = new.values().copied().collect();
            let free = || match pool {
                Some(pool) => pool.free_domain(&taken),
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

fn enclosure_name(text: &str) -> Answer<Name> {
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

impl Settings {
    /// Says what a disk is in.
    pub(crate) async fn set_enclosure(
        &self,
        name: String,
        what: String,
        request: SetEnclosure,
    ) -> Answer<Change> {
        let pool = self.pools.pool_to_change(&name)?;
        let _exclusive = self.pools.lock_for_change(&pool).await?;
        let disk = find_disk(&pool, &what)?;
        let inner = pool.spaces.pool();
        inner.check_writable().map_err(|error| fault::pool(&error))?;
        let wanted = request.name.as_deref().map(enclosure_name).transpose()?;
        let text = wanted.as_ref().map(ToString::to_string).unwrap_or_default();
        let domains = Domains::of(&[text], Some(inner))?;
        let (before, after) = (disk.member().fault_domain, domains.number(0));
        if before == after {
            let text = format!("{} is {} already", disk.name(), in_words(inner, after, &domains));
            return Ok(planned(pool.plan(Undo::NotNeeded, Vec::new()), text));
        }
        check_that_spaces_can_be(&pool, &disk, after).map_err(|error| error.on(what))?;
        let undo = match inner.domain_name(before) {
            Some(old) => Undo::By(format!("dolmen disk set {name} {} --enclosure {old}", disk.slot().0)),
            None if before == 0 => Undo::By(format!("dolmen disk set {name} {} --alone", disk.slot().0)),
            None => Undo::ByNothing,
        };
        let (is, was) = (in_words(inner, after, &domains), in_words(inner, before, &domains));
        let steps = vec![
            format!("note that {} is {is}, where it was {was}", disk.name()),
            "lay new rows apart by that; those that are there stay until a rebalance".to_owned(),
        ];
        let plan = figures(&pool, &disk, after).plan(undo, steps);
        if request.dry_run {
            return Ok(planned(plan, format!("{} would be {is}", disk.name())));
        }
        let fault = |error: dolmen_pool::PoolError| fault::pool(&error).on(disk.name());
        // The name first: a disk never is in what nobody can name.
        inner.name_domains(&domains.named).await.map_err(fault)?;
        inner.set_fault_domain(&disk, after).await.map_err(fault)?;
        pool.count_badly_laid().await;
        let mut change = made(plan, format!("{} is {is}", disk.name()));
        let badly = pool.laid_badly.get();
        if badly > 0 {
            let rows = counted(badly, "row", "rows");
            change
                .warnings
                .push(format!("{rows} lie badly now; `dolmen pool rebalance {name}` moves them apart"));
        }
        Ok(change)
    }
}

fn in_words(pool: &Pool, number: u32, domains: &Domains) -> String {
    let new = domains.named.iter().find(|(known, _)| *known == number).map(|(_, name)| name.clone());
    match (number, pool.domain_name(number).or(new)) {
        (0, _) => "by itself".to_owned(),
        (_, Some(name)) => format!("in {name}"),
        (number, None) => format!("in fault domain {number}"),
    }
}

/// Room for usual spaces, before and behind.
fn figures(pool: &OpenPool, disk: &Disk, domain: u32) -> Figures {
    let mut offers = pool.offers();
    let before = usual_room(&offers);
    let number = if domain == 0 { (1 << 31) + u32::from(disk.slot().0) } else { domain };
    let own = offers.iter_mut().filter(|offer| offer.slot == disk.slot());
    own.for_each(|offer| offer.domain = dolmen_placement::DomainId(number));
    Figures::of_room(before, usual_room(&offers))
}

/// Refuses what would leave a space fewer fault domains than its rows want, where there are enough now.
fn check_that_spaces_can_be(pool: &OpenPool, disk: &Rc<Disk>, domain: u32) -> Answer<()> {
    let inner = pool.spaces.pool();
    let of = |other: &Rc<Disk>, own: u32| {
        let number = if other.id() == disk.id() { own } else { other.member().fault_domain };
        if number == 0 { (1 << 31) + u32::from(other.slot().0) } else { number }
    };
    let count = |own: u32| {
        let disks = inner.disks();
        let takers = disks.iter().filter(|other| inner.takes_rows(other));
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
            true => self.spaces.rows_laid_badly().await.unwrap_or(0),
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
