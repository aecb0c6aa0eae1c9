//! Attributes of a space: listed, and changed by one change of the map.
//!
//! Invariants:
//! - The change that creates a space puts its first attributes, and the change that deletes its entry deletes all of them.
//! - A rename, the trash and a conversion keep attributes: their key is the id of the space.
//! - Hidden spaces have none.
//! - A change that makes no value longer is never refused for want of room.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::Range;

use dolmen_future_pool::pooled;
use dolmen_mutation::mutation;
use dolmen_pool::{Change, MetadataMap, PoolError, Purpose, keys};
use dolmen_store::Key;
use dolmen_units::SpaceId;

use crate::format::attribute_fault::{ATTRIBUTES_MAX, AttributeFault};
use crate::format::attributes::{Attribute, AttributeKey, check_attributes};
use crate::format::error::SpaceError;
use crate::format::ids::is_hidden;
use crate::table::space::SpaceRows;

/// Attributes that one read of the map brings, at most.
const STEP: usize = 64;

/// Reads that are compared with the one before, at most, before changes are kept out.
const READS_MAX: usize = 3;

/// Attributes of a space.
#[derive(Clone, Copy)]
pub struct Attributes<'a> {
    space: &'a SpaceRows,
}

impl<'a> Attributes<'a> {
    /// Returns the attributes of a space.
    #[must_use]
    pub fn of(space: &'a SpaceRows) -> Self {
        Self { space }
    }
}

impl Attributes<'_> {
    /// Lists the attributes by type and number, as they were between two changes. A space in the trash has those that it had.
    ///
    /// # Errors
    /// [`SpaceError::Pool`] when the map cannot be read, or has an attribute that no space can have.
    #[pooled]
    pub async fn list(self) -> Result<Vec<Attribute>, SpaceError> {
        let pool = &self.space.shared.pool;
        let (map, id) = (pool.map(), self.space.id());
        let mut found = found_of(map, id).await?;
        // A change is applied at once, so no change lies within two equal reads. Changes are not kept out as long as that: one may wait
        // for a disk.
        let mut is_whole = false;
        for _ in 0..READS_MAX {
            let again = found_of(map, id).await?;
            is_whole = again == found;
            found = again;
            if is_whole {
                break;
            }
        }
        if !is_whole {
            let _exclusive = pool.change(Purpose::Release).await;
            found = found_of(map, id).await?;
        }
        found
            .into_iter()
            .map(|(key, value)| {
                let (kind, _, number) = keys::parts(&key);
                let kind = u8::try_from(kind).map_err(|_| PoolError::Corrupt {
                    name: pool.name().clone(),
                    what: format!("an attribute of the unknown type {kind} of space {}", self.space.name()),
                })?;
                Ok(Attribute { kind, number, value })
            })
            .collect()
    }

    /// Puts and deletes attributes by one change of the map, durable when this returns. A deletion of one that does not exist does
    /// nothing. A space in the trash may be changed too.
    ///
    /// # Errors
    /// [`SpaceError::Attribute`] where a limit is exceeded, [`SpaceError::Deleted`], or what the pool says. The attributes are what they
    /// were then.
    #[pooled]
    pub async fn change(self, puts: Vec<Attribute>, deletes: Vec<AttributeKey>) -> Result<(), SpaceError> {
        let (space, pool) = (self.space, &self.space.shared.pool);
        check_attributes(&space.name(), &puts, &deletes)?;
        // Changes of attributes, and the deletion of the space, are made with this lock held.
        let _exclusive = space.spec_mutex.take().await;
        let is_deleted = || space.freed.get() || is_hidden(space.id());
        if is_deleted() {
            return Err(SpaceError::Deleted { name: space.name() });
        }
        let found = found_of(pool.map(), space.id()).await?;
        let before: BTreeMap<Key, usize> = found.into_iter().map(|(key, value)| (key, value.len())).collect();
        let purpose = purpose_of(space, &before, &puts, &deletes)?;
        let mut change = pool.change(purpose).await;
        if is_deleted() {
            return Err(SpaceError::Deleted { name: space.name() });
        }
        deletes.iter().for_each(|key| change.delete(key.of_space(space.id())));
        if mutation!(AttributesInParts) {
            change.commit().await?;
            change = pool.change(purpose).await;
        }
        put_attributes(&mut change, space.id(), puts);
        Ok(change.commit().await?)
    }
}

/// Adds attributes to the change that creates their space.
pub(crate) fn put_attributes(change: &mut Change<'_>, space: SpaceId, attributes: Vec<Attribute>) {
    for attribute in attributes {
        change.put(attribute.key().of_space(space), attribute.value);
    }
}

/// Deletes all attributes of a space in the change that deletes its entry. No other change of them can be under way.
pub(crate) async fn delete_attributes(
    change: &mut Change<'_>,
    map: &MetadataMap,
    space: SpaceId,
) -> Result<(), SpaceError> {
    if mutation!(AttributeSurvivesSpace) {
        return Ok(());
    }
    found_of(map, space).await?.into_iter().for_each(|(key, _)| change.delete(key));
    Ok(())
}

/// Decides how far a change of attributes may reach into the reserve of the map: one that makes it no longer, as far as it takes; one
/// that puts other values, as far as a move; one that adds attributes, no further than a claim.
fn purpose_of(
    space: &SpaceRows,
    before: &BTreeMap<Key, usize>,
    puts: &[Attribute],
    deletes: &[AttributeKey],
) -> Result<Purpose, SpaceError> {
    let key_of = |key: AttributeKey| key.of_space(space.id());
    let added: Vec<&Attribute> = puts.iter().filter(|one| !before.contains_key(&key_of(one.key()))).collect();
    let deleted = deletes.iter().filter(|key| before.contains_key(&key_of(**key))).count();
    let found = before.len() + added.len() - deleted;
    if let Some(first) = added.first().filter(|_| found > ATTRIBUTES_MAX) {
        let (fault, name) = (AttributeFault::TooMany { found }, space.name());
        return Err(SpaceError::Attribute { name, kind: first.kind, number: first.number, fault });
    }
    let is_longer =
        |one: &Attribute| before.get(&key_of(one.key())).is_some_and(|length| *length < one.value.len());
    Ok(match () {
        () if !added.is_empty() => Purpose::Claim,
        () if puts.iter().any(is_longer) => Purpose::Move,
        () => Purpose::Release,
    })
}

/// Returns keys and values of all attributes of a space, ascending. A key begins with the type, so this reads range after range, and
/// looks behind each for the next type that exists.
async fn found_of(map: &MetadataMap, space: SpaceId) -> Result<Vec<(Key, Vec<u8>)>, SpaceError> {
    let mut all = Vec::new();
    let mut from = Some(keys::attribute(0, space, 0));
    while let Some(start) = from {
        let Some((first, _)) = map.scan(start..keys::all(keys::Kind::Attribute).end, 1).await?.pop() else {
            break;
        };
        let (kind, of, _) = keys::parts(&first);
        let next = match of.cmp(&space.0) {
            Ordering::Less => Some(kind),
            Ordering::Equal => {
                read_range(map, keys::attributes_of(kind, space), &mut all).await?;
                kind.checked_add(1)
            }
            Ordering::Greater => kind.checked_add(1),
        };
        // The key of a damaged map may lie where no attribute does: each look begins behind the one before.
        from = next.and_then(|kind| first.next().map(|next| next.max(keys::attribute(kind, space, 0))));
    }
    Ok(all)
}

async fn read_range(
    map: &MetadataMap,
    mut range: Range<Key>,
    into: &mut Vec<(Key, Vec<u8>)>,
) -> Result<(), SpaceError> {
    loop {
        let found = map.scan(range.clone(), STEP).await?;
        let last = found.last().and_then(|(key, _)| key.next()).filter(|_| found.len() == STEP);
        into.extend(found);
        match last {
            Some(next) => range.start = next,
            None => return Ok(()),
        }
    }
}

/// Finds attributes that no space can have, and those of spaces that do not exist. Returns what is wrong, in words.
pub(crate) async fn check_attributes_of(
    map: &MetadataMap,
    is_there: impl Fn(SpaceId) -> bool,
) -> Result<Vec<String>, SpaceError> {
    let (mut findings, mut counts) = (Vec::new(), BTreeMap::<SpaceId, usize>::new());
    let mut range = keys::all(keys::Kind::Attribute);
    loop {
        let found = map.scan(range.clone(), STEP).await?;
        let last = found.last().and_then(|(key, _)| key.next()).filter(|_| found.len() == STEP);
        for (key, value) in found {
            let (kind, space, number) = keys::parts(&key);
            let (space, named) =
                (SpaceId(space), format!("attribute {number} of type {kind} of space {space}"));
            *counts.entry(space).or_default() += 1;
            if !is_there(space) {
                findings.push(format!("{named} has no space"));
            }
            if key != keys::attribute(kind, space, number) || kind > u16::from(u8::MAX) {
                findings.push(format!("{named} has the unknown key {key}"));
            }
            if value.is_empty() {
                findings.push(format!("{named} has no value"));
            }
        }
        match last {
            Some(next) => range.start = next,
            None => break,
        }
    }
    let too_many = counts.into_iter().filter(|(_, count)| *count > ATTRIBUTES_MAX);
    findings.extend(too_many.map(|(space, count)| {
        format!("space {space} has {count} attributes, and {ATTRIBUTES_MAX} are the most")
    }));
    Ok(findings)
}
