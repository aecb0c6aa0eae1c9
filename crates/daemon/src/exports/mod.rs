//! The service of exports: NBD, network listeners, and TLS. It knows no engine.

mod listener;
mod listeners;
mod nbd;
mod network;

pub(crate) use listener::keys::{Keys, Stamps, load};
pub(crate) use listener::pending::Origin;
pub(crate) use listener::proxy::Arrival;
pub(crate) use listener::tls_acceptor::Order;
pub(crate) use listeners::{Listeners, OpenListener, Watched};
#[cfg(test)]
pub(crate) use listeners::{VISITS_MAX, VISITS_OF_ORIGIN_MAX, Visits};
pub(crate) use nbd::{Client, NbdServer, Served, Visitor, report_end};
pub(crate) use network::Network;
