//! The few fields of a certificate that a listener looks at beside what the TLS library checks: when it is valid, and the
//! common names of its subject.
//!
//! What is read here is a file that the user named, or a certificate whose signature was verified; whatever does not
//! fit is `None`, never a panic.

use std::fmt;

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const INTEGER: u8 = 0x02;
const OBJECT: u8 = 0x06;
const VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const UTF8_STRING: u8 = 0x0c;
const PRINTABLE_STRING: u8 = 0x13;
const IA5_STRING: u8 = 0x16;
/// 2.5.4.3: the common name.
const COMMON_NAME: [u8; 3] = [0x55, 0x04, 0x03];

/// A second of the calendar, as certificates say it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Day {
    /// Seconds since 1970.
    pub(crate) unix: i64,
    year: i64,
    month: i64,
    day: i64,
}

impl fmt::Display for Day {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04}-{:02}-{:02}", self.year, self.month, self.day)
    }
}

/// From when to when a certificate is valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Validity {
    pub(crate) begins: Day,
    pub(crate) ends: Day,
}

/// Values one after the other.
struct Values<'a> {
    rest: &'a [u8],
}

impl<'a> Values<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// The tag and the content of the next value.
    fn next(&mut self) -> Option<(u8, &'a [u8])> {
        let (tag, rest) = self.rest.split_first()?;
        let (first, rest) = rest.split_first()?;
        let (length, rest) = if *first < 0x80 {
            (usize::from(*first), rest)
        } else {
            let count = usize::from(*first & 0x7f);
            let (bytes, rest) = rest.split_at_checked(count)?;
            if !(1..=4).contains(&count) {
                return None;
            }
            (bytes.iter().fold(0usize, |length, byte| length << 8 | usize::from(*byte)), rest)
        };
        let (content, rest) = rest.split_at_checked(length)?;
        self.rest = rest;
        Some((*tag, content))
    }

    /// The content of the next value, which must have the tag.
    fn expect(&mut self, tag: u8) -> Option<&'a [u8]> {
        self.next().filter(|(found, _)| *found == tag).map(|(_, content)| content)
    }
}

/// From when to when a certificate is valid.
pub(crate) fn validity(certificate: &[u8]) -> Option<Validity> {
    let signed = Values::new(certificate).expect(SEQUENCE)?;
    let mut fields = Values::new(Values::new(signed).expect(SEQUENCE)?);
    let (tag, _) = fields.next()?;
    if tag == VERSION {
        fields.expect(INTEGER)?;
    }
    // The algorithm of the signature, and the issuer.
    fields.expect(SEQUENCE)?;
    fields.expect(SEQUENCE)?;
    let mut times = Values::new(fields.expect(SEQUENCE)?);
    Some(Validity { begins: time(times.next()?)?, ends: time(times.next()?)? })
}

fn time((tag, text): (u8, &[u8])) -> Option<Day> {
    let text = std::str::from_utf8(text).ok()?;
    let number = |from: usize, to: usize| text.get(from..to)?.parse::<i64>().ok();
    let (year, at) = match tag {
        // Two digits mean 1950 to 2049.
        UTC_TIME => (number(0, 2).map(|year| if year < 50 { 2000 + year } else { 1900 + year })?, 2),
        GENERALIZED_TIME => (number(0, 4)?, 4),
        _ => return None,
    };
    let field = |index: usize| number(at + 2 * index, at + 2 * index + 2);
    let (month, day) = (field(0)?, field(1)?);
    let seconds = field(2)? * 3600 + field(3)? * 60 + field(4)?;
    let sane = (1..=12).contains(&month) && (1..=31).contains(&day) && (0..86_401).contains(&seconds);
    (sane && text.ends_with('Z')).then(|| Day {
        unix: days_since_1970(year, month, day) * 86_400 + seconds,
        year,
        month,
        day,
    })
}

/// Days of the Gregorian calendar, counted in years that begin with March so that the leap day comes last.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// The common names in a subject, given as the content of its outer sequence.
pub(crate) fn common_names(subject: &[u8]) -> Vec<String> {
    let mut names = Vec::new();
    let mut sets = Values::new(subject);
    while let Some(set) = sets.expect(SET) {
        let mut attributes = Values::new(set);
        while let Some(attribute) = attributes.expect(SEQUENCE) {
            names.extend(common_name(attribute));
        }
    }
    names
}

fn common_name(attribute: &[u8]) -> Option<String> {
    let mut fields = Values::new(attribute);
    let (kind, (tag, text)) = (fields.expect(OBJECT)?, fields.next()?);
    let is_text = matches!(tag, UTF8_STRING | PRINTABLE_STRING | IA5_STRING);
    (is_text && kind == COMMON_NAME).then(|| std::str::from_utf8(text).ok().map(str::to_owned))?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_those_of_the_calendar() {
        for (text, unix) in [
            ("19700101000000Z", 0),
            ("20000229235959Z", 951_868_799),
            ("20000301000000Z", 951_868_800),
            ("20261122133700Z", 1_795_354_620),
            ("21000301000000Z", 4_107_542_400),
        ] {
            let day = time((GENERALIZED_TIME, text.as_bytes())).unwrap();
            assert_eq!(day.unix, unix, "{text}");
            assert_eq!(day.to_string().replace('-', ""), text[..8]);
        }
        assert_eq!(time((UTC_TIME, b"491231235959Z")).map(|day| day.unix), Some(2_524_607_999));
        assert_eq!(time((UTC_TIME, b"500101000000Z")).map(|day| day.unix), Some(-631_152_000));
        for wrong in ["", "20261322133700Z", "20261122133700", "2026112213370Z", "2026\u{e9}1122133700Z"] {
            assert_eq!(time((GENERALIZED_TIME, wrong.as_bytes())), None, "{wrong}");
        }
    }

    #[test]
    fn what_the_maker_of_a_certificate_wrote_is_read() {
        // Scenario: subjects with none, one and two common names among other fields. Expected: those names, and the dates.
        for names in [vec![], vec!["alpha"], vec!["host ä", "beta.example"]] {
            let mut parameters = rcgen::CertificateParams::new(vec!["ignored.example".to_owned()]).unwrap();
            parameters.distinguished_name = rcgen::DistinguishedName::new();
            parameters.distinguished_name.push(rcgen::DnType::OrganizationName, "dolmen");
            names.iter().take(1).for_each(|name| {
                parameters.distinguished_name.push(rcgen::DnType::CommonName, *name);
            });
            (parameters.not_before, parameters.not_after) =
                (rcgen::date_time_ymd(2020, 2, 29), rcgen::date_time_ymd(2051, 1, 2));
            let key = rcgen::KeyPair::generate().unwrap();
            let certificate = parameters.self_signed(&key).unwrap();
            let found = validity(certificate.der()).unwrap();
            assert_eq!((found.begins.unix, found.ends.unix), (1_582_934_400, 2_556_230_400));
            let parsed = webpki::EndEntityCert::try_from(certificate.der()).unwrap();
            assert_eq!(common_names(parsed.subject()), names.iter().take(1).copied().collect::<Vec<_>>());
        }
        // Two names in one subject, put together by hand.
        let name = |text: &str| {
            let length = u8::try_from(text.len()).unwrap();
            let value = [&[0x06, 3, 0x55, 4, 3, 0x0c, length][..], text.as_bytes()].concat();
            let attribute = [&[0x30, length + 7][..], &value].concat();
            [&[0x31, length + 9][..], &attribute].concat()
        };
        assert_eq!(common_names(&[name("a"), name("bc")].concat()), ["a", "bc"]);
    }

    proptest::proptest! {
        #[test]
        fn noise_is_nothing(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..200)) {
            let _ = (validity(&bytes), common_names(&bytes));
        }
    }
}
