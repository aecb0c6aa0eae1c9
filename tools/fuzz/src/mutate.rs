//! A small mutator, for runs without a fuzzer that is led by coverage.

use dolmen_sim::Random;

/// Bytes of an input, at most.
pub const INPUT_BYTES_MAX: usize = 4096;
/// Bytes and numbers at which things break.
const BYTES: [u8; 10] = [0, 1, 7, 8, 15, 16, 127, 128, 254, 255];
const NUMBERS: [u64; 10] = [0, 1, 255, 256, 4095, 4096, 65535, u32::MAX as u64, 1 << 63, u64::MAX];

/// An input that is like one of these.
#[must_use]
pub fn mutated(corpus: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    let mut input = corpus[random.index(corpus.len())].clone();
    for _ in 0..1 + random.below(6) {
        change(&mut input, corpus, random);
    }
    input.truncate(INPUT_BYTES_MAX);
    input
}

fn change(input: &mut Vec<u8>, corpus: &[Vec<u8>], random: &mut Random) {
    let at = random.index(input.len() + 1);
    let end = (at + random.index(16)).min(input.len());
    match random.below(10) {
        0 => input[at..].iter_mut().take(1).for_each(|byte| *byte ^= 1 << random.below(8)),
        1 => input[at..].iter_mut().take(1).for_each(|byte| *byte = BYTES[random.index(BYTES.len())]),
        2 => input[at..].iter_mut().take(1).for_each(|byte| *byte = random.below(256) as u8),
        3 => input[at..].iter_mut().take(1).for_each(|byte| {
            *byte = byte.wrapping_add(random.below(9) as u8).wrapping_sub(4);
        }),
        4 => {
            let number = NUMBERS[random.index(NUMBERS.len())];
            let number = if random.coin() { number.to_le_bytes() } else { number.to_be_bytes() };
            let length = [2, 4, 8][random.index(3)];
            let part = if random.coin() { &number[..length] } else { &number[8 - length..] };
            input[at..].iter_mut().zip(part).for_each(|(to, from)| *to = *from);
        }
        5 => drop(input.drain(at..end)),
        6 => {
            let copied = input[at..end].to_vec();
            input.splice(at..at, copied);
        }
        7 => {
            let mut new = vec![0; random.index(12) + 1];
            random.fill(&mut new);
            input.splice(at..at, new);
        }
        8 => {
            // The front of one input and the back of another.
            let other = &corpus[random.index(corpus.len())];
            input.truncate(at);
            input.extend(&other[random.index(other.len() + 1)..]);
        }
        _ => {
            let other = &corpus[random.index(corpus.len())];
            let from = random.index(other.len() + 1);
            let length = random.index(24).min(other.len() - from);
            input.splice(at..at, other[from..from + length].iter().copied());
        }
    }
}
