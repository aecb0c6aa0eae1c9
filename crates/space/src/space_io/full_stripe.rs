//! Whole stripes go in place at once, data and parity, with one record of both, where nothing was (docs/design/0004, *Fresh stripes in
//! place*): in the row, or in its shadow row.
//!
//! Invariants:
//! - Nothing is written in place with parity but whole stripes of which a flush has covered that no block was ever written there.
//! - Memory for parity is taken before any lock, and nobody waits for it who holds some.
//!
//! Left to others: what a crash leaves of it (`in_flight`); everything else that is written (`write`, `cache`).

use std::cell::Cell;

use dolmen_block_io::sync::join_all;
use dolmen_buffer::Shared as Bytes_;
use dolmen_future_pool::pooled;
use smallvec::SmallVec;

use crate::cache::write_cache::CACHED_BYTES_MAX;
use crate::format::error::SpaceError;
use crate::layout::Unit;
use crate::layout::shape::{interleave_bytes, stripe_at};
use crate::relocation::allocator::Allocator;
use crate::relocation::shadow_rows::{Followed, ShadowClaims};
use crate::resources::forming::{Active, Pieces};
use crate::row_io::flusher::Flusher;
use crate::space_io::forming::StripeForming;
use crate::space_io::row_write::RowWriter;
use crate::space_io::stripes_at_once::StripesAtOnce;
use crate::table::space::SpaceRows;

/// What a request has for one row.
struct OfRow<'a> {
    index: u64,
    /// Its first byte in the row.
    within: u64,
    data: Bytes_,
    /// Under way from here on, for those who wait for the rest of a stripe, until its parts are.
    entering: Cell<Option<Active<'a>>>,
}

/// Writes of whole stripes with parity.
#[derive(Clone, Copy)]
pub(crate) struct StripeWriter<'a> {
    space: &'a SpaceRows,
}

impl<'a> StripeWriter<'a> {
    /// Returns the service for a space.
    pub(crate) fn of(space: &'a SpaceRows) -> Self {
        Self { space }
    }
}

impl StripeWriter<'_> {
    /// Writes `data` from byte `at` on, cut so that whole stripes go in place where they seem fresh. The caller has checked the
    /// range.
    #[pooled]
    pub(crate) async fn store_with_parity(self, at: u64, data: &Bytes_) -> Result<(), SpaceError> {
        // Nothing is claimed for what cannot be written.
        self.space.shared.pool.log().wait_for_room().await?;
        let _request = self.space.forming.request();
        let entering = self.space.forming.begin();
        let stream = ShadowClaims::of(self.space).follow(at, data.len() as u64).await?;
        let mut of_rows: SmallVec<[OfRow<'_>; 2]> = SmallVec::new();
        let mut done = 0;
        while done < data.len() {
            let at = at + done as u64;
            let (index, within) = (at / self.space.row_bytes(), at % self.space.row_bytes());
            let room = usize::try_from(self.space.row_bytes() - within).unwrap_or(usize::MAX);
            let data = data.slice(done..done + room.min(data.len() - done));
            done += data.len();
            of_rows.push(OfRow {
                index,
                within,
                data,
                entering: Cell::new(Some(self.space.forming.begin())),
            });
        }
        drop(entering);
        let store = |of_row| self.store_in_row(of_row, stream);
        match of_rows.as_slice() {
            [one] => store(one).await,
            // Beside each other: what is of one row does not wait for the shadow row of the next.
            of_rows => join_all(of_rows.iter().map(store)).await.into_iter().collect(),
        }
    }

    /// Writes whole blocks to a row of a hidden space of conversion shadows.
    pub(crate) async fn store_in_conversion_shadow(
        self,
        index: u64,
        within: u64,
        data: Bytes_,
    ) -> Result<(), SpaceError> {
        Flusher::of(&self.space.shared).gate().await?;
        let entering = Cell::new(Some(self.space.forming.begin()));
        self.store_in_row(&OfRow { index, within, data, entering }, Followed::default()).await
    }

    #[pooled]
    async fn store_in_row(self, of_row: &OfRow<'_>, stream: Followed) -> Result<(), SpaceError> {
        let OfRow { index, within, data, entering } = of_row;
        match stream.lacks_shadows {
            Some(stream) => ShadowClaims::of(self.space).provide_shadow(*index, *within, stream).await?,
            None => ShadowClaims::of(self.space).provide_slots(*index, *within, data.len() as u64).await?,
        }
        let mut parts: SmallVec<[(u64, Bytes_); 3]> = SmallVec::new();
        let mut done = 0;
        while done < data.len() {
            let within = within + done as u64;
            let length = self.part_length(*index, within, data.len() - done).await?;
            parts.push((within, data.slice(done..done + length)));
            done += length;
        }
        let write = async |(within, part): &(u64, Bytes_)| {
            let _active = self.space.forming.begin();
            drop(entering.take());
            let done =
                StripesAtOnce::of(self.space).write_stripes(*index, *within, &Pieces::one(part)).await?
                    || StripeForming::of(self.space).form(*index, *within, part, stream.goes_on).await?;
            if done {
                return Ok(());
            }
            StripesAtOnce::of(self.space).pass_gate().await?;
            RowWriter::of(self.space).write_in_row(*index, *within, part.clone()).await
        };
        match parts.as_slice() {
            [part] => write(part).await,
            // Beside each other: who waits for the rest of its first stripe has to bring that of its last one.
            parts => join_all(parts.iter().map(write)).await.into_iter().collect(),
        }
    }

    /// How much of what is to be written from byte `within` of a row goes out as one: stripes that seem to be fresh, a part of
    /// one, or as much as the write cache takes at once.
    #[pooled]
    async fn part_length(self, index: u64, within: u64, length: usize) -> Result<usize, SpaceError> {
        let usual = length.min(CACHED_BYTES_MAX);
        let row = Allocator::of(self.space).row_for_write(index).await?;
        if row.shape.unit() == Unit::Block {
            return Ok(usual);
        }
        let (start, stripe) = stripe_at(&row.shape, within);
        let end = start + stripe as u64;
        if within > start {
            let before_end = usize::try_from(end - within).unwrap_or(usize::MAX);
            let is_cut = before_end < length
                && (ShadowClaims::of(self.space).location_of_new(&row, start).await?.is_some()
                    || ShadowClaims::of(self.space).location_of_new(&row, end).await?.is_some());
            return Ok(if is_cut { before_end } else { usual });
        }
        let whole = length / stripe;
        let stripe_location = ShadowClaims::of(self.space).location_of_new(&row, within).await?;
        if whole == 0 || (stripe_location.is_none() && row.shadow().is_none()) {
            return Ok(usual);
        }
        // What one request has under way is bounded by the memory for parity, but a stripe is not divided.
        let parity = interleave_bytes(&row.shape) * row.shape.computed_columns().len();
        let most = (CACHED_BYTES_MAX / stripe).min(CACHED_BYTES_MAX / 4 / parity).max(1);
        let mut count = 1;
        // They go out as one as far as they go to one place.
        while row.shadow().is_some() && count < whole.min(most) {
            let next =
                ShadowClaims::of(self.space).location_of_new(&row, within + (count * stripe) as u64).await?;
            if next.map(|next| next.id) != stripe_location.as_ref().map(|stripe_location| stripe_location.id)
            {
                return Ok(count * stripe);
            }
            count += 1;
        }
        Ok(whole.min(most) * stripe)
    }
}
