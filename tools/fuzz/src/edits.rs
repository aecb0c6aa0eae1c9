//! Edits of a structure: what somebody who forges it changes.

use crate::script::Script;

/// Edits of one structure, at most.
const EDITS_MAX: usize = 24;
/// Bytes of a structure in which most of its fields stand.
const HEAD_BYTES: u64 = 192;

/// A change of some bytes.
#[derive(Debug, Clone)]
pub(crate) struct Edit {
    at: usize,
    what: What,
}

#[derive(Debug, Clone)]
enum What {
    FlipBit(u8),
    Set(Vec<u8>),
    Add(u8),
    Zero(usize),
    Copy { from: usize, length: usize },
}

impl Edit {
    /// The next edit of a script, of a structure of so many bytes.
    pub(crate) fn draw(script: &mut Script<'_>, length: usize) -> Self {
        let what = script.byte();
        let at = place(script, length);
        let what = match what % 8 {
            0 => What::FlipBit(script.byte() % 8),
            1 => What::Set(vec![script.byte()]),
            2 => What::Set(script.edge().to_le_bytes()[..2].to_vec()),
            3 => What::Set(script.edge().to_le_bytes()[..4].to_vec()),
            4 => What::Set(script.edge().to_le_bytes().to_vec()),
            5 => What::Add(script.byte()),
            6 => What::Zero(script.index(64)),
            _ => What::Copy { from: place(script, length), length: script.index(64) },
        };
        Self { at, what }
    }

    /// Changes the bytes; what does not fit is left out.
    pub(crate) fn apply(&self, bytes: &mut [u8]) {
        let at = self.at.min(bytes.len());
        match &self.what {
            What::FlipBit(bit) => bytes[at..].iter_mut().take(1).for_each(|byte| *byte ^= 1 << bit),
            What::Set(value) => bytes[at..].iter_mut().zip(value).for_each(|(to, from)| *to = *from),
            What::Add(value) => {
                bytes[at..].iter_mut().take(1).for_each(|byte| *byte = byte.wrapping_add(*value))
            }
            What::Zero(length) => bytes[at..].iter_mut().take(*length).for_each(|byte| *byte = 0),
            What::Copy { from, length } => {
                let copied: Vec<u8> = bytes.iter().copied().skip(*from).take(*length).collect();
                bytes[at..].iter_mut().zip(copied).for_each(|(to, from)| *to = from);
            }
        }
    }
}

/// Somewhere in a structure, at its front more often than elsewhere.
fn place(script: &mut Script<'_>, length: usize) -> usize {
    let number = script.number(2);
    let end = match number >> 14 {
        0 | 1 => HEAD_BYTES,
        2 => 2048,
        _ => 16384,
    };
    usize::try_from(number % end).unwrap_or(0) % length.max(1)
}

/// Edits bytes as the script says, to its end.
pub(crate) fn edit(script: &mut Script<'_>, bytes: &mut [u8]) {
    for _ in 0..EDITS_MAX {
        if script.is_over() {
            break;
        }
        Edit::draw(script, bytes.len()).apply(bytes);
    }
}
