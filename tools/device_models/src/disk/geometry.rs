//! Where bytes lie: zones of tracks, and the angle at which each begins.

use super::parameters::DiskParameters;
use crate::error::ParameterError;
use crate::time::mul_div;

/// Tracks of one length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Zone {
    first_byte: u64,
    first_track: u64,
    track_bytes: u64,
}

/// Where a byte lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    /// Counted from the outermost, surface by surface.
    pub(crate) track: u64,
    /// When it passes the head within a turn, in nanoseconds.
    pub(crate) angle_ns: u64,
    /// Length of its track.
    pub(crate) track_bytes: u64,
}

/// The layout of a disk.
#[derive(Debug, Clone)]
pub(crate) struct Layout {
    zones: Vec<Zone>,
    tracks: u64,
    revolution_ns: u64,
    skew_ns: u64,
}

impl Layout {
    /// Lays the capacity out in zones with as many tracks each, longer ones outside.
    pub(crate) fn new(parameters: &DiskParameters) -> Result<Self, ParameterError> {
        parameters.check()?;
        let DiskParameters { zones: count, outer_track_bytes: outer, inner_track_bytes: inner, .. } =
            *parameters;
        let length = |zone: u64| outer - mul_div(outer - inner, zone, (count - 1).max(1));
        let sum: u64 = (0..count).map(length).sum();
        let tracks_each = (parameters.capacity_bytes / sum).max(1);
        let mut zones = Vec::new();
        let (mut first_byte, mut first_track) = (0, 0);
        for zone in 0..count {
            let track_bytes = length(zone);
            zones.push(Zone { first_byte, first_track, track_bytes });
            first_byte += track_bytes * tracks_each;
            first_track += tracks_each;
        }
        // What the division left over goes behind the last zone, in tracks as short as its own.
        let rest = parameters.capacity_bytes.saturating_sub(first_byte).div_ceil(inner);
        let tracks = first_track + rest;
        let revolution_ns = parameters.revolution_ns();
        Ok(Self { zones, tracks, revolution_ns, skew_ns: parameters.skew_ns })
    }

    /// How many tracks there are.
    pub(crate) const fn tracks(&self) -> u64 {
        self.tracks
    }

    /// Where a byte lies.
    pub(crate) fn place(&self, at: u64) -> Place {
        let index = self.zones.partition_point(|zone| zone.first_byte <= at).saturating_sub(1);
        let zone = self.zones.get(index).copied();
        let Zone { first_byte, first_track, track_bytes } =
            zone.unwrap_or(Zone { first_byte: 0, first_track: 0, track_bytes: 1 });
        let offset = at.saturating_sub(first_byte);
        let track = first_track + offset / track_bytes;
        let within_ns = mul_div(offset % track_bytes, self.revolution_ns, track_bytes);
        let angle_ns = (within_ns + track.wrapping_mul(self.skew_ns)) % self.revolution_ns;
        Place { track, angle_ns, track_bytes }
    }

    /// How long the head reads or writes so many bytes in order on tracks of one length. The time between tracks is
    /// spread evenly, so that a stream runs at the rate that data sheets call sustained.
    pub(crate) fn transfer_ns(&self, track_bytes: u64, bytes: u64) -> u64 {
        mul_div(bytes, self.revolution_ns + self.skew_ns, track_bytes)
    }

    /// How many bytes pass in a time.
    pub(crate) fn transferred(&self, track_bytes: u64, span_ns: u64) -> u64 {
        mul_div(span_ns, track_bytes, self.revolution_ns + self.skew_ns)
    }

    /// How long until an angle comes under the head.
    pub(crate) const fn wait_ns(&self, at_ns: u64, angle_ns: u64) -> u64 {
        let now = at_ns % self.revolution_ns;
        (angle_ns + self.revolution_ns - now) % self.revolution_ns
    }
}
