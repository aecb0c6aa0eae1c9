//! Hosts and networks that may mount an export, and the argument `10.0.0.0/8:rw` that grants them rights.

use crate::record::Access;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use dolmen_mutation::mutation;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Bytes of the name of a host, at most.
const HOST_BYTES_MAX: usize = 253;
/// Bytes of a part between two dots, at most.
const HOST_PART_BYTES_MAX: usize = 63;

/// A host or a network.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Client {
    /// One host, by name.
    Host(HostName),
    /// One host, by address.
    Address(IpAddr),
    /// All hosts of a network.
    Network(Network),
}

/// The name of a host: letters, digits and hyphens between dots.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostName(String);

/// A network: no bit of its address lies behind its prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Network {
    address: IpAddr,
    prefix: u8,
}

/// A text that is no client, or no grant to one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClientError {
    /// A text with no form of a client.
    #[error("{text:?} is no host or network; write a name, an address, or a network such as 10.0.0.0/8")]
    Client {
        /// Text that was given, cut to 80 characters.
        text: String,
    },
    /// Wildcards and netgroups.
    #[error(
        "{text:?} stands for hosts that a name server or a directory chooses; name hosts or networks instead"
    )]
    Pattern {
        /// Text that was given, cut to 80 characters.
        text: String,
    },
    /// A name without a domain.
    #[error(
        "{text:?} is a short name, and the search domains of the server choose the host that gets the right; write its full name, \
         such as {text}.example.org, or its address"
    )]
    ShortName {
        /// Text that was given, cut to 80 characters.
        text: String,
    },
    /// A prefix that the kind of address has not.
    #[error("{found:?} is no length of a prefix for {address}; write 0 to {most}")]
    Prefix {
        /// Address in front of it.
        address: IpAddr,
        /// Text behind the slash.
        found: String,
        /// Bits of the address.
        most: u8,
    },
    /// Bits behind the prefix.
    #[error("{text:?} names one host of a network; write {network} for all of it, or the address alone")]
    HostBits {
        /// Text that was given.
        text: String,
        /// Network that has it.
        network: Network,
    },
    /// No rights behind the client.
    #[error("{text:?} grants no right; append :ro for reading or :rw for reading and writing")]
    NoAccess {
        /// Text that was given, cut to 80 characters.
        text: String,
    },
}

fn shown(text: &str) -> String {
    text.chars().take(80).collect()
}

impl Network {
    /// The network of an address; `None` if the prefix is longer than the address.
    #[must_use]
    pub fn containing(address: IpAddr, prefix: u8) -> Option<Self> {
        let address = match address {
            IpAddr::V4(v4) if prefix <= 32 => {
                let mask = u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0);
                IpAddr::V4(Ipv4Addr::from_bits(v4.to_bits() & mask))
            }
            IpAddr::V6(v6) if prefix <= 128 => {
                let mask = u128::MAX.checked_shl(128 - u32::from(prefix)).unwrap_or(0);
                IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & mask))
            }
            IpAddr::V4(_) | IpAddr::V6(_) => return None,
        };
        Some(Self { address, prefix })
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

impl HostName {
    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns whether the name has a domain.
    fn is_full(&self) -> bool {
        self.0.contains('.')
    }
}

impl fmt::Display for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(name) => f.write_str(&name.0),
            Self::Address(address) => write!(f, "{address}"),
            Self::Network(network) => write!(f, "{network}"),
        }
    }
}

impl Client {
    /// Reads the client of a new grant: an address, a network, or the full name of a host.
    ///
    /// Records of earlier builds may hold short names. They are read by [`FromStr`], and can be revoked.
    ///
    /// # Errors
    /// Fails if the text names no client, or a host by its short name.
    pub fn parse_granted(text: &str) -> Result<Self, ClientError> {
        match text.parse()? {
            Self::Host(name) if !name.is_full() && !mutation!(ShortHostNameGranted) => {
                Err(ClientError::ShortName { text: shown(text) })
            }
            client => Ok(client),
        }
    }

    /// Returns whether an address is this client's; never for a name, which is not looked up here.
    #[must_use]
    pub fn covers(&self, address: IpAddr) -> bool {
        match self {
            Self::Host(_) => false,
            Self::Address(own) => *own == address,
            Self::Network(network) => Network::containing(address, network.prefix) == Some(*network),
        }
    }
}

impl From<Client> for String {
    fn from(client: Client) -> Self {
        client.to_string()
    }
}

impl TryFrom<String> for Client {
    type Error = ClientError;

    fn try_from(text: String) -> Result<Self, ClientError> {
        text.parse()
    }
}

fn is_host_name(text: &str) -> bool {
    let is_part = |part: &str| {
        !part.is_empty()
            && part.len() <= HOST_PART_BYTES_MAX
            && !part.starts_with('-')
            && !part.ends_with('-')
            && part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
    };
    // A name of digits and dots alone would be a mistyped address.
    text.len() <= HOST_BYTES_MAX
        && text.split('.').all(is_part)
        && text.bytes().any(|b| b.is_ascii_alphabetic())
}

impl FromStr for Client {
    type Err = ClientError;

    fn from_str(text: &str) -> Result<Self, ClientError> {
        let bare =
            |text: &str| text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).map(str::to_owned);
        let address = |text: &str| bare(text).unwrap_or_else(|| text.to_owned()).parse::<IpAddr>();
        if let Some((front, behind)) = text.split_once('/') {
            let address = address(front).map_err(|_| ClientError::Client { text: shown(text) })?;
            let most = if address.is_ipv4() { 32 } else { 128 };
            let digits = behind.bytes().all(|b| b.is_ascii_digit());
            let network = behind
                .parse()
                .ok()
                .filter(|_| digits)
                .and_then(|prefix| Network::containing(address, prefix));
            let network =
                network.ok_or_else(|| ClientError::Prefix { address, found: shown(behind), most })?;
            return if network.address == address {
                Ok(Self::Network(network))
            } else {
                Err(ClientError::HostBits { text: shown(text), network })
            };
        }
        if let Ok(address) = address(text) {
            return Ok(Self::Address(address));
        }
        if text.starts_with('@') || text.contains(['*', '?', '[']) {
            return Err(ClientError::Pattern { text: shown(text) });
        }
        if is_host_name(text) {
            return Ok(Self::Host(HostName(text.to_ascii_lowercase())));
        }
        Err(ClientError::Client { text: shown(text) })
    }
}

/// Reads `CLIENT:ro` or `CLIENT:rw`, as people grant rights on the command line.
///
/// # Errors
/// Fails if the text names no client, a host by its short name, or no right.
pub fn parse_grant(text: &str) -> Result<(Client, Access), ClientError> {
    let split = text.strip_suffix(":ro").map(|client| (client, Access::ReadOnly));
    let split = split.or_else(|| text.strip_suffix(":rw").map(|client| (client, Access::ReadWrite)));
    match split {
        Some((client, access)) => Ok((Client::parse_granted(client)?, access)),
        None => Err(ClientError::NoAccess { text: shown(text) }),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    pub(crate) fn any_client() -> impl Strategy<Value = Client> {
        let v4 = any::<[u8; 4]>().prop_map(IpAddr::from);
        let v6 = any::<[u8; 16]>().prop_map(IpAddr::from);
        let address = prop_oneof![v4, v6];
        prop_oneof![
            address.clone().prop_map(Client::Address),
            (address, 0..=128_u8).prop_filter_map("prefix", |(address, prefix)| {
                Network::containing(address, prefix).map(Client::Network)
            }),
            "[a-z][a-z0-9]{0,8}(\\.[a-z][a-z0-9-]{0,8}[a-z0-9]){0,3}".prop_map(|text| text.parse().unwrap()),
        ]
    }

    #[test]
    fn a_grant_is_a_client_and_a_right() {
        for (text, client, access) in [
            ("10.0.0.0/8:rw", "10.0.0.0/8", Access::ReadWrite),
            ("host.example:ro", "host.example", Access::ReadOnly),
            ("HOST.Example:ro", "host.example", Access::ReadOnly),
            ("2001:db8::/32:rw", "2001:db8::/32", Access::ReadWrite),
            ("[2001:db8::1]:ro", "2001:db8::1", Access::ReadOnly),
            ("0.0.0.0/0:ro", "0.0.0.0/0", Access::ReadOnly),
        ] {
            let (found, right) = parse_grant(text).unwrap();
            assert_eq!((found.to_string().as_str(), right), (client, access), "{text}");
        }
        for (text, part) in [
            ("10.0.0.0/8", "append :ro"),
            ("10.0.0.0/8:wr", "append :ro"),
            ("10.0.0.1/8:rw", "write 10.0.0.0/8 for all of it"),
            ("10.0.0.0/33:rw", "write 0 to 32"),
            ("10.0.0.0/+8:rw", "write 0 to 32"),
            ("10.0.0:rw", "no host or network"),
            ("*:rw", "name hosts or networks"),
            ("*.example:ro", "name hosts or networks"),
            ("@all:ro", "name hosts or networks"),
            ("host:rw", "write its full name, such as host.example.org, or its address"),
            ("localhost:ro", "the search domains of the server choose the host"),
            ("a b:ro", "no host or network"),
            ("-a:ro", "no host or network"),
            ("a(rw):ro", "no host or network"),
            (":ro", "no host or network"),
        ] {
            let error = parse_grant(text).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    /// Scenario: a record of an earlier build holds a short name; people grant it again, and name its domain.
    #[test]
    fn a_short_name_is_read_and_is_not_granted() {
        let read: Client = serde_json::from_str("\"host\"").unwrap();
        assert_eq!(read, "host".parse().unwrap());
        assert_eq!(
            Client::parse_granted("host"),
            Err(ClientError::ShortName { text: "host".to_owned() }),
            "a short name was granted"
        );
        assert_eq!(Client::parse_granted("host.example"), "host.example".parse());
    }

    #[test]
    fn an_address_is_covered_by_itself_and_by_its_networks() {
        let covers =
            |client: &str, address: &str| client.parse::<Client>().unwrap().covers(address.parse().unwrap());
        assert!(covers("127.0.0.1", "127.0.0.1") && covers("127.0.0.0/8", "127.0.0.1"));
        assert!(covers("0.0.0.0/0", "192.0.2.7") && covers("2001:db8::/32", "2001:db8::1"));
        assert!(!covers("10.0.0.0/8", "127.0.0.1") && !covers("localhost", "127.0.0.1"));
        assert!(!covers("0.0.0.0/0", "::1") && !covers("192.0.2.7", "192.0.2.8"));
    }

    proptest! {
        #[test]
        fn a_client_reads_back_as_it_was_written(client in any_client()) {
            prop_assert_eq!(client.to_string().parse(), Ok(client));
        }

        #[test]
        fn no_text_stops_the_parser_and_none_holds_what_ends_a_client(text in ".*") {
            if let Ok((client, _)) = parse_grant(&text) {
                prop_assert!(client.to_string().chars().all(|c| c.is_ascii_alphanumeric() || ".:/-_".contains(c)));
            }
        }
    }
}
