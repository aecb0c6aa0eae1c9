//! Authorities and certificates, good and wrong, in the files that a listener is given; and a client with TLS.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    date_time_ymd,
};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::{Value, json};

use crate::client::{option, take_greeting};

pub(crate) type Years = (i32, i32);
/// Valid as long as anybody runs these tests.
pub(crate) const NOW: Years = (2000, 2200);
pub(crate) const PAST: Years = (2000, 2001);
pub(crate) const FUTURE: Years = (2190, 2200);

/// Who signs.
pub(crate) struct Authority {
    pub(crate) pem: String,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate and its key, in PEM form.
#[derive(Clone)]
pub(crate) struct Pair {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

impl Authority {
    pub(crate) fn new(name: &str, years: Years) -> Self {
        Self::of(parameters(name, years))
    }

    /// Valid until so many seconds after 1970.
    pub(crate) fn ending_at(name: &str, seconds: u64) -> Self {
        let mut parameters = parameters(name, NOW);
        parameters.not_after = date_time_ymd(1970, 1, 1) + Duration::from_secs(seconds);
        Self::of(parameters)
    }

    fn of(mut parameters: CertificateParams) -> Self {
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = parameters.self_signed(&key).unwrap().pem();
        Self { pem, issuer: Issuer::new(parameters, key) }
    }

    pub(crate) fn sign(&self, name: &str, years: Years, purpose: ExtendedKeyUsagePurpose) -> Pair {
        self.signed(parameters(name, years), purpose)
    }

    fn signed(&self, mut parameters: CertificateParams, purpose: ExtendedKeyUsagePurpose) -> Pair {
        parameters.extended_key_usages = vec![purpose];
        let key = KeyPair::generate().unwrap();
        let certificate = parameters.signed_by(&key, &self.issuer).unwrap().pem();
        Pair { certificate, key: key.serialize_pem() }
    }

    /// As [`sign`](Self::sign), up to a day of a year.
    pub(crate) fn sign_until(
        &self,
        name: &str,
        (year, month, day): (i32, u8, u8),
        purpose: ExtendedKeyUsagePurpose,
    ) -> Pair {
        let mut parameters = parameters(name, NOW);
        parameters.not_after = date_time_ymd(year, month, day);
        self.signed(parameters, purpose)
    }

    pub(crate) fn client(&self, name: &str) -> Pair {
        self.sign(name, NOW, ExtendedKeyUsagePurpose::ClientAuth)
    }

    pub(crate) fn server(&self) -> Pair {
        self.sign("server", NOW, ExtendedKeyUsagePurpose::ServerAuth)
    }
}

fn parameters(name: &str, years: Years) -> CertificateParams {
    let mut parameters =
        CertificateParams::new(vec!["localhost".to_owned(), format!("{name}.example")]).unwrap();
    parameters.distinguished_name.push(DnType::CommonName, name);
    parameters.not_before = date_time_ymd(years.0, 1, 1);
    parameters.not_after = date_time_ymd(years.1, 1, 1);
    parameters
}

/// The files of a listener.
pub(crate) struct Files {
    folder: PathBuf,
    pub(crate) ca: Authority,
}

impl Files {
    pub(crate) fn new(folder: &Path) -> Self {
        let files = Self { folder: folder.to_path_buf(), ca: Authority::new("ca", NOW) };
        let server = files.ca.server();
        files.put("server.pem", &server.certificate, 0o644);
        files.put("server.key", &server.key, 0o600);
        files.put("clients.pem", &files.ca.pem.clone(), 0o644);
        files
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Writes a file as an administrator would: beside, then in its place.
    pub(crate) fn put(&self, name: &str, text: &str, mode: u32) {
        let fresh = self.path("fresh");
        fs::write(&fresh, text).unwrap();
        fs::set_permissions(&fresh, fs::Permissions::from_mode(mode)).unwrap();
        fs::rename(&fresh, self.path(name)).unwrap();
    }

    /// The request to serve with these files.
    pub(crate) fn request(&self, at: SocketAddr, allow: &[&str]) -> Value {
        json!({"network": {"listen": at, "allow": allow, "tls": {
            "certificate": self.path("server.pem"), "key": self.path("server.key"), "client_ca": self.path("clients.pem")}}})
    }

    /// A client's settings, which takes servers of this authority.
    pub(crate) fn client(&self, pair: Option<&Pair>) -> Arc<ClientConfig> {
        client_of(&self.ca, pair)
    }
}

pub(crate) fn client_of(ca: &Authority, pair: Option<&Pair>) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(ca.pem.as_bytes()).unwrap()).unwrap();
    let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()));
    let builder = builder.with_safe_default_protocol_versions().unwrap().with_root_certificates(roots);
    Arc::new(match pair {
        None => builder.with_no_client_auth(),
        Some(pair) => {
            let chain =
                CertificateDer::pem_slice_iter(pair.certificate.as_bytes()).map(Result::unwrap).collect();
            let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).unwrap();
            builder.with_client_auth_cert(chain, key).unwrap()
        }
    })
}

/// An address of this machine where nobody listens.
pub(crate) fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

pub(crate) fn connect(at: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(at).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    stream
}

pub(crate) type Tls = StreamOwned<ClientConnection, TcpStream>;

/// A client up to the end of its side of the TLS handshake. That it was let in is seen with the first answer.
pub(crate) fn start_tls(at: SocketAddr, config: Arc<ClientConfig>) -> std::io::Result<Tls> {
    let mut stream = connect(at);
    take_greeting(&mut stream);
    stream.write_all(&[&3u32.to_be_bytes()[..], &option(5, &[])].concat())?;
    let (reply, _) = reply(&mut stream)?;
    assert_eq!(reply, 1, "TLS is granted");
    tls_over(stream, config)
}

pub(crate) fn tls_over(mut stream: TcpStream, config: Arc<ClientConfig>) -> std::io::Result<Tls> {
    let name = ServerName::try_from("localhost").unwrap();
    let mut tls = ClientConnection::new(config, name).unwrap();
    while tls.is_handshaking() {
        tls.complete_io(&mut stream)?;
    }
    Ok(StreamOwned::new(tls, stream))
}

/// One reply to an option: its type and its data.
pub(crate) fn reply(stream: &mut impl Read) -> std::io::Result<(u32, Vec<u8>)> {
    let mut head = [0; 20];
    stream.read_exact(&mut head)?;
    assert_eq!(head[..8], 0x0003_e889_0455_65a9u64.to_be_bytes());
    let field = |at: usize| u32::from_be_bytes(head[at..at + 4].try_into().unwrap());
    let mut data = vec![0; usize::try_from(field(16)).unwrap()];
    stream.read_exact(&mut data)?;
    Ok((field(12), data))
}

/// The types of replies that are no errors and not the last.
const ITEMS: std::ops::RangeInclusive<u32> = 2..=4;

/// Sends an option and takes its last reply.
pub(crate) fn ask(
    stream: &mut (impl Read + Write),
    number: u32,
    data: &[u8],
) -> std::io::Result<(u32, Vec<u8>)> {
    stream.write_all(&option(number, data))?;
    loop {
        let (kind, data) = reply(stream)?;
        if !ITEMS.contains(&kind) {
            return Ok((kind, data));
        }
    }
}
