//! Sessions of the server against a client of their own, over a connection and an export in memory.

#[cfg(test)]
mod client;
#[cfg(test)]
mod conformance;
#[cfg(test)]
mod export;
#[cfg(test)]
mod extended;
#[cfg(test)]
mod handshake;
#[cfg(test)]
mod hostile;
#[cfg(test)]
mod model;
#[cfg(test)]
mod prelude;
#[cfg(test)]
mod stop;
#[cfg(test)]
mod transmission;
#[cfg(test)]
mod world;
