//! Small writes to the write cache that come together go to its disks as one (docs/design/0004, *Gathering*).
//!
//! Each of them has its place before it waits here, and follows the one before it in the same row of the cache. So what comes
//! while one group is being written is one piece again, with one record that says whose each part is.

use std::rc::Rc;

use dolmen_buffer::Shared as Bytes_;
use dolmen_future_pool::pooled;
use smallvec::SmallVec;

use crate::cache::segment_io::SegmentIo;
use crate::format::error::SpaceError;
use crate::format::record::Mapping;
use crate::layout::BLOCK;
use crate::row_io::parts::RecordExtra;
use crate::table::gathering::{GROUP_BYTES_MAX, Piece, SharedOutcome, Wrote};
use crate::table::space::Cache;

/// Small cached writes that share one record.
#[derive(Clone, Copy)]
pub(crate) struct Gather<'a> {
    cache: &'a Rc<Cache>,
}

impl<'a> Gather<'a> {
    /// Returns the service for a write cache.
    pub(crate) fn of(cache: &'a Rc<Cache>) -> Self {
        Self { cache }
    }
}

impl Gather<'_> {
    /// Writes blocks to their place in the cache, with the record that says whose they are. The caller has taken the place in
    /// the same step: pieces come in the order of their places.
    #[pooled]
    pub(crate) async fn write_mapped(
        self,
        (at, block): (usize, u32),
        data: Bytes_,
        mapping: Mapping,
    ) -> Result<Wrote, SpaceError> {
        if data.len() >= GROUP_BYTES_MAX {
            return SegmentIo::of(self.cache)
                .write((at, block), &data, RecordExtra::Mappings(&[mapping]))
                .await;
        }
        let reported = Rc::new(SharedOutcome::default());
        let piece = Piece { at, block, data, mapping, reported: Rc::clone(&reported) };
        self.cache.gathering.waiting.borrow_mut().push_back(piece);
        if !self.cache.gathering.is_running.replace(true) {
            let this = Rc::clone(self.cache);
            let groups = async move {
                loop {
                    let group = this.gathering.next();
                    if group.is_empty() {
                        break;
                    }
                    Gather::of(&this).write_group(&group).await;
                }
                this.gathering.is_running.set(false);
            };
            self.cache.shared().pool.seams().spawner.spawn("gather", Box::pin(groups));
        }
        reported.notify.wait_for(|| reported.outcome.borrow_mut().take()).await
    }

    #[pooled]
    async fn write_group(self, group: &[Piece]) {
        let bytes = group.iter().map(|piece| piece.data.len()).sum();
        let memory = match group {
            [_] => None,
            _ => self.cache.shared().pool.seams().metadata.try_take(bytes),
        };
        let (Some(first), Some(mut memory)) = (group.first(), memory) else {
            // Whoever is alone needs no copy; and where there is no memory, nobody waits for it.
            for piece in group {
                let extra = RecordExtra::Mappings(std::slice::from_ref(&piece.mapping));
                piece.reported.report(
                    SegmentIo::of(self.cache).write((piece.at, piece.block), &piece.data, extra).await,
                );
            }
            return;
        };
        let mut rest: &mut [u8] = &mut memory;
        for piece in group {
            let (to, after) = rest.split_at_mut(piece.data.len());
            to.copy_from_slice(&piece.data);
            rest = after;
        }
        let mappings: SmallVec<[Mapping; 16]> = group.iter().map(|piece| piece.mapping).collect();
        let place = (first.at, first.block);
        let wrote =
            SegmentIo::of(self.cache).write(place, &memory.freeze(), RecordExtra::Mappings(&mappings)).await;
        let mut done = 0;
        for piece in group {
            let count = piece.data.len() / BLOCK;
            let part = wrote.as_ref().map_err(SpaceError::clone).map(|all| Wrote {
                lsn: all.lsn,
                states: all.states.iter().skip(done).take(count).copied().collect(),
            });
            piece.reported.report(part);
            done += count;
        }
    }
}
