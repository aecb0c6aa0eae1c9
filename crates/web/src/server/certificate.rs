//! The certificate that the server makes for itself, where it is given none.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use rcgen::{
    CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, KeyPair, KeyUsagePurpose,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use serde::Serialize;
use time::{Duration, OffsetDateTime};

use super::names::names;
use super::validity::validity;
use crate::accounts::{make_folder, replace};
use crate::error::WebError;

/// Days for which a certificate is made: as long as browsers accept one.
const DAYS: u64 = 397;
/// Days before the end at which the next one is made.
pub(super) const DAYS_LEFT: u64 = 30;
const DAY_S: u64 = 86_400;
/// Names of the files in the state folder.
const FILES: [&str; 2] = ["certificate.pem", "key.pem"];

/// Files of a certificate and its key.
#[derive(Debug, Clone)]
pub(crate) struct CertificateFiles {
    pub certificate: PathBuf,
    pub key: PathBuf,
    /// Whether the server makes them.
    pub is_own: bool,
}

/// What the server's own certificate is for.
#[derive(Debug, Clone)]
pub(crate) struct Subject {
    /// The address that is listened on.
    pub address: IpAddr,
    /// Names and addresses that clients use, beside those that are known.
    pub names: Vec<String>,
}

impl Subject {
    /// Returns all names: the further ones, the host's, and the address.
    fn all_names(&self) -> Vec<String> {
        let host = host_name();
        let mut names = self.names.clone();
        if !host.is_empty() && host.is_ascii() {
            names.push(host);
        }
        names.push("localhost".to_owned());
        if !self.address.is_unspecified() {
            names.push(self.address.to_string());
        }
        let mut seen = BTreeSet::new();
        names.retain(|name| seen.insert(name.clone()));
        names
    }
}

fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// What is known of a certificate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Facts {
    /// SHA-256 of it, as browsers show it.
    pub sha256: String,
    /// Begin, in seconds since 1970.
    pub from_s: u64,
    /// End, in seconds since 1970.
    pub until_s: u64,
    /// Names and addresses that it is for.
    pub names: Vec<String>,
    /// Whether the server has made it.
    pub is_own: bool,
}

impl CertificateFiles {
    /// Returns those that the server makes in a state folder.
    pub(crate) fn own(state: &Path) -> Self {
        let [certificate, key] = FILES.map(|name| state.join(name));
        Self { certificate, key, is_own: true }
    }

    pub(super) fn unusable(&self, why: String) -> WebError {
        WebError::Certificate { certificate: self.certificate.clone(), key: self.key.clone(), why }
    }
}

/// Makes the server's own certificate where there is none, where it ends soon, or where a name is missing in it. What cannot be read
/// stays, and is refused later.
pub(super) fn make_if_due(files: &CertificateFiles, subject: &Subject, now_s: u64) -> Result<(), WebError> {
    if !files.is_own {
        return Ok(());
    }
    let is_there = files.certificate.exists() && files.key.exists();
    let found = CertificateDer::from_pem_file(&files.certificate).ok();
    let dates = found.as_ref().and_then(|found| validity(found));
    let ends_soon = dates.is_some_and(|dates| dates.until_s < now_s.saturating_add(DAYS_LEFT * DAY_S));
    let wanted = subject.all_names();
    let named = found.as_ref().and_then(|found| names(found));
    let misses_name = named.is_some_and(|named| wanted.iter().any(|name| !named.contains(name)));
    if is_there && !ends_soon && !misses_name {
        return Ok(());
    }
    if let Some(folder) = files.certificate.parent() {
        make_folder(folder)?;
    }
    let (certificate, key) = make(wanted, now_s).map_err(|error| files.unusable(error.to_string()))?;
    // The key first: a crash between the two leaves a pair that is made again, since one of both is missing or old.
    replace(&files.key, key.as_bytes())?;
    replace(&files.certificate, certificate.as_bytes())?;
    tracing::info!(path = %files.certificate.display(), "a certificate was made; browsers warn of it until they are told to trust it");
    Ok(())
}

fn make(names: Vec<String>, now_s: u64) -> Result<(String, String), rcgen::Error> {
    let host = host_name();
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, format!("Dolmen on {host}"));
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let now = OffsetDateTime::from_unix_timestamp(i64::try_from(now_s).unwrap_or(0));
    let now = now.unwrap_or(OffsetDateTime::UNIX_EPOCH);
    // Clocks of clients are not exact.
    params.not_before = now.saturating_sub(Duration::HOUR);
    params.not_after = now.saturating_add(Duration::days(i64::try_from(DAYS).unwrap_or(0)));
    let key = KeyPair::generate()?;
    let certificate = params.self_signed(&key)?;
    Ok((certificate.pem(), key.serialize_pem()))
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    const NOW_S: u64 = 1_800_000_000;

    /// Scenario: a certificate is made, found again, and made again when it ends in less than 30 days. Files of others stay.
    #[test]
    fn a_certificate_is_made_once_and_again_before_its_end() {
        let folder = tempfile::tempdir().unwrap();
        let files = CertificateFiles::own(folder.path());
        let subject = |names: &[&str], address: [u8; 4]| Subject {
            address: Ipv4Addr::from(address).into(),
            names: names.iter().map(|name| (*name).to_owned()).collect(),
        };
        let local = subject(&[], [127, 0, 0, 1]);
        let made_for = |subject: &Subject, now_s| {
            make_if_due(&files, subject, now_s).unwrap();
            let found = CertificateDer::from_pem_file(&files.certificate).unwrap();
            (validity(&found).unwrap(), found.to_vec())
        };
        let made_at = |now_s| made_for(&local, now_s);
        let (dates, first) = made_at(NOW_S);
        assert_eq!((dates.from_s, dates.until_s), (NOW_S - 3600, NOW_S + DAYS * DAY_S));
        assert_eq!(std::fs::metadata(&files.key).unwrap().mode() & 0o777, 0o600);
        assert_eq!(made_at(NOW_S + (DAYS - DAYS_LEFT) * DAY_S).1, first);
        assert_ne!(made_at(NOW_S + (DAYS - DAYS_LEFT) * DAY_S + 1).1, first);
        let given = CertificateFiles { is_own: false, ..CertificateFiles::own(&folder.path().join("none")) };
        make_if_due(&given, &local, NOW_S).unwrap();
        assert!(!given.key.exists());
        // Another address to listen on, and a name that clients use. What the certificate has beside is no reason.
        let (_, before) = made_at(NOW_S);
        let moved = subject(&["nas.example.com"], [192, 0, 2, 5]);
        let (_, after) = made_for(&moved, NOW_S);
        assert_ne!(after, before);
        let named = names(&after).unwrap();
        assert!(
            ["nas.example.com", "192.0.2.5", "localhost"]
                .iter()
                .all(|name| named.contains(&(*name).to_owned()))
        );
        assert_eq!(made_for(&moved, NOW_S).1, after);
        assert_eq!(made_for(&subject(&[], [192, 0, 2, 5]), NOW_S).1, after);
    }
}
