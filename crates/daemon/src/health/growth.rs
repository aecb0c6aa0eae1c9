//! Disks whose device has grown, as the status reports them (docs/design/0034).

use std::rc::Rc;

use dolmen_api::{Finding, FindingCode, Health, Object};
use dolmen_pool::Disk;
use dolmen_units::Bytes;

use crate::advice::Advice;
use crate::finding::found;
use crate::open_pool::OpenPool;

/// The least that is reported of what a device has gained. A disk that was copied to a slightly larger one is no news.
const REPORTED_MIN: Bytes = Bytes::mib(64);
/// What is reported is at least this part of the disk.
const REPORTED_SHARE: u64 = 64;

/// Disks whose device has gained much that is not in use.
fn grown_disks(open: &OpenPool) -> Vec<(Rc<Disk>, Bytes)> {
    let disks = open.spaces.pool().disks();
    let grown = disks.into_iter().filter(|disk| disk.is_present()).map(|disk| {
        let gained = disk.size().gained();
        (disk, gained)
    });
    let is_much = |(disk, gained): &(Rc<Disk>, Bytes)| {
        *gained >= REPORTED_MIN && gained.0 >= disk.size().capacity().0 / REPORTED_SHARE
    };
    grown.filter(is_much).collect()
}

/// Devices that have grown.
pub(crate) fn growth_findings(open: &OpenPool) -> Vec<Finding> {
    let finding = |(disk, gained): (Rc<Disk>, Bytes)| {
        let text = format!("{} has grown, and {gained} of it are not used", open.called(&disk));
        found(FindingCode::DiskGrown, Health::Warning, Object::disk(open.name(), disk.slot().0), text)
    };
    grown_disks(open).into_iter().map(finding).collect()
}

/// What to do about them.
pub(crate) fn growth_advice(open: &OpenPool) -> Vec<Advice> {
    let name = open.name();
    let advice = |(disk, gained): (Rc<Disk>, Bytes)| {
        let text = format!(
            "use the {gained} that {} has gained: `dolmen disk grow {name} {}`; or make the device as small again as it was",
            open.called(&disk),
            disk.slot().0
        );
        Advice::for_disk(open, FindingCode::DiskGrown, &disk, text)
    };
    grown_disks(open).into_iter().map(advice).collect()
}
