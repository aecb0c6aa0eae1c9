//! The certificate in force, which is read again on demand.

use std::net::IpAddr;
use std::sync::{Arc, PoisonError, RwLock};

use dolmen_causes::in_one_line;
use rustls::ServerConfig;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::certificate::{CertificateFiles, Facts, make_if_due};
use super::validity::validity;
use crate::clock;
use crate::error::WebError;
use crate::secret::digest_of_bytes;

/// The only protocol above TLS.
const HTTP: &[u8] = b"http/1.1";

/// The certificate in force.
#[derive(Debug)]
pub(crate) struct Certificates {
    files: CertificateFiles,
    address: IpAddr,
    current: RwLock<(Arc<ServerConfig>, Facts)>,
}

impl Certificates {
    /// Reads the certificate; makes one where the server has its own and there is none, or it is about to expire.
    pub(crate) fn open(files: CertificateFiles, address: IpAddr) -> Result<Self, WebError> {
        make_if_due(&files, address, clock::now().wall_s)?;
        let current = RwLock::new(read(&files)?);
        Ok(Self { files, address, current })
    }

    /// Returns the settings for the next connection.
    pub(super) fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner).0)
    }

    /// Returns what an administrator wants to know about it.
    pub(crate) fn facts(&self) -> Facts {
        self.current.read().unwrap_or_else(PoisonError::into_inner).1.clone()
    }

    /// Reads the files again. One that cannot be used leaves the certificate in force.
    pub(super) fn reread(&self) {
        let made = make_if_due(&self.files, self.address, clock::now().wall_s);
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
