//! What is on a device.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use crate::protocol::{Content, Failure, FailureCode};
use crate::tool;

/// Bytes at each end of a device in which every file system and table of partitions leaves something.
const LOOKED_BYTES: u64 = 1 << 20;

/// Returns what is on a device: zeros, a file system, or something else that `blkid` knows.
pub(crate) fn content(device: &Path) -> Result<Content, Failure> {
    let failed = |error: std::io::Error| Failure {
        code: FailureCode::BadPath,
        message: format!("device {} cannot be read: {error}", device.display()),
        hint: String::new(),
    };
    let mut found = Content { is_zero: is_zero(device).map_err(failed)?, ..Content::default() };
    let probe = ["-p".as_ref(), "-o".as_ref(), "export".as_ref(), device.as_os_str()];
    let ran = tool::run("blkid", &probe)?;
    match ran.status.code() {
        Some(0) => {
            note_printed(&mut found, &ran.text);
            if found.kind.is_some() {
                return Ok(found);
            }
            Err(untold(device, "0, and names no type", &ran.text))
        }
        // It has found nothing that it knows.
        Some(2) => Ok(found),
        _ => Err(untold(device, &ran.status.to_string(), &ran.text)),
    }
}

/// Notes what `blkid -o export` printed.
fn note_printed(found: &mut Content, printed: &str) {
    for (key, value) in printed.lines().filter_map(|line| line.split_once('=')) {
        let of = match key {
            "TYPE" | "PTTYPE" => &mut found.kind,
            "UUID" => &mut found.uuid,
            "LABEL" => &mut found.label,
            _ => continue,
        };
        // Of a file system within a partition table, the file system is named first.
        of.get_or_insert_with(|| value.to_owned());
    }
}

fn untold(device: &Path, end: &str, printed: &str) -> Failure {
    let device = device.display();
    Failure {
        code: FailureCode::ForeignData,
        message: format!("what is on {device} cannot be told: blkid ended with {end}: {}", printed.trim()),
        hint: format!("`wipefs {device}` shows each signature"),
    }
}

/// Returns whether the first and the last mebibyte of a device are zeros.
fn is_zero(device: &Path) -> std::io::Result<bool> {
    let mut file = File::open(device)?;
    let end = file.seek(SeekFrom::End(0))?;
    let mut bytes = vec![0; usize::try_from(LOOKED_BYTES).unwrap_or(0)];
    for start in [0, end.saturating_sub(LOOKED_BYTES)] {
        file.seek(SeekFrom::Start(start))?;
        let length = usize::try_from((end - start).min(LOOKED_BYTES)).unwrap_or(0);
        let part = bytes.get_mut(..length).unwrap_or_default();
        file.read_exact(part)?;
        if part.iter().any(|byte| *byte != 0) {
            return Ok(false);
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scenario: `blkid` of three distributions has looked at each file system, and at a device without one.
    #[test]
    fn what_blkid_of_each_distribution_prints_is_read() {
        macro_rules! transcripts {
            ($case:literal) => {
                [
                    include_str!(concat!("../tests/transcripts/blkid-2.38.1-", $case, ".txt")),
                    include_str!(concat!("../tests/transcripts/blkid-2.41.5-", $case, ".txt")),
                    include_str!(concat!("../tests/transcripts/blkid-2.42.4-", $case, ".txt")),
                ]
            };
        }
        let cases = [
            (Some("xfs"), transcripts!("xfs")),
            (Some("btrfs"), transcripts!("btrfs")),
            (Some("ext4"), transcripts!("ext4")),
            (None, transcripts!("nothing")),
        ];
        for (kind, printed) in cases {
            for text in printed {
                let mut found = Content::default();
                note_printed(&mut found, text);
                assert_eq!((found.kind.as_deref(), found.uuid.is_some()), (kind, kind.is_some()), "{text}");
            }
        }
        let shown = untold(Path::new("/dev/x"), "0, and names no type", "AMBIVALENT=yes\n").message;
        assert!(shown.ends_with("names no type: AMBIVALENT=yes"), "{shown}");
    }
}
