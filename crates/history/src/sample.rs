//! Samples one after another, as they wait in a file for the next save: what is cut short at the end is none.
//!
//! A sample is its length and its CRC-32C, of 4 bytes each, then the time, the number of points, and each point with its object.

use dolmen_checksum::crc32c;

use crate::codec::{Reader, Room, put, put_object, put_point};
use crate::recorder::Points;

/// Points of one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sample {
    /// The time that [`Recorder::note`](crate::Recorder::note) gets, in seconds since 1970.
    pub at_s: u64,
    /// The points.
    pub points: Points,
}

/// Returns a sample as bytes.
#[must_use]
pub fn write_sample(at_s: u64, points: &Points) -> Vec<u8> {
    let mut body = Vec::new();
    body.extend(at_s.to_le_bytes());
    put(&mut body, points.len() as u64);
    for (object, point) in points {
        put_object(&mut body, *object);
        put_point(&mut body, point, Room::default());
    }
    let mut bytes = Vec::with_capacity(body.len() + 8);
    bytes.extend(u32::try_from(body.len()).unwrap_or(u32::MAX).to_le_bytes());
    bytes.extend(crc32c(&body).to_le_bytes());
    bytes.extend(body);
    bytes
}

fn sample_of(body: &[u8]) -> Option<Sample> {
    let mut reader = Reader(body);
    let at_s = reader.u64()?;
    let (count, mut points) = (reader.number()?, Points::new());
    for _ in 0..count {
        points.insert(reader.object()?, reader.point(Room::default())?);
    }
    reader.0.is_empty().then_some(Sample { at_s, points })
}

/// Returns the samples at the front of bytes, up to the first that is damaged or cut short.
#[must_use]
pub fn read_samples(bytes: &[u8]) -> Vec<Sample> {
    let (mut reader, mut samples) = (Reader(bytes), Vec::new());
    while let Some((length, checksum)) = reader.u32().zip(reader.u32()) {
        let body = usize::try_from(length).ok().and_then(|length| reader.take(length));
        let sample = body.filter(|body| crc32c(body) == checksum).and_then(sample_of);
        let Some(sample) = sample else { break };
        samples.push(sample);
    }
    samples
}
