//! Changes of the members on request, the number of voters, and settings of a pool.

pub(crate) mod admission;
pub(crate) mod bays;
pub(crate) mod domains;
pub(crate) mod eviction;
pub(crate) mod growth;
pub(crate) mod removal;
pub(crate) mod requests;
pub(crate) mod settings;
pub(crate) mod voter_tender;
