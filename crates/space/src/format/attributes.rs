//! Attributes of a space: small records of other layers in the map of the pool (docs/format/pool.md).
//!
//! Neither pool nor space interprets a value.

use dolmen_store::Key;
use dolmen_units::{Bytes, Name, SpaceId};

use crate::format::attribute_fault::{
    ATTRIBUTE_BYTES_MAX, ATTRIBUTES_CHANGE_BYTES_MAX, ATTRIBUTES_MAX, AttributeFault,
};
use crate::format::error::SpaceError;

/// Name of an attribute among those of its space.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct AttributeKey {
    /// Type.
    pub kind: u8,
    /// Number within the type.
    pub number: u64,
}

/// Attribute of a space.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attribute {
    /// Type: each layer that keeps attributes has its own.
    pub kind: u8,
    /// Number within the type.
    pub number: u64,
    /// Value, 1 to [`ATTRIBUTE_BYTES_MAX`] bytes.
    pub value: Vec<u8>,
}

impl Attribute {
    /// Returns its name among the attributes of its space.
    #[must_use]
    pub fn key(&self) -> AttributeKey {
        AttributeKey { kind: self.kind, number: self.number }
    }
}

impl AttributeKey {
    pub(crate) fn of_space(self, space: SpaceId) -> Key {
        dolmen_pool::keys::attribute(self.kind.into(), space, self.number)
    }
}

/// Checks what a change puts and deletes, each on its own.
///
/// # Errors
/// [`SpaceError::Attribute`] names the first that is refused.
pub(crate) fn check_attributes(
    space: &Name,
    puts: &[Attribute],
    deletes: &[AttributeKey],
) -> Result<(), SpaceError> {
    let refused = |key: AttributeKey, fault| {
        Err(SpaceError::Attribute { name: space.clone(), kind: key.kind, number: key.number, fault })
    };
    let mut named: Vec<AttributeKey> =
        puts.iter().map(Attribute::key).chain(deletes.iter().copied()).collect();
    named.sort_unstable();
    if let Some(key) = named.windows(2).find_map(|pair| match pair {
        [first, second] if first == second => Some(*first),
        _ => None,
    }) {
        return refused(key, AttributeFault::Repeated);
    }
    let mut bytes = 0;
    for attribute in puts {
        let found = attribute.value.len();
        bytes += found;
        let fault = match found {
            0 => AttributeFault::Empty,
            _ if found > ATTRIBUTE_BYTES_MAX => AttributeFault::TooLong { found },
            _ if bytes > ATTRIBUTES_CHANGE_BYTES_MAX => {
                let all = puts.iter().map(|one| one.value.len() as u64).sum();
                AttributeFault::TooMuch { found: Bytes(all) }
            }
            _ => continue,
        };
        return refused(attribute.key(), fault);
    }
    Ok(())
}

/// Checks the attributes that a space is created with.
///
/// # Errors
/// As [`check_attributes`], and where they are too many.
pub(crate) fn check_attributes_at_creation(space: &Name, puts: &[Attribute]) -> Result<(), SpaceError> {
    check_attributes(space, puts, &[])?;
    match puts.get(ATTRIBUTES_MAX) {
        Some(Attribute { kind, number, .. }) => {
            let fault = AttributeFault::TooMany { found: puts.len() };
            Err(SpaceError::Attribute { name: space.clone(), kind: *kind, number: *number, fault })
        }
        None => Ok(()),
    }
}
