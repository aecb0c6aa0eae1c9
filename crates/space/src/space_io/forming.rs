//! Whole stripes that form from requests under way together (docs/design/0004, *Forming*).
//!
//! A part of a stripe that was never written waits for the rest, as long as somebody is under way who may bring it, and a
//! millisecond at most. Who completes a stripe writes it for all; who waited in vain goes on alone.
//!
//! Invariant: who waits holds nothing but its content: no lock, no room, no ticket.
//!
//! Left to others: writing whole stripes (`full_stripe`), and everything that is none (`write`).

use std::rc::Rc;
use std::time::Duration;

use dolmen_block_io::within;
use dolmen_buffer::Shared as Bytes_;
use dolmen_future_pool::pooled;
use dolmen_units::BLOCK_BYTES;

use crate::format::error::SpaceError;
use crate::layout::Unit;
use crate::layout::shape::stripe_at;
use crate::relocation::allocator::Allocator;
use crate::relocation::shadow_rows::ShadowClaims;
use crate::resources::forming::{Outcome, PARTS_MAX, SharedOutcome, Teller};
use crate::row_io::flusher::Flusher;
use crate::space_io::stripes_at_once::StripesAtOnce;
use crate::table::space::SpaceRows;

/// How long a part waits, at most.
const WAIT_MAX: Duration = Duration::from_millis(1);
/// Stripes that form from requests under way together.
#[derive(Clone, Copy)]
pub(crate) struct StripeForming<'a> {
    space: &'a SpaceRows,
}

impl<'a> StripeForming<'a> {
    /// Returns the service for a space.
    pub(crate) fn of(space: &'a SpaceRows) -> Self {
        Self { space }
    }
}

impl StripeForming<'_> {
    /// Writes a part of a fresh stripe with the others that are under way; whether it did. In a row of which single stripes go to and
    /// fro, only a stream has others to wait for. Called without any lock.
    #[pooled]
    pub(crate) async fn form(
        self,
        index: u64,
        from: u64,
        content: &Bytes_,
        is_of_stream: bool,
    ) -> Result<bool, SpaceError> {
        let row = Allocator::of(self.space).row_for_write(index).await?;
        let (start, length) = stripe_at(&row.shape, from);
        let offset = usize::try_from(from - start).unwrap_or(usize::MAX);
        let is_aligned =
            from.is_multiple_of(BLOCK_BYTES) && (content.len() as u64).is_multiple_of(BLOCK_BYTES);
        let is_part = offset + content.len() <= length && content.len() * PARTS_MAX >= length;
        let is_alone = self.space.forming.requests.get() < 2;
        let has_no_others = !is_of_stream && self.space.shadows.alternates(&row);
        if is_alone || !is_aligned || !is_part || has_no_others {
            return Ok(false);
        }
        if row.shape.unit() == Unit::Block
            || ShadowClaims::of(self.space).location_of_new(&row, start).await?.is_none()
        {
            return Ok(false);
        }
        match self.space.forming.add((index, start), length, (offset, content)) {
            None => Ok(false),
            Some(Ok(stripe)) => {
                let teller = Teller(stripe.reported);
                let written = StripesAtOnce::of(self.space).write_stripes(index, start, &stripe.pieces).await;
                teller.0.report(match &written {
                    Ok(true) => Outcome::Written(Ok(())),
                    Ok(false) => Outcome::GoOnAlone,
                    Err(error) => Outcome::Written(Err(error.clone())),
                });
                written
            }
            Some(Err(reported)) => match self.wait_for_rest(&reported).await {
                Outcome::Written(written) => written.map(|()| true),
                Outcome::GoOnAlone => Ok(false),
            },
        }
    }

    /// What became of a stripe of which others bring the rest, if they do in time.
    async fn wait_for_rest(self, reported: &Rc<SharedOutcome>) -> Outcome {
        let _resting = self.space.forming.pause();
        let clock = self.space.shared.pool.seams().clock.as_ref();
        let answer = || reported.notify.wait_for(|| reported.outcome.borrow().clone());
        let in_time = || within(clock, clock.now() + WAIT_MAX, answer());
        let mut outcome = in_time().await;
        // Nobody ends who waits until he may write, so whoever brings the rest may not have come yet.
        if outcome.is_none()
            && self.space.forming.held_up.get() > 0
            && Flusher::of(&self.space.shared).gate().await.is_ok()
        {
            outcome = in_time().await;
        }
        if let Some(outcome) = outcome {
            return outcome;
        }
        self.space.forming.abandon(reported);
        answer().await
    }
}
