//! `dolmen-web` as its clients see it: a process, TLS, and a daemon behind it, which is real where its answers count.

#[cfg(test)]
mod accounts;
#[cfg(test)]
mod alerts;
#[cfg(test)]
mod client;
#[cfg(test)]
mod cross_site;
#[cfg(test)]
mod fake_daemon;
#[cfg(test)]
mod hostile;
#[cfg(test)]
mod killed;
#[cfg(test)]
mod metrics;
#[cfg(test)]
mod pages;
#[cfg(test)]
mod plan;
#[cfg(test)]
mod roles;
#[cfg(test)]
mod sign_in;
#[cfg(test)]
mod stream;
#[cfg(test)]
mod tokens;
#[cfg(test)]
mod whole;
