//! What callers of the crate hold: spaces, and what is asked of them.

pub(crate) mod discard;
pub(crate) mod finish;
pub(crate) mod forming;
pub(crate) mod full_stripe;
pub(crate) mod members;
pub(crate) mod read;
pub(crate) mod request;
pub mod salvage;
pub(crate) mod scrub;
pub(crate) mod spaces;
pub(crate) mod verify;
pub(crate) mod write;
