//! Edits of the metadata map, as the log keeps them.

use dolmen_store::Key;

/// A change of the metadata map: a key, and its new value or `None` for none.
pub(crate) type Edit = (Key, Option<Vec<u8>>);

pub(crate) fn edit_bytes(value: &Option<Vec<u8>>) -> usize {
    24 + 2 + value.as_ref().map_or(0, Vec::len)
}

/// Edits as the body of a record: {key 24, length u16 or 0xffff for a removal, value}, one after another.
pub(crate) fn encode_edits(edits: &[Edit]) -> Vec<u8> {
    let mut body = Vec::with_capacity(edits.iter().map(|(_, value)| edit_bytes(value)).sum());
    for (key, value) in edits {
        body.extend_from_slice(&key.0);
        let length = value.as_ref().map_or(u16::MAX, |value| u16::try_from(value.len()).unwrap_or(0));
        body.extend_from_slice(&length.to_le_bytes());
        body.extend_from_slice(value.as_deref().unwrap_or_default());
    }
    body
}

/// The edits of a record, or `None` when its lengths make no sense.
#[must_use]
pub fn decode_edits(mut body: &[u8]) -> Option<Vec<Edit>> {
    let mut edits = Vec::new();
    while !body.is_empty() {
        let (key, rest) = body.split_first_chunk::<24>()?;
        let (length, rest) = rest.split_first_chunk::<2>()?;
        let length = u16::from_le_bytes(*length);
        if length == u16::MAX {
            edits.push((Key(*key), None));
            body = rest;
            continue;
        }
        let (value, rest) = rest.split_at_checked(usize::from(length))?;
        edits.push((Key(*key), Some(value.to_vec())));
        body = rest;
    }
    Some(edits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn edits_read_back_as_they_were_written(edits in proptest::collection::vec((any::<[u8; 24]>(), proptest::option::of(proptest::collection::vec(any::<u8>(), 0..100))), 0..20)) {
            let edits: Vec<Edit> = edits.into_iter().map(|(key, value)| (Key(key), value)).collect();
            prop_assert_eq!(decode_edits(&encode_edits(&edits)), Some(edits));
        }

        #[test]
        fn nonsense_in_a_record_does_no_harm(body in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode_edits(&body);
        }
    }
}
