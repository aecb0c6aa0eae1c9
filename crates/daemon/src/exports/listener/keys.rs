//! The files of a TLS listener: read, checked as far as they can be before the first client comes, and looked at again when
//! they change.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use dolmen_api::TlsFiles;
use rustix::process::geteuid;
use rustls::ServerConfig;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::NoServerSessionStorage;

use crate::exports::listener::authorities::Authorities;
use crate::exports::listener::der::{Day, validity};

/// The longest file that is read.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// A certificate that ends this soon is a warning.
const SOON_SECONDS: i64 = 30 * 86_400;
/// Who may do what with a file: no writing but by the owner; no reading of a key by everybody.
const MODE_WRITTEN_BY_OTHERS: u32 = 0o022;
const MODE_READ_BY_ALL: u32 = 0o007;
const ENCRYPTED_KEY: &str = "ENCRYPTED";

/// What a file is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Certificate,
    Key,
    ClientCa,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Certificate => "certificate",
            Self::Key => "key",
            Self::ClientCa => "authority of clients",
        })
    }
}

/// Why files cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KeysError {
    #[error("reading the {role} {}", path.display())]
    Read { role: Role, path: PathBuf, source: io::Error },
    #[error("the {role} {} is no regular file", path.display())]
    NoFile { role: Role, path: PathBuf },
    #[error("the {role} {} has {found} bytes, above {FILE_BYTES_MAX}", path.display())]
    TooLong { role: Role, path: PathBuf, found: u64 },
    #[error(
        "the {role} {} belongs to user {uid}, who could exchange it; it has to belong to root or to the user that runs the daemon",
        path.display()
    )]
    Owner { role: Role, path: PathBuf, uid: u32 },
    #[error("the {role} {} has mode {mode:04o}: others can {what} it; chmod {fix} it", path.display())]
    Mode { role: Role, path: PathBuf, mode: u32, what: &'static str, fix: &'static str },
    #[error("the {role} {} holds no {wanted} in PEM form", path.display())]
    Nothing { role: Role, path: PathBuf, wanted: &'static str },
    #[error("the {role} {} is not in PEM form: {cause}", path.display())]
    Malformed { role: Role, path: PathBuf, cause: String },
    #[error(
        "the key {} is encrypted with a passphrase, which a daemon cannot ask for; openssl pkey -in FILE -out NEWFILE writes it without",
        path.display()
    )]
    Encrypted { path: PathBuf },
    #[error("the {role} {} holds something that is no certificate, as number {number}: {cause}", path.display())]
    NoCertificate { role: Role, path: PathBuf, number: usize, cause: String },
    #[error("the {role} {} is valid from {begins} on, which is not yet", path.display())]
    NotYet { role: Role, path: PathBuf, begins: Day },
    #[error("the {role} {} has expired: it was valid until {ends}", path.display())]
    Expired { role: Role, path: PathBuf, ends: Day },
    #[error(
        "the key {} does not belong to the certificate {}, whose first certificate has to be the server's own",
        key.display(), certificate.display()
    )]
    Mismatch { key: PathBuf, certificate: PathBuf },
    #[error("the certificate {} or its key cannot be used for TLS 1.3: {source}", path.display())]
    Unusable { path: PathBuf, source: rustls::Error },
    #[error("the authority of clients {} cannot be used: {cause}", path.display())]
    NoAuthority { path: PathBuf, cause: String },
}

/// Which content a file had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    bytes: u64,
    changed: (i64, i64),
    status_changed: (i64, i64),
}

impl Stamp {
    fn of(metadata: &fs::Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            bytes: metadata.len(),
            changed: (metadata.mtime(), metadata.mtime_nsec()),
            status_changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

/// Which content all files of a listener had; absent where one could not be looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Stamps([Option<Stamp>; 3]);

impl Stamps {
    /// As the files are now.
    pub(crate) fn now(files: &TlsFiles) -> Self {
        let stamp = |path: &Path| fs::metadata(path).ok().map(|metadata| Stamp::of(&metadata));
        Self([&files.certificate, &files.key, &files.client_ca].map(|path| stamp(path)))
    }
}

/// What a listener works with.
#[derive(Debug, Clone)]
pub(crate) struct Keys {
    pub(crate) config: Arc<ServerConfig>,
    /// Taken before the files were read, so that a change meanwhile is seen later.
    pub(crate) stamps: Stamps,
    /// What works today and not for long.
    pub(crate) warnings: Vec<String>,
    /// How long all of them are valid, from when they were read on.
    pub(crate) lasts: Duration,
}

/// Reads and checks the files. Blocks for as long as the disk takes.
pub(crate) fn load(files: &TlsFiles) -> Result<Keys, KeysError> {
    let stamps = Stamps::now(files);
    let now = i64::try_from(UnixTime::now().as_secs()).unwrap_or(i64::MAX);
    let chain = certificates(Role::Certificate, &files.certificate)?;
    let mut warnings = Vec::new();
    if let Some(own) = chain.first() {
        warnings.extend(check_dates(Role::Certificate, &files.certificate, own, now)?);
    }
    let key = key(&files.key)?;
    let authorities = certificates(Role::ClientCa, &files.client_ca)?;
    for authority in &authorities {
        warnings.extend(check_dates(Role::ClientCa, &files.client_ca, authority, now)?);
    }
    let valid = chain.first().into_iter().chain(&authorities).filter_map(|certificate| validity(certificate));
    let ends = valid.map(|valid| valid.ends.unix).min().unwrap_or(i64::MAX);
    // The second in which it ends is its last.
    let lasts = Duration::from_secs(u64::try_from(ends.saturating_sub(now)).unwrap_or(0).saturating_add(1));
    let config = Arc::new(server_config(files, chain, key, authorities)?);
    Ok(Keys { config, stamps, warnings, lasts })
}

/// The content of a file that nobody but its owner could have written.
fn content(role: Role, path: &Path) -> Result<Vec<u8>, KeysError> {
    let read = |source| KeysError::Read { role, path: path.to_path_buf(), source };
    // Looked at before it is opened: opening a pipe would wait for its other end.
    if !fs::metadata(path).map_err(read)?.is_file() {
        return Err(KeysError::NoFile { role, path: path.to_path_buf() });
    }
    let file = File::open(path).map_err(read)?;
    let metadata = file.metadata().map_err(read)?;
    check_access(role, path, &metadata)?;
    if metadata.len() > FILE_BYTES_MAX {
        return Err(KeysError::TooLong { role, path: path.to_path_buf(), found: metadata.len() });
    }
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX).read_to_end(&mut bytes).map_err(read)?;
    Ok(bytes)
}

fn check_access(role: Role, path: &Path, metadata: &fs::Metadata) -> Result<(), KeysError> {
    let path = path.to_path_buf();
    let (uid, mode) = (metadata.uid(), metadata.mode() & 0o7777);
    if uid != 0 && uid != geteuid().as_raw() {
        return Err(KeysError::Owner { role, path, uid });
    }
    if mode & MODE_WRITTEN_BY_OTHERS != 0 {
        return Err(KeysError::Mode { role, path, mode, what: "write", fix: "go-w" });
    }
    if role == Role::Key && mode & MODE_READ_BY_ALL != 0 {
        return Err(KeysError::Mode { role, path, mode, what: "read", fix: "o=" });
    }
    Ok(())
}

fn certificates(role: Role, path: &Path) -> Result<Vec<CertificateDer<'static>>, KeysError> {
    let bytes = content(role, path)?;
    let parsed = CertificateDer::pem_slice_iter(&bytes).collect::<Result<Vec<_>, _>>();
    let found = parsed.map_err(|cause| malformed(role, path, &cause))?;
    if found.is_empty() {
        return Err(KeysError::Nothing { role, path: path.to_path_buf(), wanted: "certificate" });
    }
    for (number, certificate) in (1..).zip(&found) {
        if let Err(cause) = webpki::EndEntityCert::try_from(certificate) {
            // An authority of the first version of the format is taken as an anchor all the same.
            if role == Role::Certificate || webpki::anchor_from_trusted_cert(certificate).is_err() {
                let (path, cause) = (path.to_path_buf(), cause.to_string());
                return Err(KeysError::NoCertificate { role, path, number, cause });
            }
        }
    }
    Ok(found)
}

fn malformed(role: Role, path: &Path, cause: &pem::Error) -> KeysError {
    KeysError::Malformed { role, path: path.to_path_buf(), cause: cause.to_string() }
}

fn key(path: &Path) -> Result<PrivateKeyDer<'static>, KeysError> {
    let bytes = content(Role::Key, path)?;
    match PrivateKeyDer::from_pem_slice(&bytes) {
        Ok(key) if !is_encrypted(&bytes) => Ok(key),
        Ok(_) | Err(pem::Error::NoItemsFound) if is_encrypted(&bytes) => {
            Err(KeysError::Encrypted { path: path.to_path_buf() })
        }
        Ok(_) | Err(pem::Error::NoItemsFound) => {
            Err(KeysError::Nothing { role: Role::Key, path: path.to_path_buf(), wanted: "private key" })
        }
        Err(cause) => Err(malformed(Role::Key, path, &cause)),
    }
}

fn is_encrypted(bytes: &[u8]) -> bool {
    String::from_utf8_lossy(bytes).contains(ENCRYPTED_KEY)
}

/// Refuses a certificate that is not valid now; a warning for one that will not be for long.
fn check_dates(
    role: Role,
    path: &Path,
    certificate: &CertificateDer<'_>,
    now: i64,
) -> Result<Option<String>, KeysError> {
    // What the library reads and we cannot is not refused for that: it checks those of clients itself.
    let Some(valid) = validity(certificate) else { return Ok(None) };
    let path = path.to_path_buf();
    if now < valid.begins.unix {
        return Err(KeysError::NotYet { role, path, begins: valid.begins });
    }
    if now > valid.ends.unix {
        return Err(KeysError::Expired { role, path, ends: valid.ends });
    }
    let soon = valid.ends.unix - now < SOON_SECONDS;
    Ok(soon.then(|| format!("the {role} {} expires on {}", path.display(), valid.ends)))
}

fn server_config(
    files: &TlsFiles,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    authorities: Vec<CertificateDer<'static>>,
) -> Result<ServerConfig, KeysError> {
    let provider = Arc::new(default_provider());
    let path = files.client_ca.clone();
    let verifier = Authorities::new(path.clone(), authorities, Arc::clone(&provider))
        .map_err(|cause| KeysError::NoAuthority { path, cause })?;
    let unusable = |source| match source {
        rustls::Error::InconsistentKeys(_) => {
            KeysError::Mismatch { key: files.key.clone(), certificate: files.certificate.clone() }
        }
        source => KeysError::Unusable { path: files.certificate.clone(), source },
    };
    let builder = ServerConfig::builder_with_provider(provider);
    let builder = builder.with_protocol_versions(&[&rustls::version::TLS13]).map_err(unusable)?;
    let builder = builder.with_client_cert_verifier(Arc::new(verifier));
    let mut config = builder.with_single_cert(chain, key).map_err(unusable)?;
    // Each connection proves itself: a resumed one would not be held against files that have changed since.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(config)
}
