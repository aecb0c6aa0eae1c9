//! How things are counted in sentences.

/// So many of something: one of them has a name of its own.
pub(crate) fn counted(count: impl TryInto<u64>, one: &str, many: &str) -> String {
    match count.try_into().unwrap_or(u64::MAX) {
        1 => format!("1 {one}"),
        count => format!("{count} {many}"),
    }
}

/// Clients of a space that is served.
pub(crate) fn clients_of(count: impl TryInto<u64>) -> String {
    counted(count, "NBD client", "NBD clients")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_something_has_a_name_of_its_own() {
        assert_eq!([0usize, 1, 2].map(clients_of), ["0 NBD clients", "1 NBD client", "2 NBD clients"]);
    }
}
