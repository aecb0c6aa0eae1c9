//! The host's own record of which epoch of each pool is in force.
//!
//! One small file for each pool, replaced whole and synced with its folder before the change counts. A file that cannot
//! be read is an error and never "no record": a pool must not be taken for a stranger's because of a bad sector.

use std::path::PathBuf;
use std::rc::Rc;

use dolmen_checksum::crc32c;
use dolmen_pool::{Arbiter, ArbiterError, LocalFuture};
use dolmen_units::{Epoch, EpochId, HostId, PoolId};

use crate::files::{read_if_any, remove_durably, write_durably};
use crate::scribe::Scribe;

const MAGIC: &str = "dolmen-epoch-1";

/// The records of this host.
#[derive(Debug)]
pub(crate) struct FileArbiter {
    host: HostId,
    folder: PathBuf,
    scribe: Rc<Scribe>,
}

impl FileArbiter {
    pub(crate) fn new(host: HostId, folder: PathBuf, scribe: Rc<Scribe>) -> Self {
        Self { host, folder, scribe }
    }

    fn path(&self, pool: PoolId) -> PathBuf {
        self.folder.join(pool.to_string())
    }
}

fn encode(pool: PoolId, epoch: EpochId) -> String {
    let body = format!("{MAGIC} {pool} {} {:016x}", epoch.number.0, epoch.nonce);
    format!("{body} {:08x}\n", crc32c(body.as_bytes()))
}

fn decode(pool: PoolId, text: &str) -> Option<EpochId> {
    let (body, sum) = text.strip_suffix('\n')?.rsplit_once(' ')?;
    if u32::from_str_radix(sum, 16).ok()? != crc32c(body.as_bytes()) {
        return None;
    }
    let mut parts = body.split(' ');
    let named = parts.next()? == MAGIC && parts.next()?.parse::<PoolId>().ok()? == pool;
    let number = Epoch(parts.next()?.parse().ok()?);
    let nonce = u64::from_str_radix(parts.next()?, 16).ok()?;
    (named && parts.next().is_none()).then_some(EpochId { number, nonce })
}

impl Arbiter for FileArbiter {
    fn host(&self) -> HostId {
        self.host
    }

    fn named(&self, pool: PoolId) -> LocalFuture<'_, Result<Option<EpochId>, ArbiterError>> {
        let path = self.path(pool);
        let failed = move |cause: String| ArbiterError { doing: "reading", pool, cause };
        Box::pin(async move {
            let shown = path.display().to_string();
            let text = self.scribe.run(move || read_if_any(&path)).await;
            let text = text.map_err(|error| failed(format!("{shown}: {error}")))?;
            let Some(text) = text else { return Ok(None) };
            decode(pool, &text).map(Some).ok_or_else(|| failed(format!("{shown} is damaged")))
        })
    }

    fn record(&self, pool: PoolId, epoch: EpochId) -> LocalFuture<'_, Result<(), ArbiterError>> {
        let path = self.path(pool);
        Box::pin(async move {
            let written = self.scribe.run(move || write_durably(&path, encode(pool, epoch).as_bytes())).await;
            written.map_err(|error| ArbiterError { doing: "writing", pool, cause: error.to_string() })
        })
    }

    fn withdraw(&self, pool: PoolId) -> LocalFuture<'_, Result<(), ArbiterError>> {
        let path = self.path(pool);
        Box::pin(async move {
            let removed = self.scribe.run(move || remove_durably(&path)).await;
            removed.map_err(|error| ArbiterError { doing: "removing", pool, cause: error.to_string() })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_reads_back_and_any_changed_byte_is_noticed() {
        let pool = PoolId([7; 16]);
        let epoch = EpochId { number: Epoch(12), nonce: 0xfeed };
        let text = encode(pool, epoch);
        assert_eq!(decode(pool, &text), Some(epoch));
        assert_eq!(decode(PoolId([8; 16]), &text), None);
        for at in 0..text.len() {
            let mut bytes = text.clone().into_bytes();
            bytes[at] ^= 1;
            let Ok(changed) = String::from_utf8(bytes) else { continue };
            assert_eq!(decode(pool, &changed), None, "byte {at}");
        }
        assert_eq!(decode(pool, &text[..text.len() - 2]), None);
    }
}
