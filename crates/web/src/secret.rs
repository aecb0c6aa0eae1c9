//! Random secrets, their digests, and comparisons that take the same time for every guess.

use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom as _, SystemRandom};

use crate::error::WebError;

/// Bytes of the secret of a session and of a token.
pub(crate) const SECRET_BYTES: usize = 32;

/// Returns random bytes.
pub(crate) fn random<const COUNT: usize>() -> Result<[u8; COUNT], WebError> {
    let mut bytes = [0; COUNT];
    SystemRandom::new().fill(&mut bytes).map_err(|_| WebError::Random)?;
    Ok(bytes)
}

/// Returns bytes as hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the bytes of hexadecimal digits.
pub(crate) fn unhex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: &u8| char::from(*byte).to_digit(16);
    let pair = |pair: &[u8]| match pair {
        [high, low] => u8::try_from(digit(high)? * 16 + digit(low)?).ok(),
        _ => None,
    };
    text.as_bytes().chunks(2).map(pair).collect()
}

/// Returns the digest of a secret, which is what the file of accounts holds.
pub(crate) fn digest_of(secret: &str) -> String {
    digest_of_bytes(secret.as_bytes())
}

/// Returns the SHA-256 of bytes, as hexadecimal digits.
pub(crate) fn digest_of_bytes(bytes: &[u8]) -> String {
    hex(digest(&SHA256, bytes).as_ref())
}

/// Returns whether two texts are equal. The time does not tell where they differ.
pub(crate) fn is_equal(one: &[u8], other: &[u8]) -> bool {
    let differences = one.iter().zip(other).fold(0, |found, (one, other)| found | (one ^ other));
    one.len() == other.len() && std::hint::black_box(differences) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hexadecimal_digits_are_read_back() {
        let bytes: [u8; 32] = random().unwrap();
        assert_eq!(unhex(&hex(&bytes)).unwrap(), bytes);
        assert!(["0", "0g", "é", "0x"].iter().all(|text| unhex(text).is_none()));
        assert_ne!(random::<32>().unwrap(), bytes);
    }

    #[test]
    fn texts_are_equal_in_all_their_bytes() {
        assert!(is_equal(b"abc", b"abc") && is_equal(b"", b""));
        assert!(!is_equal(b"abc", b"abd") && !is_equal(b"abc", b"ab") && !is_equal(b"", b"a"));
    }
}
