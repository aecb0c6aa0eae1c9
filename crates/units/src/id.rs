//! Random 128-bit identities, written as 8-4-4-4-12 hexadecimal digits.

use std::fmt;
use std::str::FromStr;

/// A text that is not 32 hexadecimal digits, with or without dashes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not an id of 32 hexadecimal digits")]
pub struct ParseIdError {
    /// What was given.
    pub text: String,
}

fn write_hex(bytes: &[u8; 16], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for (index, byte) in bytes.iter().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            f.write_str("-")?;
        }
        write!(f, "{byte:02x}")?;
    }
    Ok(())
}

fn parse_hex(text: &str) -> Result<[u8; 16], ParseIdError> {
    let error = || ParseIdError { text: text.to_owned() };
    let digits: String = text.chars().filter(|c| *c != '-').collect();
    if digits.len() != 32 {
        return Err(error());
    }
    u128::from_str_radix(&digits, 16).map(u128::to_be_bytes).map_err(|_| error())
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub [u8; 16]);

        impl $name {
            /// All zeros: no identity. Never given to anything.
            pub const NONE: Self = Self([0; 16]);

            /// Whether this names nothing.
            #[must_use]
            pub fn is_none(&self) -> bool {
                *self == Self::NONE
            }

            /// The first eight digits, which tell members of one pool apart in a table.
            #[must_use]
            pub fn short(&self) -> String {
                self.to_string().chars().take(8).collect()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write_hex(&self.0, f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({self})", stringify!($name))
            }
        }

        impl FromStr for $name {
            type Err = ParseIdError;
            fn from_str(text: &str) -> Result<Self, ParseIdError> {
                parse_hex(text).map(Self)
            }
        }
    };
}

id! {
    /// A pool, for its whole life.
    PoolId
}
id! {
    /// A disk as a member of a pool: drawn when the disk is claimed, stored on it, never derived from its name.
    DiskId
}
id! {
    /// A host (one installation of an operating system), as the owner of pools.
    HostId
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_reads_back_as_it_was_written() {
        let id = PoolId([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 255]);
        assert_eq!(id.to_string(), "00010203-0405-0607-0809-0a0b0c0d0eff");
        assert_eq!(id.to_string().parse::<PoolId>().unwrap(), id);
    }

    #[test]
    fn text_that_is_no_id_is_refused() {
        for text in ["", "00", "zz010203-0405-0607-0809-0a0b0c0d0eff", "+0010203-0405-0607-0809-0a0b0c0d0e"] {
            assert!(text.parse::<DiskId>().is_err(), "{text}");
        }
    }
}
