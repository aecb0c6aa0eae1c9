//! The certificate in force, which is read again when its files change, and on demand.

use std::sync::{Arc, Mutex, PoisonError, RwLock};

use dolmen_causes::in_one_line;
use rustls::ServerConfig;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::certificate::{CertificateFiles, DAYS_LEFT, Facts, Subject, make_if_due};
use super::names::names;
use super::validity::validity;
use crate::accounts::Stamp;
use crate::clock;
use crate::error::WebError;
use crate::secret::digest_of_bytes;

const DAY_S: u64 = 86_400;
/// The only protocol above TLS.
const HTTP: &[u8] = b"http/1.1";

/// The certificate in force.
#[derive(Debug)]
pub(crate) struct Certificates {
    files: CertificateFiles,
    subject: Subject,
    current: RwLock<(Arc<ServerConfig>, Facts)>,
    /// The files as they were tried last.
    tried: Mutex<Stamps>,
}

/// What tells the content of certificate and key from a later one.
type Stamps = [Option<Stamp>; 2];

impl Certificates {
    /// Reads the certificate; makes one where the server has its own and there is none, or it is about to expire.
    pub(crate) fn open(files: CertificateFiles, subject: Subject) -> Result<Self, WebError> {
        make_if_due(&files, &subject, clock::now().wall_s)?;
        let tried = Mutex::new(stamps(&files));
        let current = RwLock::new(read(&files)?);
        Ok(Self { files, subject, current, tried })
    }

    /// Returns the settings for the next connection.
    pub(super) fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner).0)
    }

    /// Returns what an administrator wants to know about it.
    pub(crate) fn facts(&self) -> Facts {
        self.current.read().unwrap_or_else(PoisonError::into_inner).1.clone()
    }

    /// Reads the files again if somebody has replaced them, and makes the server's own certificate again before its end. A server that runs
    /// for years needs no restart for either.
    pub(crate) fn follow(&self, now_s: u64) {
        let is_replaced = *self.tried.lock().unwrap_or_else(PoisonError::into_inner) != stamps(&self.files);
        let ends_soon = self.facts().until_s < now_s.saturating_add(DAYS_LEFT * DAY_S);
        if is_replaced || (self.files.is_own && ends_soon) {
            self.reread_at(now_s);
        }
    }

    /// Reads the files again. One that cannot be used leaves the certificate in force.
    pub(super) fn reread(&self) {
        self.reread_at(clock::now().wall_s);
    }

    fn reread_at(&self, now_s: u64) {
        let made = make_if_due(&self.files, &self.subject, now_s);
        // Before they are read: what is replaced meanwhile is read again.
        *self.tried.lock().unwrap_or_else(PoisonError::into_inner) = stamps(&self.files);
        match made.and_then(|()| read(&self.files)) {
            Ok(read) => {
                tracing::info!(fingerprint = read.1.sha256, "the certificate is read again");
                *self.current.write().unwrap_or_else(PoisonError::into_inner) = read;
            }
            Err(error) => {
                tracing::error!(error = in_one_line(&error), "the certificate stays as it was");
            }
        }
    }
}

fn stamps(files: &CertificateFiles) -> Stamps {
    [&files.certificate, &files.key].map(|path| std::fs::metadata(path).ok().map(|found| Stamp::of(&found)))
}

/// Reads a certificate and its key.
fn read(files: &CertificateFiles) -> Result<(Arc<ServerConfig>, Facts), WebError> {
    let unusable = |why: String| files.unusable(why);
    let chain: Result<Vec<_>, _> = CertificateDer::pem_file_iter(&files.certificate)
        .map_err(|error| unusable(format!("reading the certificate failed: {error}")))?
        .collect();
    let chain = chain.map_err(|error| unusable(format!("the certificate is no PEM: {error}")))?;
    let first = chain.first().ok_or_else(|| unusable("the file holds no certificate".to_owned()))?;
    let dates = validity(first).ok_or_else(|| unusable("the certificate has no dates".to_owned()))?;
    let facts = Facts {
        sha256: digest_of_bytes(first),
        from_s: dates.from_s,
        until_s: dates.until_s,
        names: names(first).unwrap_or_default(),
        is_own: files.is_own,
    };
    let key = PrivateKeyDer::from_pem_file(&files.key)
        .map_err(|error| unusable(format!("reading the key failed: {error}")))?;
    let provider = Arc::new(default_provider());
    let versions = [&rustls::version::TLS13, &rustls::version::TLS12];
    let config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&versions)
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key));
    let mut config = config.map_err(|error| unusable(error.to_string()))?;
    config.alpn_protocols = vec![HTTP.to_vec()];
    Ok((Arc::new(config), facts))
}

/// Returns the facts about the certificate in these files.
pub(crate) fn facts(files: &CertificateFiles) -> Result<Facts, WebError> {
    read(files).map(|(_, facts)| facts)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    /// Scenario: a server runs for a year with its own certificate, and then with one that somebody replaces, at first by a damaged one. It
    /// makes its own again in time, takes a new one over by itself, and goes on with the last one that can be used.
    #[test]
    fn a_certificate_is_followed_without_a_restart() {
        let [own, other] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let subject = || Subject { address: Ipv4Addr::LOCALHOST.into(), names: Vec::new() };
        let now_s = clock::now().wall_s;
        let certificates = Certificates::open(CertificateFiles::own(own.path()), subject()).unwrap();
        let first = certificates.facts();
        certificates.follow(now_s);
        assert_eq!(certificates.facts(), first);
        certificates.follow(first.until_s - 29 * DAY_S);
        let second = certificates.facts();
        assert!(second.sha256 != first.sha256 && second.until_s > first.until_s);

        let given = CertificateFiles { is_own: false, ..CertificateFiles::own(own.path()) };
        let certificates = Certificates::open(given.clone(), subject()).unwrap();
        std::fs::write(&given.certificate, "damaged").unwrap();
        certificates.follow(now_s);
        assert_eq!(certificates.facts().sha256, second.sha256);
        let next = CertificateFiles::own(other.path());
        make_if_due(&next, &subject(), now_s).unwrap();
        std::fs::copy(&next.key, &given.key).unwrap();
        std::fs::copy(&next.certificate, &given.certificate).unwrap();
        certificates.follow(now_s);
        assert_eq!(certificates.facts().sha256, read(&next).unwrap().1.sha256);
    }
}
