//! The command `dolmen`.
fn main() {}
