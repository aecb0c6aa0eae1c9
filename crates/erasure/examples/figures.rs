//! Prints how fast each kernel is that this machine can run, for some widths that spaces have.
//!
//! `cargo run --release -p dolmen-erasure --example figures`. Figures are GB/s (10^9 bytes) in one thread: of data for
//! encoding, of data that changes for updating one block, of columns that are read for computing as many data columns as
//! there are parity columns. Each is the median over bursts that are shorter than a scheduler's turn, and kernels take
//! turns, so that other work on the machine disturbs little. Blocks have 4 KiB and stay in the cache; in the rows from
//! memory they have 64 KiB, and each stripe is another one of 256 MiB.

use std::hint::black_box;
use std::io::Write;
use std::time::Instant;

use dolmen_erasure::{BlocksError, Change, Code, CodeError, Kernel, Shape};

const BLOCK_BYTES: usize = 4096;
const INTERLEAVE_BYTES: usize = 64 * 1024;
const MEMORY_BYTES: usize = 256 << 20;
const BURSTS: usize = 51;
const BURST_SECONDS: f64 = 0.0002;
const CALLS_MAX: usize = 1 << 20;

type Failure = Box<dyn std::error::Error>;

/// What is measured: the bytes that one call stands for, and so many calls in a row.
struct Task<'a> {
    bytes: usize,
    calls: Box<dyn FnMut(usize) -> Result<(), BlocksError> + 'a>,
}

type Case = for<'a> fn(Code, &'a [u8]) -> Result<Task<'a>, Failure>;

const CASES: [(&str, Case); 4] = [
    ("encode", |code, memory| Ok(encode(code, memory, BLOCK_BYTES, 1))),
    ("encode from memory", |code, memory| {
        let stripes = MEMORY_BYTES / (INTERLEAVE_BYTES * code.shape().data_count);
        Ok(encode(code, memory, INTERLEAVE_BYTES, stripes))
    }),
    ("update one block", update),
    ("reconstruct", reconstruct),
];

fn main() -> Result<(), Failure> {
    let kernels: Vec<Kernel> = Kernel::ALL.into_iter().filter(|kernel| kernel.is_available()).collect();
    let mut out = std::io::stdout().lock();
    for kernel in Kernel::ALL.into_iter().filter(|kernel| !kernel.is_available()) {
        writeln!(out, "skipped: kernel {kernel}: this processor cannot run it")?;
    }
    let names: Vec<&str> = kernels.iter().map(|kernel| kernel.name()).collect();
    writeln!(out, "| what | code | {} | chosen / scalar |", names.join(" | "))?;
    writeln!(out, "|---|---|{}---:|", "---:|".repeat(kernels.len()))?;
    // Not zeros, which the system would map to one page.
    let mut memory = vec![0; MEMORY_BYTES + BLOCK_BYTES];
    let memory = aligned(&mut memory);
    for (at, byte) in memory.iter_mut().enumerate() {
        *byte = at.to_le_bytes()[0] ^ at.to_le_bytes()[1];
    }
    for (what, case) in CASES {
        for (data_count, parity_count) in [4, 8, 12].into_iter().flat_map(|k| [1, 2, 3].map(|m| (k, m))) {
            let code = |kernel| Code::with_kernel(Shape { data_count, parity_count }, kernel);
            let codes = kernels.iter().map(|kernel| code(*kernel)).collect::<Result<Vec<_>, CodeError>>()?;
            let tasks = codes.into_iter().map(|code| case(code, memory)).collect::<Result<Vec<_>, _>>()?;
            let rates = measure(tasks)?;
            let texts: Vec<String> = rates.iter().map(|rate| format!("{rate:.1}")).collect();
            let ratio = rates.last().zip(rates.first()).map_or(0.0, |(chosen, scalar)| chosen / scalar);
            writeln!(out, "| {what} | {data_count} + {parity_count} | {} | {ratio:.0} |", texts.join(" | "))?;
        }
    }
    Ok(())
}

/// Memory from the first place on at which a buffer of the engine could begin.
fn aligned(memory: &mut [u8]) -> &mut [u8] {
    let start = memory.as_ptr().align_offset(BLOCK_BYTES);
    memory.get_mut(start..).unwrap_or_default()
}

fn encode(code: Code, memory: &[u8], bytes: usize, stripes: usize) -> Task<'_> {
    let Shape { data_count, parity_count } = code.shape();
    let all: Vec<Option<&[u8]>> = memory.chunks(bytes).take(data_count * stripes).map(Some).collect();
    let mut parity = vec![1; bytes * parity_count + BLOCK_BYTES];
    // Each kernel begins at another stripe, or all but the first would find their stripes in a cache.
    let place = Kernel::ALL.iter().position(|kernel| *kernel == code.kernel()).unwrap_or(0);
    let mut next = stripes * place / Kernel::ALL.len();
    let calls = move |count| {
        let mut places: Vec<_> =
            aligned(&mut parity).chunks_mut(bytes).take(parity_count).map(Some).collect();
        for _ in 0..count {
            let stripe = all.chunks(data_count).nth(next).unwrap_or_default();
            next = (next + 1) % stripes;
            code.encode(black_box(stripe), black_box(&mut places))?;
        }
        Ok(())
    };
    Task { bytes: bytes * data_count, calls: Box::new(calls) }
}

fn update(code: Code, memory: &[u8]) -> Result<Task<'_>, Failure> {
    let mut blocks = memory.chunks(BLOCK_BYTES);
    let change = Change { column: code.shape().data_count - 1, old: blocks.next(), new: blocks.next() };
    let parity_count = code.shape().parity_count;
    let mut parity = vec![1; BLOCK_BYTES * (parity_count + 1)];
    let calls = move |count| {
        let blocks = aligned(&mut parity).chunks_mut(BLOCK_BYTES);
        let mut places: Vec<_> = blocks.take(parity_count).map(Some).collect();
        for _ in 0..count {
            code.update(black_box(&[change]), black_box(&mut places))?;
        }
        Ok(())
    };
    Ok(Task { bytes: BLOCK_BYTES, calls: Box::new(calls) })
}

fn reconstruct(code: Code, memory: &[u8]) -> Result<Task<'_>, Failure> {
    let Shape { data_count, parity_count } = code.shape();
    let given: Vec<usize> = (parity_count..data_count + parity_count).collect();
    let lost: Vec<usize> = (0..parity_count).collect();
    let plan = code.plan(&given, &lost)?;
    let sources: Vec<Option<&[u8]>> = memory.chunks(BLOCK_BYTES).take(data_count).map(Some).collect();
    let mut restored = vec![1; BLOCK_BYTES * (parity_count + 1)];
    let calls = move |count| {
        let mut targets: Vec<_> = aligned(&mut restored).chunks_mut(BLOCK_BYTES).take(parity_count).collect();
        for _ in 0..count {
            plan.reconstruct(black_box(&sources), black_box(&mut targets))?;
        }
        Ok(())
    };
    Ok(Task { bytes: BLOCK_BYTES * data_count, calls: Box::new(calls) })
}

/// GB/s of each task.
fn measure(tasks: Vec<Task<'_>>) -> Result<Vec<f64>, Failure> {
    let mut sized = Vec::new();
    for mut task in tasks {
        let mut count = 1;
        while count < CALLS_MAX && seconds(&mut task, count)? < BURST_SECONDS {
            count *= 2;
        }
        sized.push((task, count, Vec::with_capacity(BURSTS)));
    }
    for _ in 0..BURSTS {
        for (task, count, rates) in &mut sized {
            #[expect(clippy::cast_precision_loss, reason = "a burst is some megabytes")]
            let bytes = (task.bytes * *count) as f64;
            rates.push(bytes / seconds(task, *count)? / 1e9);
        }
    }
    let median = |(_, _, mut rates): (Task<'_>, usize, Vec<f64>)| {
        rates.sort_by(f64::total_cmp);
        rates.get(rates.len() / 2).copied().unwrap_or(0.0)
    };
    Ok(sized.into_iter().map(median).collect())
}

fn seconds(task: &mut Task<'_>, count: usize) -> Result<f64, BlocksError> {
    #[expect(clippy::disallowed_methods, reason = "what is measured is real time")]
    let began = Instant::now();
    (task.calls)(count)?;
    Ok(began.elapsed().as_secs_f64())
}
