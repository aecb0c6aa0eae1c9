//! Incidents that people have had with storage, each as a test that is named after it, against the daemon as a process.
//!
//! `docs/data_loss_events.md` says which rule makes each impossible. `scripts/mutants.sh --data_loss_events` runs each test once
//! more with that rule broken, and then it has to fail. Sizes are those that a test has time for; the shape is that of the
//! incident.

#[cfg(test)]
mod bench;
#[cfg(test)]
mod cache;
#[cfg(test)]
mod change;
#[cfg(test)]
#[allow(dead_code, reason = "what these tests do not need of it, those of the daemon do")]
#[path = "../daemon/client.rs"]
mod client;
#[cfg(test)]
#[path = "../daemon/declared.rs"]
mod declared;
#[cfg(test)]
mod disks;
#[cfg(test)]
mod dying;
#[cfg(test)]
mod faulty;
#[cfg(test)]
mod full;
#[cfg(test)]
mod hand;
#[cfg(test)]
mod hole;
#[cfg(test)]
mod mounted;
#[cfg(test)]
mod power;
