//! Records of shares and quotas: attributes of a space, each under a number of its own (`docs/format/volume.md`).

use dolmen_api::{ErrorBody, ErrorCode};
use dolmen_block_io::Entropy;
use dolmen_space::{Attribute, AttributeKey, Space};
use dolmen_volume::record::RecordError;

use crate::answer::Answer;
use crate::fault;

/// Type of the attributes that are quotas.
pub(super) const QUOTA: u8 = 2;
/// Type of the attributes that are shares.
pub(super) const SHARE: u8 = 3;

/// Draws of a number, at most: a space has at most 256 records, so the first is free but for bad luck.
const DRAWS_MAX: u32 = 64;

/// Record as it was found.
#[derive(Debug, Clone)]
pub(super) struct Numbered<T> {
    /// Its number.
    pub(super) number: u64,
    /// The record, or why it is not understood, in words.
    pub(super) record: Result<T, String>,
}

/// Lists the records of one type, by their numbers.
pub(super) async fn list<T>(
    space: &Space,
    kind: u8,
    decode: impl Fn(&[u8]) -> Result<T, RecordError>,
) -> Answer<Vec<Numbered<T>>> {
    let attributes = space.attributes().list().await.map_err(|error| fault::space(&error))?;
    let own = attributes.into_iter().filter(|one| one.kind == kind);
    let read = own.map(|one| Numbered {
        number: one.number,
        record: decode(&one.value).map_err(|error| error.to_string()),
    });
    Ok(read.collect())
}

/// Returns the attribute that a record is.
pub(super) fn attribute(
    kind: u8,
    number: u64,
    value: Result<Vec<u8>, RecordError>,
    name: &str,
) -> Answer<Attribute> {
    let value = value.map_err(|error| {
        ErrorBody::new(ErrorCode::BadRequest, format!("volume {name}: {error}; nothing was changed")).on(name)
    })?;
    Ok(Attribute { kind, number, value })
}

/// Writes records; durable when this returns.
pub(super) async fn put(space: &Space, puts: Vec<Attribute>, name: &str) -> Answer<()> {
    space.attributes().change(puts, Vec::new()).await.map_err(|error| fault::space(&error).on(name))
}

/// Deletes a record; durable when this returns.
pub(super) async fn delete(space: &Space, kind: u8, number: u64, name: &str) -> Answer<()> {
    let key = AttributeKey { kind, number };
    space.attributes().change(Vec::new(), vec![key]).await.map_err(|error| fault::space(&error).on(name))
}

/// Draws a number that no record has, and that no earlier one had: 31 random bits, never zero.
///
/// File systems and servers keep numbers of records that were deleted. A counter would have to be a record too.
pub(super) fn draw<T>(entropy: &dyn Entropy, taken: &[Numbered<T>]) -> u32 {
    let is_free = |number: &u32| *number != 0 && taken.iter().all(|one| one.number != u64::from(*number));
    let drawn = (0..DRAWS_MAX).map(|_| u32::try_from(entropy.next_u64() >> 33).unwrap_or(0));
    drawn.chain(1..).find(is_free).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Entropy that gives the same bits for ever.
    struct Stuck(u8);

    impl Entropy for Stuck {
        fn fill(&self, into: &mut [u8]) {
            into.fill(self.0);
        }
    }

    /// Scenario: bits that are a number, the same number taken already, and bits that are none.
    #[test]
    fn a_drawn_number_is_free_and_never_zero() {
        let taken = |numbers: &[u64]| -> Vec<Numbered<()>> {
            numbers.iter().map(|number| Numbered { number: *number, record: Ok(()) }).collect()
        };
        let drawn = draw(&Stuck(0xff), &[] as &[Numbered<()>]);
        assert_eq!(drawn, u32::MAX >> 1);
        assert_eq!(draw(&Stuck(0xff), &taken(&[drawn.into(), 1])), 2);
        assert_eq!(draw(&Stuck(0), &taken(&[1, 2])), 3);
    }
}
