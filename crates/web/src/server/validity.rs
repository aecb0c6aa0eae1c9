//! The dates of a certificate, read from its bytes (RFC 5280, section 4.1).

use time::{Date, Month, PrimitiveDateTime, Time};

/// Tags of DER.
const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// The dates of a certificate, in seconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Validity {
    pub from_s: u64,
    pub until_s: u64,
}

/// Returns the dates; none where the bytes are no certificate.
pub(super) fn validity(certificate: &[u8]) -> Option<Validity> {
    let (_, certificate, _) = element(certificate)?;
    let (_, signed, _) = element(certificate)?;
    let (tag, _, after_version) = element(signed)?;
    // Serial number, algorithm and issuer; the version stands before them, if at all.
    let mut rest = if tag == VERSION { after_version } else { signed };
    for _ in 0..3 {
        (_, _, rest) = element(rest)?;
    }
    let (tag, dates, _) = element(rest)?;
    let (from_tag, from, dates) = element(dates)?;
    let (until_tag, until, _) = element(dates)?;
    (tag == SEQUENCE)
        .then_some(Validity { from_s: seconds(from_tag, from)?, until_s: seconds(until_tag, until)? })
}

/// Splits an element of DER off: its tag, its content, and what follows.
pub(super) fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (tag, bytes) = bytes.split_first()?;
    let (first, bytes) = bytes.split_first()?;
    let (length, bytes) = match first & 0x7f {
        length if first & 0x80 == 0 => (usize::from(length), bytes),
        count @ 1..=4 => {
            let (digits, bytes) = bytes.split_at_checked(usize::from(count))?;
            (digits.iter().fold(0, |length, digit| (length << 8) | usize::from(*digit)), bytes)
        }
        _ => return None,
    };
    let (content, rest) = bytes.split_at_checked(length)?;
    Some((*tag, content, rest))
}

/// Returns the seconds of `YYMMDDhhmmssZ` or `YYYYMMDDhhmmssZ`.
fn seconds(tag: u8, text: &[u8]) -> Option<u64> {
    let digits = text.strip_suffix(b"Z")?;
    let number = |from: usize, count: usize| -> Option<u16> {
        std::str::from_utf8(digits.get(from..from.checked_add(count)?)?).ok()?.parse().ok()
    };
    let (year, at) = match tag {
        // RFC 5280: 50 and above are of the last century.
        UTC_TIME => (number(0, 2).map(|year| if year >= 50 { 1900 + year } else { 2000 + year })?, 2),
        GENERALIZED_TIME => (number(0, 4)?, 4),
        _ => return None,
    };
    let part = |index: usize| number(at + 2 * index, 2).and_then(|part| u8::try_from(part).ok());
    let month = Month::try_from(part(0)?).ok()?;
    let date = Date::from_calendar_date(i32::from(year), month, part(1)?).ok()?;
    let time = Time::from_hms(part(2)?, part(3)?, part(4)?).ok()?;
    let is_whole = digits.len() == at + 10;
    let seconds = PrimitiveDateTime::new(date, time).assume_utc().unix_timestamp();
    u64::try_from(seconds).ok().filter(|_| is_whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_read_in_both_forms() {
        for (tag, text, expected) in [
            (UTC_TIME, "700101000000Z", Some(0)),
            (UTC_TIME, "491231235959Z", Some(2_524_607_999)),
            (GENERALIZED_TIME, "20500101000000Z", Some(2_524_608_000)),
            (GENERALIZED_TIME, "500101000000Z", None),
            (UTC_TIME, "501301000000Z", None),
            (UTC_TIME, "240230000000Z", None),
            (UTC_TIME, "240101000000", None),
            (0x04, "240101000000Z", None),
        ] {
            assert_eq!(seconds(tag, text.as_bytes()), expected, "{text}");
        }
    }

    /// Scenario: a certificate is cut at each of its bytes, and each byte is changed. Nothing panics.
    #[test]
    fn bytes_that_are_no_certificate_have_no_dates() {
        let key = rcgen::KeyPair::generate().unwrap();
        let made = rcgen::CertificateParams::new(vec!["a".to_owned()]).unwrap().self_signed(&key).unwrap();
        let bytes = made.der().to_vec();
        assert!(validity(&bytes).is_some());
        for at in 0..bytes.len() {
            let _ = validity(&bytes[..at]);
            for change in [0x01, 0x80, 0xff] {
                let mut changed = bytes.clone();
                changed[at] ^= change;
                let _ = validity(&changed);
            }
        }
        assert!(validity(&[]).is_none() && validity(&[0x30, 0x84, 0xff, 0xff, 0xff, 0xff]).is_none());
    }
}
