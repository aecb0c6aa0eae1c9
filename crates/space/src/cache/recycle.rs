//! Segments of a write cache that are emptied and become free.

use std::rc::Rc;

use dolmen_future_pool::pooled;

use crate::cache::block_discard::BlockDiscard;
use crate::cache::fill::SegmentFill;
use crate::cache::relog::CacheRelog;
use crate::cache::segments::{CacheIndex, Filling};
use crate::format::error::SpaceError;
use crate::row_io::flusher::Flusher;
use crate::table::space::{Cache, State};

/// Segments of a write cache that are emptied and become free.
#[derive(Clone, Copy)]
pub(crate) struct Recycling<'a> {
    cache: &'a Rc<Cache>,
}

impl<'a> Recycling<'a> {
    /// Returns the service for a write cache.
    pub(crate) fn of(cache: &'a Rc<Cache>) -> Self {
        Self { cache }
    }
}

impl Recycling<'_> {
    /// Discards rows that hold nothing any more, and frees those whose discard a flush has covered; whether any.
    #[pooled]
    pub(crate) async fn recycle(self) -> Result<bool, SpaceError> {
        CacheRelog::of(self.cache).log_abandoned().await?;
        let (mut has_freed, mut discarded) = (false, 0);
        let count = self.cache.segments.borrow().len();
        for at in 0..count {
            if discarded == DISCARDED_TOGETHER {
                break;
            }
            let found =
                self.cache.segments.borrow().get(at).map(|segment| (segment.state, Rc::clone(&segment.row)));
            let Some((state, row)) = found else { continue };
            let next = match state {
                State::Drained(since) if Flusher::of(self.cache.shared()).has_covered(since) => {
                    if self.cache.shared().is_deferred(&row) {
                        continue;
                    }
                    match BlockDiscard::of(&self.cache.space).discard_row(&row).await {
                        Ok(0) => State::Free,
                        Ok(_) => {
                            discarded += 1;
                            State::Discarded(Flusher::of(self.cache.shared()).flush_point())
                        }
                        // Its disks are away: it waits for them.
                        Err(SpaceError::Unreadable { .. }) => continue,
                        Err(error) => return Err(error),
                    }
                }
                State::Discarded(since) if Flusher::of(self.cache.shared()).has_covered(since) => State::Free,
                State::Free
                | State::Open
                | State::Full
                | State::Drained(_)
                | State::Discarded(_)
                | State::Leaving => continue,
            };
            if let Some(segment) = self.cache.segments.borrow_mut().get_mut(at) {
                if next == State::Free {
                    has_freed = true;
                    segment.filled = 0;
                    segment.contents.clear();
                }
                segment.state = next;
            }
        }
        if has_freed {
            self.cache.stuck.borrow_mut().take();
            self.cache.notify.notify_all();
        }
        Ok(has_freed)
    }

    /// Gets room for the parity of one record ready, if there is none: rows that hold nothing any more wait for flushes. Whether
    /// any row was freed.
    pub(crate) async fn make_ready(self) -> Result<bool, SpaceError> {
        let mut has_freed = self.recycle().await?;
        if !SegmentFill::of(self.cache).has_room_for_parity() {
            // What is left of the row is too little for anybody; closed, it may be one that holds nothing any more.
            SegmentFill::of(self.cache).close(Filling::Parity);
        }
        for _ in 0..FLUSHES_TO_FREE {
            if SegmentFill::of(self.cache).has_room_for_parity()
                || !CacheIndex::of(self.cache).has_recyclable()
            {
                break;
            }
            Flusher::of(self.cache.shared()).force_flush().await?;
            has_freed |= self.recycle().await?;
        }
        Ok(has_freed)
    }
}

/// Rows that are discarded in one turn, at most: a checkpoint waits for that, and each takes some of the log.
pub(crate) const DISCARDED_TOGETHER: usize = 16;

/// Flushes until a row that holds nothing any more can be filled: one covers that, another its discard.
pub(crate) const FLUSHES_TO_FREE: usize = 2;
