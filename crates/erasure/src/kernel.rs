//! Which kernels there are, and the choice among them while running.
//!
//! A kernel does one thing: up to four sums at once, each of all sources times factors. Sources are read once for these
//! four and no target is touched more than once. All kernels give the same bytes; tests hold each that the machine can
//! run against the scalar one.

mod portable;
mod scalar;
#[cfg(target_arch = "x86_64")]
mod x86;

use std::fmt;

use crate::sums::TARGETS_MAX;

/// A way to compute, in ascending order of what it asks of the processor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kernel {
    /// One byte after the other from a table; what all others are compared with.
    Scalar,
    /// Eight bytes at a time in plain Rust, on any processor.
    Portable,
    /// x86-64 with SSSE3: sixteen table look-ups at a time.
    Ssse3,
    /// x86-64 with AVX2: 32 at a time.
    Avx2,
    /// x86-64 with AVX-512BW: 64 at a time.
    Avx512,
    /// x86-64 with AVX2 and GFNI: 32 products at a time as products of bit matrices.
    Avx2Gfni,
    /// x86-64 with AVX-512BW and GFNI: 64 products at a time.
    Avx512Gfni,
}

impl Kernel {
    /// All kernels, the one that is chosen before all others last.
    pub const ALL: [Self; 7] = [
        Self::Scalar,
        Self::Portable,
        Self::Ssse3,
        Self::Avx2,
        Self::Avx512,
        Self::Avx2Gfni,
        Self::Avx512Gfni,
    ];

    /// What messages and figures call it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Scalar => "scalar",
            Self::Portable => "portable",
            Self::Ssse3 => "ssse3",
            Self::Avx2 => "avx2",
            Self::Avx512 => "avx512",
            Self::Avx2Gfni => "avx2+gfni",
            Self::Avx512Gfni => "avx512+gfni",
        }
    }

    /// Whether this processor, under this operating system, can run it.
    #[must_use]
    pub fn is_available(self) -> bool {
        #[cfg(target_arch = "x86_64")]
        match self {
            Self::Scalar | Self::Portable => true,
            Self::Ssse3 => is_x86_feature_detected!("ssse3"),
            Self::Avx2 => is_x86_feature_detected!("avx2"),
            Self::Avx512 => is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw"),
            Self::Avx2Gfni => Self::Avx2.is_available() && is_x86_feature_detected!("gfni"),
            Self::Avx512Gfni => Self::Avx512.is_available() && is_x86_feature_detected!("gfni"),
        }
        #[cfg(not(target_arch = "x86_64"))]
        matches!(self, Self::Scalar | Self::Portable)
    }

    /// The last of [`ALL`](Self::ALL) that is available.
    #[must_use]
    pub fn fastest() -> Self {
        Self::ALL.into_iter().rev().find(|kernel| kernel.is_available()).unwrap_or(Self::Portable)
    }
}

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A block that goes into the sums of a pass.
#[derive(Clone, Copy)]
pub(crate) struct Source<'a> {
    pub(crate) bytes: &'a [u8],
    /// What it is multiplied with for each sum.
    pub(crate) factors: [u8; TARGETS_MAX],
}

impl Source<'_> {
    pub(crate) const NONE: Self = Self { bytes: &[], factors: [0; TARGETS_MAX] };
}

/// What a sum begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Start {
    Zeros,
    /// What the target holds.
    Kept,
}

/// A kernel that this processor was found to be able to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Runnable(Kernel);

impl Runnable {
    pub(crate) fn new(kernel: Kernel) -> Option<Self> {
        kernel.is_available().then_some(Self(kernel))
    }

    pub(crate) fn kernel(self) -> Kernel {
        self.0
    }

    /// Makes each target the sum of all sources, each times its factor for that target.
    ///
    /// Of targets there are at most [`TARGETS_MAX`]; all blocks have one length.
    pub(crate) fn add_up(self, sources: &[Source<'_>], targets: &mut [&mut [u8]], start: Start) {
        let bytes = targets.first().map_or(0, |target| target.len());
        assert!(targets.len() <= TARGETS_MAX, "{} sums in one pass", targets.len());
        assert!(targets.iter().all(|target| target.len() == bytes), "targets differ in length");
        assert!(sources.iter().all(|source| source.bytes.len() == bytes), "sources differ in length");
        let done_bytes = match self.0 {
            Kernel::Scalar => 0,
            Kernel::Portable => portable::add_up(sources, targets, start),
            // SAFETY: `new` found that this processor has SSSE3.
            #[cfg(target_arch = "x86_64")]
            Kernel::Ssse3 => unsafe { x86::ssse3(sources, targets, start) },
            // SAFETY: `new` found that this processor has AVX2.
            #[cfg(target_arch = "x86_64")]
            Kernel::Avx2 => unsafe { x86::avx2(sources, targets, start) },
            // SAFETY: `new` found that this processor has AVX-512F and AVX-512BW.
            #[cfg(target_arch = "x86_64")]
            Kernel::Avx512 => unsafe { x86::avx512(sources, targets, start) },
            // SAFETY: `new` found that this processor has AVX2 and GFNI.
            #[cfg(target_arch = "x86_64")]
            Kernel::Avx2Gfni => unsafe { x86::avx2_gfni(sources, targets, start) },
            // SAFETY: `new` found that this processor has AVX-512F, AVX-512BW and GFNI.
            #[cfg(target_arch = "x86_64")]
            Kernel::Avx512Gfni => unsafe { x86::avx512_gfni(sources, targets, start) },
            #[cfg(not(target_arch = "x86_64"))]
            Kernel::Ssse3 | Kernel::Avx2 | Kernel::Avx512 | Kernel::Avx2Gfni | Kernel::Avx512Gfni => 0,
        };
        scalar::add_up(sources, targets, start, done_bytes);
    }
}
