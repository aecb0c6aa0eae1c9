//! Room that is reserved for a thin space: rows that are claimed and hold nothing, and take the place of the one that is written
//! next (docs/design/0024).
//!
//! Invariants:
//! - A thin space has as many rows as its reserve takes, or more. One that it gives back below that stays, and holds nothing.
//! - A row that takes another place is another row: its number is new, and nothing that was said of it before counts.
//!
//! Left to others: when rows hold nothing (`discard`); what is asked of all spaces when a pool is opened (`finish`).

use std::rc::Rc;

use dolmen_future_pool::pooled;
use dolmen_pool::{Pool, PoolError, Purpose, keys};
use dolmen_units::{Bytes, SpaceId};

use crate::format::error::SpaceError;
use crate::format::spec::{Provisioning, SpaceSpec};
use crate::policy::handles::Changes;
use crate::relocation::allocator::Allocator;
use crate::relocation::blanks::Blanks;
use crate::relocation::unused_rows::UnusedRows;
use crate::resolution::decided_rows::DecidedRows;
use crate::row_io::flusher::Flusher;
use crate::table::space::SpaceRows;

/// The number of the setting, in its key of the map.
const RESERVE: u64 = 3;

/// Reserve of a space: fills and trims it.
#[derive(Clone, Copy)]
pub(crate) struct Reserves<'a> {
    space: &'a SpaceRows,
}

impl<'a> Reserves<'a> {
    /// Returns the service for a space.
    pub(crate) fn of(space: &'a SpaceRows) -> Self {
        Self { space }
    }
}

impl Reserves<'_> {
    /// Bytes of its rows that its reserve takes and that are not claimed: zero, but while it is filled, or where room for it was
    /// lost.
    #[must_use]
    pub(crate) fn lacks_of_reserve(self) -> Bytes {
        match self.space.is_thin() {
            true => Bytes(
                Blanks::of(self.space).reserve_rows().saturating_sub(self.space.row_count.get())
                    * self.space.row_bytes(),
            ),
            false => Bytes::ZERO,
        }
    }

    /// What can be written of what is reserved, as far as is known without reading tables.
    #[must_use]
    pub(crate) fn blank_bytes(self) -> Bytes {
        let rows = self.space.rows.borrow();
        // One that is dropped from memory is doubtful from then on; one that never had tables is not dropped.
        let is_written = |index: &&u64| match rows.get(index) {
            Some(Some(row)) => row.is_formatted() || row.holds_anything_in_memory(),
            _ => false,
        };
        let blanks = self.space.reserve.blanks.borrow().iter().filter(|index| !is_written(index)).count();
        Bytes(blanks as u64 * self.space.row_bytes())
    }

    /// Reads what is on record. What an unknown version wrote there is none of ours.
    pub(crate) async fn load_reserve(self, pool: &Pool) -> Result<(), SpaceError> {
        let value = pool.map().get(&reserve_of(self.space.id())).await?;
        let bytes = value.and_then(|value| value.try_into().ok()).map_or(0, u64::from_le_bytes);
        self.space.reserve.bytes.set(Bytes(bytes));
        Ok(())
    }

    /// Claims rows that hold nothing until there are as many as its reserve takes.
    ///
    /// # Errors
    /// [`PoolError::NoSpace`] among others; what was claimed stays.
    pub(crate) async fn fill_reserve(self) -> Result<(), SpaceError> {
        if self.lacks_of_reserve() == Bytes::ZERO {
            return Ok(());
        }
        Blanks::of(self.space).look_for_unformatted().await?;
        let mut index = 0;
        while self.lacks_of_reserve() > Bytes::ZERO {
            Flusher::of(&self.space.shared).gate().await?;
            if self.space.in_doubt_row(index).await?.is_none()
                && Allocator::of(self.space).claim_blank(index).await?
            {
                self.space.reserve.note(index);
            }
            // Clients may have taken blanks from in front of it to where it comes later: then it goes round once more.
            index = (index + 1) % self.space.size().0.div_ceil(self.space.row_bytes());
        }
        Ok(())
    }

    /// Gives back rows that hold nothing, as many as its reserve does not take.
    #[pooled]
    pub(crate) async fn trim_reserve(self) -> Result<(), SpaceError> {
        Blanks::of(self.space).look_for_unformatted().await?;
        let mut end = u64::MAX;
        while self.space.is_thin() && self.space.row_count.get() > Blanks::of(self.space).reserve_rows() {
            let Some(blank) = self.space.reserve.last_before(end) else { break };
            end = blank;
            match DecidedRows::of(self.space).row(blank).await {
                // One that is kept after all stays known.
                Ok(Some(row)) => UnusedRows::of(self.space).free_if_known_unused(&row).await?,
                Ok(None) => self.space.reserve.forget(blank),
                // As long as nobody can tell what it holds, it stays.
                Err(SpaceError::Unreadable { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

impl Changes<'_> {
    /// Whether so much could be reserved for a space with what is free now.
    ///
    /// # Errors
    /// [`SpaceError::Reserve`] tells why not.
    pub fn check_reserve(self, space: &SpaceRows, bytes: Bytes) -> Result<(), SpaceError> {
        let spec = space.spec();
        let refused = |most: Bytes, why| SpaceError::Reserve { name: space.name(), wanted: bytes, most, why };
        if bytes == Bytes::ZERO {
            return Ok(());
        }
        if spec.provisioning == Provisioning::Fixed {
            return Err(refused(Bytes::ZERO, "it is fixed, and has room for all of its blocks"));
        }
        if bytes > spec.size {
            return Err(refused(spec.size, "it is no larger"));
        }
        let has = space.row_count.get();
        let needs = bytes.0.div_ceil(space.row_bytes());
        if needs <= has {
            return Ok(());
        }
        // Rows stay as long as they were when the space was made.
        let laid = SpaceSpec { row: Some(Bytes(space.row_bytes())), ..spec.clone() };
        let most = has + self.rows_that_fit(&laid)?;
        if needs <= most {
            return Ok(());
        }
        let most = Bytes((most * space.row_bytes()).min(spec.size.0));
        Err(refused(most, "nothing more is free for it"))
    }

    /// Reserves room for a thin space: so much of it can be written, however full the pool is. Killed on the way, the rest is
    /// claimed when the pool is opened.
    ///
    /// # Errors
    /// [`SpaceError::Reserve`], or what the pool says; the reserve is what it was then.
    #[pooled]
    pub async fn set_reserve(self, space: &Rc<SpaceRows>, bytes: Bytes) -> Result<(), SpaceError> {
        let _exclusive = space.spec_mutex.take().await;
        space.check_stays()?;
        self.check_reserve(space, bytes)?;
        let before = space.reserve();
        self.put_reserve(space, bytes).await?;
        if let Err(error) = Reserves::of(space).fill_reserve().await {
            self.put_reserve(space, before).await?;
            Reserves::of(space).trim_reserve().await?;
            return Err(match error {
                SpaceError::Pool(PoolError::NoSpace { .. }) => SpaceError::Reserve {
                    name: space.name(),
                    wanted: bytes,
                    most: space.claimed(),
                    why: "something else took what was free for it",
                },
                error => error,
            });
        }
        Reserves::of(space).trim_reserve().await
    }

    async fn put_reserve(self, space: &SpaceRows, bytes: Bytes) -> Result<(), SpaceError> {
        let key = reserve_of(space.id());
        let _exclusive = space.reserve.mutex.take().await;
        let mut change = self.spaces.pool().change(Purpose::Release).await;
        match bytes {
            Bytes::ZERO => change.delete(key),
            bytes => change.put(key, bytes.0.to_le_bytes().to_vec()),
        }
        change.commit().await?;
        space.reserve.bytes.set(bytes);
        Ok(())
    }
}

/// The key of what is reserved for a space.
pub(crate) fn reserve_of(space: SpaceId) -> dolmen_store::Key {
    keys::setting(space, RESERVE)
}

/// What is reserved and finds no room now is told as lacking, and keeps nothing else from being done.
pub(crate) fn unless_full(error: SpaceError) -> Result<(), SpaceError> {
    match error {
        SpaceError::Pool(
            PoolError::NoSpace { .. } | PoolError::MetadataFull { .. } | PoolError::Fragmented { .. },
        )
        | SpaceError::NoSpaceBelow { .. } => Ok(()),
        error => Err(error),
    }
}
