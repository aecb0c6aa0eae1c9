//! The daemon as its clients see it: a process, its API, its NBD socket. Disks are sparse files; no root is needed.

#[cfg(test)]
mod absent;
#[cfg(test)]
mod advice;
#[cfg(test)]
mod attached;
#[cfg(test)]
mod bad;
#[cfg(test)]
mod benchmarks;
#[cfg(test)]
mod checks;
#[cfg(test)]
mod client;
#[cfg(test)]
mod converted;
#[cfg(test)]
mod cut;
#[cfg(test)]
mod declared;
#[cfg(test)]
mod declared_lost;
#[cfg(test)]
mod dedup;
#[cfg(test)]
mod dirty;
#[cfg(test)]
mod elsewhere;
#[cfg(test)]
mod enclosures;
#[cfg(test)]
mod events;
#[cfg(test)]
mod failing;
#[cfg(test)]
mod foreign_clients;
#[cfg(test)]
mod grown;
#[cfg(test)]
mod growths;
#[cfg(test)]
mod history;
#[cfg(test)]
mod jobs;
#[cfg(test)]
mod keep_room;
#[cfg(test)]
mod leave;
#[cfg(test)]
mod limits;
#[cfg(test)]
mod listeners;
#[cfg(test)]
mod load;
#[cfg(test)]
mod log;
#[cfg(test)]
mod medium;
#[cfg(test)]
mod memory;
#[cfg(test)]
mod mounts;
#[cfg(test)]
mod odd_names;
#[cfg(test)]
mod old_disks;
#[cfg(test)]
mod on_space;
#[cfg(test)]
mod outside;
#[cfg(test)]
mod partitions;
#[cfg(test)]
mod pki;
#[cfg(test)]
mod place;
#[cfg(test)]
mod plans;
#[cfg(test)]
mod rebalance;
#[cfg(test)]
mod removed;
#[cfg(test)]
mod reported;
#[cfg(test)]
mod reserve;
#[cfg(test)]
mod restarts;
#[cfg(test)]
mod returned;
#[cfg(test)]
mod ringed;
#[cfg(test)]
mod same_name;
#[cfg(test)]
mod shares;
#[cfg(test)]
mod slab_map;
#[cfg(test)]
mod slow;
#[cfg(test)]
mod stuck;
#[cfg(test)]
mod trash;
#[cfg(test)]
mod two_paths;
#[cfg(test)]
mod verbs;
#[cfg(test)]
mod volume_growth;
#[cfg(test)]
mod volume_places;
#[cfg(test)]
mod volumes;
#[cfg(test)]
mod web_roles;
#[cfg(test)]
mod widened;
