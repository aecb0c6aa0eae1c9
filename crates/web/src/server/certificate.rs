//! The certificate that the server makes for itself, where it is given none.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use rcgen::{
    CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, KeyPair, KeyUsagePurpose,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use serde::Serialize;
use time::{Duration, OffsetDateTime};

use super::validity::validity;
use crate::accounts::{make_folder, replace};
use crate::error::WebError;

/// Days for which a certificate is made: as long as browsers accept one.
const DAYS: u64 = 397;
/// Days before the end at which the next one is made, when the server starts or reads its certificate again.
const DAYS_LEFT: u64 = 30;
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

/// What is known of a certificate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Facts {
    /// SHA-256 of it, as browsers show it.
    pub sha256: String,
    /// Begin, in seconds since 1970.
    pub from_s: u64,
    /// End, in seconds since 1970.
    pub until_s: u64,
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

/// Makes the server's own certificate where there is none, or where it ends soon. What cannot be read stays, and is refused later.
pub(super) fn make_if_due(files: &CertificateFiles, address: IpAddr, now_s: u64) -> Result<(), WebError> {
    if !files.is_own {
        return Ok(());
    }
    let is_there = files.certificate.exists() && files.key.exists();
    let dates = CertificateDer::from_pem_file(&files.certificate).ok().and_then(|found| validity(&found));
    let ends_soon = dates.is_some_and(|dates| dates.until_s < now_s.saturating_add(DAYS_LEFT * DAY_S));
    if is_there && !ends_soon {
        return Ok(());
    }
    if let Some(folder) = files.certificate.parent() {
        make_folder(folder)?;
    }
    let (certificate, key) = make(address, now_s).map_err(|error| files.unusable(error.to_string()))?;
    // The key first: a crash between the two leaves a pair that is made again, since one of both is missing or old.
    replace(&files.key, key.as_bytes())?;
    replace(&files.certificate, certificate.as_bytes())?;
    tracing::info!(path = %files.certificate.display(), "a certificate was made; browsers warn of it until they are told to trust it");
    Ok(())
}

fn make(address: IpAddr, now_s: u64) -> Result<(String, String), rcgen::Error> {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let mut names: Vec<String> = vec!["localhost".to_owned()];
    if !host.is_empty() && host != "localhost" && host.is_ascii() {
        names.insert(0, host.clone());
    }
    if !address.is_unspecified() {
        names.push(address.to_string());
    }
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
        let made_at = |now_s| {
            make_if_due(&files, Ipv4Addr::LOCALHOST.into(), now_s).unwrap();
            let found = CertificateDer::from_pem_file(&files.certificate).unwrap();
            (validity(&found).unwrap(), found.to_vec())
        };
        let (dates, first) = made_at(NOW_S);
        assert_eq!((dates.from_s, dates.until_s), (NOW_S - 3600, NOW_S + DAYS * DAY_S));
        assert_eq!(std::fs::metadata(&files.key).unwrap().mode() & 0o777, 0o600);
        assert_eq!(made_at(NOW_S + (DAYS - DAYS_LEFT) * DAY_S).1, first);
        assert_ne!(made_at(NOW_S + (DAYS - DAYS_LEFT) * DAY_S + 1).1, first);
        let given = CertificateFiles { is_own: false, ..CertificateFiles::own(&folder.path().join("none")) };
        make_if_due(&given, Ipv4Addr::LOCALHOST.into(), NOW_S).unwrap();
        assert!(!given.key.exists());
    }
}
