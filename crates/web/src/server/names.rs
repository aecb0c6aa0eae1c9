//! The names that a certificate is for, read from its bytes (RFC 5280, section 4.2.1.6).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::validity::element;

/// Tags of DER.
const EXTENSIONS: u8 = 0xa3;
const OBJECT: u8 = 0x06;
const OCTETS: u8 = 0x04;
const DNS_NAME: u8 = 0x82;
const ADDRESS: u8 = 0x87;
/// The extension of alternative names: 2.5.29.17.
const ALTERNATIVE_NAMES: [u8; 3] = [0x55, 0x1d, 0x11];

/// Returns names and addresses; none where the bytes are no certificate.
pub(super) fn names(certificate: &[u8]) -> Option<Vec<String>> {
    let (_, certificate, _) = element(certificate)?;
    let (_, signed, _) = element(certificate)?;
    let Some(extensions) = elements(signed).find(|(tag, _)| *tag == EXTENSIONS) else {
        return Some(Vec::new());
    };
    let (_, extensions, _) = element(extensions.1)?;
    let alternative = elements(extensions).find_map(|(_, extension)| {
        let mut parts = elements(extension);
        let (tag, object) = parts.next()?;
        let (_, value) = parts.find(|(tag, _)| *tag == OCTETS)?;
        (tag == OBJECT && object == ALTERNATIVE_NAMES).then_some(value)
    });
    let Some(alternative) = alternative else { return Some(Vec::new()) };
    let (_, alternative, _) = element(alternative)?;
    let found = elements(alternative).filter_map(|(tag, value)| match tag {
        DNS_NAME => Some(String::from_utf8_lossy(value).into_owned()),
        ADDRESS => address(value).map(|address| address.to_string()),
        _ => None,
    });
    Some(found.collect())
}

/// Returns tag and content of each element in a row, up to the first one that is none.
fn elements(bytes: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let (tag, content, after) = element(rest)?;
        rest = after;
        Some((tag, content))
    })
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(bytes).ok().map(|bytes| IpAddr::V4(Ipv4Addr::from(bytes)));
    v4.or_else(|| <[u8; 16]>::try_from(bytes).ok().map(|bytes| IpAddr::V6(Ipv6Addr::from(bytes))))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scenario: a certificate with names and addresses, one without, and each of its bytes cut and changed. The names are read, and
    /// nothing panics.
    #[test]
    fn names_are_read_and_other_bytes_have_none() {
        let made = |wanted: &[&str]| {
            let key = rcgen::KeyPair::generate().unwrap();
            let wanted = wanted.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
            rcgen::CertificateParams::new(wanted).unwrap().self_signed(&key).unwrap().der().to_vec()
        };
        let wanted = ["nas", "nas.example.com", "192.0.2.5", "2001:db8::1"];
        let bytes = made(&wanted);
        assert_eq!(names(&bytes).unwrap(), wanted);
        assert_eq!(names(&made(&[])), Some(Vec::new()));
        for at in 0..bytes.len() {
            let _ = names(&bytes[..at]);
            for change in [0x01, 0x80, 0xff] {
                let mut changed = bytes.clone();
                changed[at] ^= change;
                let _ = names(&changed);
            }
        }
        assert!(names(&[]).is_none());
    }
}
