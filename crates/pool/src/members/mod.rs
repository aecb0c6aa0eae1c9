//! Members of an open pool: their table, their entries in labels, and what each is for.

pub(crate) mod entries;
pub(crate) mod identity;
pub(crate) mod role;
pub(crate) mod table;
