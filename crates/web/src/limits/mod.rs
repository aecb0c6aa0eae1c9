//! Limits of how often something may be asked for. They are kept in memory, and their lists are bounded.

mod rate;
mod sign_in;
mod turns;

use std::net::{IpAddr, Ipv6Addr};

pub(crate) use rate::{CONNECTIONS, REQUESTS, RateKey, Rates};
pub(crate) use sign_in::{Attempt, SignIns};
pub(crate) use turns::{Matter, Turns};

/// Returns what a client has one of: an IPv4 address, or a network of IPv6.
pub(crate) fn network_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_an_address_or_a_network_of_ipv6() {
        for (address, network) in [
            ("192.0.2.1", "192.0.2.1"),
            ("::ffff:192.0.2.1", "192.0.2.1"),
            ("2001:db8:0:1:2:3:4:5", "2001:db8:0:1::"),
        ] {
            assert_eq!(network_of(address.parse().unwrap()).to_string(), network);
        }
    }
}
