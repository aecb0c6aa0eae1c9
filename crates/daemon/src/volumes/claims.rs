//! Mount points that changes under way want.
//!
//! A change claims the place that it wants, looks whether another volume has it, and writes its record before it gives the claim back.
//! So of two changes that want one place, one finds the claim of the other, or its record.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;

use dolmen_api::{ErrorBody, ErrorCode};
use dolmen_mutation::mutation;
use dolmen_volume::mount_point::MountPoint;

use crate::answer::Answer;

/// A claim: the volume that wants a place, and the place.
#[derive(Debug, Clone)]
struct Wanted {
    name: String,
    place: String,
}

/// Places that changes under way want.
#[derive(Debug, Default)]
pub(super) struct Claims {
    wanted: RefCell<BTreeMap<u64, Wanted>>,
}

/// A claim on a place, until this is dropped.
#[derive(Debug)]
pub(super) struct Claim {
    claims: Rc<Claims>,
    number: u64,
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.claims.wanted.borrow_mut().remove(&self.number);
    }
}

impl Claims {
    /// Claims a place for a volume. The same volume may have several claims.
    ///
    /// # Errors
    /// Another volume wants the place, one above or one below.
    pub(super) fn claim(self: &Rc<Self>, place: &MountPoint, name: &str) -> Answer<Claim> {
        let mut wanted = self.wanted.borrow_mut();
        let overlaps = |one: &&Wanted| one.name != name && do_overlap(&one.place, place.as_str());
        if let Some(other) = wanted.values().find(overlaps).filter(|_| !mutation!(PlaceTakenTwice)) {
            return Err(taken(name, place, &other.name, &other.place));
        }
        let number = wanted.last_key_value().map_or(0, |(last, _)| last + 1);
        wanted.insert(number, Wanted { name: name.to_owned(), place: place.to_string() });
        Ok(Claim { claims: Rc::clone(self), number })
    }
}

/// Returns whether one path is the other, or lies below it.
pub(super) fn do_overlap(one: &str, other: &str) -> bool {
    let (one, other) = (Path::new(one), Path::new(other));
    one.starts_with(other) || other.starts_with(one)
}

/// Returns the refusal of a place that another volume has or wants.
pub(super) fn taken(name: &str, place: &MountPoint, other: &str, at: &str) -> ErrorBody {
    let message = format!(
        "volume {name} cannot have the mount point {place}: volume {other} has {at}; nothing was changed"
    );
    let hint = "choose a path that is neither above nor below it, with --mount";
    ErrorBody::new(ErrorCode::NameTaken, message).on(name).hint(hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scenario: two volumes want one place, one above, one below, and one beside; the first one gives its claim back.
    #[test]
    fn two_changes_under_way_never_have_one_place() {
        let claims = Rc::<Claims>::default();
        let claim = |name: &str, place: &str| claims.claim(&place.parse().unwrap(), name);
        let first = claim("tank/a", "/srv/a").unwrap();
        for place in ["/srv/a", "/srv", "/srv/a/b"] {
            let error = claim("tank/b", place).expect_err("one place was claimed twice");
            assert!(error.message.contains("volume tank/a has /srv/a"), "{error}");
        }
        let beside = claim("tank/b", "/srv/ab").unwrap();
        let again = claim("tank/a", "/srv/a").unwrap();
        drop(first);
        claim("tank/b", "/srv/a").expect_err("a claim ended with another one");
        drop((again, beside));
        claim("tank/b", "/srv/a").unwrap();
    }
}
