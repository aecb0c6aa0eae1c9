//! The authorities of clients: who was signed by one of them is let in, while that one is valid itself.
//!
//! Invariant: an authority lets nobody in before it begins or behind its end, however long its listener has been open. The TLS
//! library takes an authority for an anchor, whatever its dates say; so they are looked at here, with each connection.
//!
//! Left to others: what can be said of the files before the first client comes (`keys`).

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, OtherError, RootCertStore, SignatureScheme,
};

use crate::exports::listener::der::{Day, Validity, validity};

/// Why a client that an authority signed is not let in.
#[derive(thiserror::Error)]
enum OutOfDate {
    #[error("the authority of clients {} has expired: it was valid until {ends}", path.display())]
    Expired { path: PathBuf, ends: Day },
    #[error("the authority of clients {} is valid from {begins} on, which is not yet", path.display())]
    NotYet { path: PathBuf, begins: Day },
}

// The TLS library tells what others found by this alone.
impl fmt::Debug for OutOfDate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// An authority, and from when to when it counts; for ever where that cannot be read.
#[derive(Debug)]
struct Authority {
    certificate: CertificateDer<'static>,
    valid: Option<Validity>,
}

impl Authority {
    fn counts_at(&self, now: i64) -> bool {
        self.valid.is_none_or(|valid| (valid.begins.unix..=valid.ends.unix).contains(&now))
    }
}

/// Verifies certificates of clients against the authorities that are valid as they come.
#[derive(Debug)]
pub(crate) struct Authorities {
    /// The file that they came from.
    path: PathBuf,
    authorities: Vec<Authority>,
    provider: Arc<CryptoProvider>,
    /// Takes all of them, whatever their dates.
    of_all: Arc<dyn ClientCertVerifier>,
}

impl Authorities {
    /// Those of a file.
    ///
    /// # Errors
    /// What the TLS library has against them, in words.
    pub(crate) fn new(
        path: PathBuf,
        certificates: Vec<CertificateDer<'static>>,
        provider: Arc<CryptoProvider>,
    ) -> Result<Self, String> {
        let of_all = verifier(certificates.iter(), &provider)?;
        let authority = |certificate: CertificateDer<'static>| {
            let valid = validity(&certificate);
            Authority { certificate, valid }
        };
        let authorities = certificates.into_iter().map(authority).collect();
        Ok(Self { path, authorities, provider, of_all })
    }

    /// Why none of those that do not count now lets anybody in: of the one that ended last, or begins first.
    fn out_of_date(&self, now: i64) -> rustls::Error {
        let valid = || self.authorities.iter().filter_map(|authority| authority.valid);
        let ended = valid().filter(|valid| valid.ends.unix < now).max_by_key(|valid| valid.ends);
        let begins = valid().filter(|valid| valid.begins.unix > now).min_by_key(|valid| valid.begins);
        let path = self.path.clone();
        let why = match (ended, begins) {
            (Some(Validity { ends, .. }), _) => OutOfDate::Expired { path, ends },
            (None, Some(Validity { begins, .. })) => OutOfDate::NotYet { path, begins },
            (None, None) => return rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer),
        };
        rustls::Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(why))))
    }
}

/// A verifier that takes these for anchors.
fn verifier<'a>(
    certificates: impl Iterator<Item = &'a CertificateDer<'static>>,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, String> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates {
        roots.add(certificate.clone()).map_err(|error| error.to_string())?;
    }
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider));
    verifier.build().map_err(|error| error.to_string())
}

impl ClientCertVerifier for Authorities {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.of_all.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        let verified = self.of_all.verify_client_cert(end_entity, intermediates, now)?;
        let seconds = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
        let counting = || self.authorities.iter().filter(|authority| authority.counts_at(seconds));
        if counting().count() == self.authorities.len() {
            return Ok(verified);
        }
        // Which of them signed it is unknown, and two may have one key: those that count have to be enough.
        let of_counting = verifier(counting().map(|authority| &authority.certificate), &self.provider);
        let of_counting = of_counting.map_err(|_| self.out_of_date(seconds))?;
        let verified = of_counting.verify_client_cert(end_entity, intermediates, now);
        verified.map_err(|_| self.out_of_date(seconds))
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.of_all.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.of_all.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.of_all.supported_verify_schemes()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rcgen::{
        BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
        date_time_ymd,
    };
    use rustls::crypto::ring::default_provider;

    use super::*;

    /// Seconds of 1 January of these years.
    const Y2010: u64 = 1_262_304_000;
    const Y2020: u64 = 1_577_836_800;

    /// An authority of a name with a key, valid between two years.
    fn authority(
        name: &str,
        key: &KeyPair,
        (from, to): (i32, i32),
    ) -> (CertificateDer<'static>, CertificateParams) {
        let mut parameters = CertificateParams::new(Vec::new()).unwrap();
        parameters.distinguished_name.push(DnType::CommonName, name);
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        (parameters.not_before, parameters.not_after) = (date_time_ymd(from, 1, 1), date_time_ymd(to, 1, 1));
        (parameters.self_signed(key).unwrap().der().clone(), parameters)
    }

    /// A certificate of a client that is valid longer than anybody looks.
    fn client_of(parameters: CertificateParams, key: KeyPair) -> CertificateDer<'static> {
        let mut of_client = CertificateParams::new(vec!["client.example".to_owned()]).unwrap();
        of_client.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        (of_client.not_before, of_client.not_after) = (date_time_ymd(2000, 1, 1), date_time_ymd(2200, 1, 1));
        let own = KeyPair::generate().unwrap();
        of_client.signed_by(&own, &Issuer::new(parameters, key)).unwrap().der().clone()
    }

    fn of(certificates: &[&CertificateDer<'static>]) -> Authorities {
        let certificates = certificates.iter().map(|one| (*one).clone()).collect();
        Authorities::new("clients.pem".into(), certificates, Arc::new(default_provider())).unwrap()
    }

    /// The refusal of a client so many seconds after 1970; nothing if it is admitted.
    fn reported(authorities: &Authorities, client: &CertificateDer<'_>, seconds: u64) -> Option<String> {
        let now = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        let refused = authorities.verify_client_cert(client, &[], now).err()?;
        Some(refused.to_string())
    }

    #[test]
    fn an_authority_counts_from_its_first_second_to_its_last() {
        // Scenario: one authority of 2010 to 2020 alone, and beside another one that is always valid.
        let key = KeyPair::generate().unwrap();
        let (mine, parameters) = authority("mine", &key, (2010, 2020));
        let client = client_of(parameters, key);
        let (other, _) = authority("other", &KeyPair::generate().unwrap(), (2000, 2200));
        for authorities in [of(&[&mine]), of(&[&other, &mine]), of(&[&mine, &other])] {
            for (seconds, words) in [
                (Y2010 - 1, Some("valid from 2010-01-01 on, which is not yet")),
                (Y2010, None),
                (Y2020, None),
                (Y2020 + 1, Some("clients.pem has expired: it was valid until 2020-01-01")),
            ] {
                let reported = reported(&authorities, &client, seconds);
                let is_so = match (&reported, words) {
                    (Some(reported), Some(words)) => reported.contains(words),
                    (None, None) => true,
                    _ => false,
                };
                assert!(is_so, "{seconds}: {reported:?} instead of {words:?}");
            }
        }
    }

    #[test]
    fn an_authority_that_was_renewed_with_its_key_goes_on() {
        // Scenario: the file has the authority as it was to 2020, and as it is from then on. Expected: who was signed by that key
        // is let in as long as one of both is valid.
        let key = KeyPair::generate().unwrap();
        let (old, parameters) = authority("mine", &key, (2010, 2020));
        let (new, _) = authority("mine", &key, (2020, 2200));
        let client = client_of(parameters, key);
        let both = of(&[&old, &new]);
        for (seconds, is_let_in) in [(Y2010 - 1, false), (Y2010, true), (Y2020 + 1, true)] {
            assert_eq!(reported(&both, &client, seconds).is_none(), is_let_in, "{seconds}");
        }
    }

    #[test]
    fn an_unsigned_client_gets_no_dates() {
        let (mine, _) = authority("mine", &KeyPair::generate().unwrap(), (2010, 2020));
        let key = KeyPair::generate().unwrap();
        let (_, parameters) = authority("other", &key, (2000, 2200));
        let reported = reported(&of(&[&mine]), &client_of(parameters, key), Y2020 + 1).unwrap();
        assert!(!reported.contains("expired"), "{reported}");
    }
}
