//! The trash: spaces that were deleted and can be restored, and those that cannot and whose rows are freed one lot after another
//! (docs/design/0018).
//!
//! | the record of the space | nobody uses it | can be restored | what an opening does |
//! |---|---|---|---|
//! | whole | | | serves it |
//! | in the trash | yes | yes | leaves it there |
//! | unfinished, *condemned* here | yes | no | leaves it to the next purge, which goes on behind the opening |
//!
//! Invariants:
//! - A space is condemned by one durable change of the map before its first row is freed. No record goes back from there.
//! - Rows of a space in the trash are rows like all others for whoever repairs, moves, verifies or destages: what is restored
//!   has its redundancy.
//! - A purge holds no lock and no turn between two lots, where it may be held or stopped.
//! - When a space came into the trash decides nothing here.

use std::rc::Rc;

use dolmen_future_pool::pooled;
use dolmen_mutation::mutation;
use dolmen_pool::{Purpose, keys};
use dolmen_units::{Name, SpaceId};

use crate::format::error::SpaceError;
use crate::format::ids::is_hidden;
use crate::format::spec::Standing;
use crate::policy::attributes::delete_attributes;
use crate::policy::handles::{Caches, Trash};
use crate::policy::reserve::reserve_of;
use crate::relocation::allocator::Allocator;
use crate::relocation::exchange::Exchanges;
use crate::resources::progress::Progress;
use crate::table::drain_settings::settings_of;
use crate::table::space::SpaceRows;

/// Rows of a lot: a purge is held and stopped between two of them.
const LOT: usize = 256;

impl Trash<'_> {
    /// All spaces whose content counts, by id: those that may be used, and those in the trash.
    pub(crate) fn kept(self) -> Vec<Rc<SpaceRows>> {
        self.spaces.made_by_people().into_iter().filter(|space| !space.freed.get()).collect()
    }

    /// The space with this id, if it is one of [`kept`](Self::kept). Takes no memory.
    pub(crate) fn get_kept(self, id: SpaceId) -> Option<Rc<SpaceRows>> {
        self.spaces.spaces.borrow().get(&id).filter(|space| !is_hidden(id) && !space.freed.get()).cloned()
    }

    /// The spaces in the trash, by id. Their names may be those of others, also of each other.
    pub(crate) fn trash(self) -> Vec<Rc<SpaceRows>> {
        self.kept().into_iter().filter(|space| space.trashed.get().is_some()).collect()
    }

    /// Spaces that are deleted for good and have rows still, by id: a [`purge`](Self::purge) frees them.
    pub(crate) fn condemned(self) -> Vec<Rc<SpaceRows>> {
        self.spaces.made_by_people().into_iter().filter(|space| space.condemned.get()).collect()
    }

    /// All that was deleted and takes room, by id: what is in the trash, condemned, or on its way from there, which
    /// neither [`trash`](Self::trash) nor [`condemned`](Self::condemned) has.
    pub(crate) fn discarded(self) -> Vec<Rc<SpaceRows>> {
        let is_discarded = |space: &Rc<SpaceRows>| space.freed.get() || space.trashed.get().is_some();
        self.spaces.made_by_people().into_iter().filter(is_discarded).collect()
    }

    /// Moves a space into the trash at `now_s`, in seconds since 1970: it keeps all that it has, its name is free, and nobody may
    /// use it before it is restored. One that is there stays there.
    ///
    /// # Errors
    /// [`SpaceError`]; the space is as it was then.
    #[pooled]
    pub async fn move_to_trash(self, space: &Rc<SpaceRows>, now_s: u64) -> Result<(), SpaceError> {
        self.spaces.pool().log().check_writable()?;
        // A conversion ends its lot, and stands from then on.
        let _conversion_shadows = space.conversion_mutex.take().await;
        let _exclusive = space.spec_mutex.take().await;
        if space.trashed.get().is_some() {
            return Ok(());
        }
        space.check_stays()?;
        // From here on nobody begins anything with it; claims that have begun end before it is in the trash.
        space.trashed.set(Some(now_s));
        let moved = async {
            Allocator::of(space).claims_end().await;
            space.shadows.claims_end().await;
            let mut change = self.spaces.pool().change(Purpose::Release).await;
            if space.freed.get() {
                return Err(SpaceError::Deleted { name: space.name() });
            }
            change
                .put(keys::space(space.id()), space.encode(&space.spec(), Standing::Trashed { at_s: now_s }));
            Ok(change.commit().await?)
        };
        let moved = moved.await;
        if moved.is_err() {
            space.trashed.set(None);
        }
        self.spaces.note_minimums();
        moved
    }

    /// Takes a space out of the trash, as it was, or under another name.
    ///
    /// # Errors
    /// [`SpaceError::NameTaken`]; [`SpaceError::NotTrashed`] or [`SpaceError::Deleted`]; or what the pool says.
    #[pooled]
    pub async fn restore(self, space: &Rc<SpaceRows>, name: Option<Name>) -> Result<(), SpaceError> {
        self.spaces.pool().log().check_writable()?;
        let _exclusive = space.spec_mutex.take().await;
        let mut spec = space.spec();
        spec.name = name.unwrap_or(spec.name);
        self.check_restore(space, &spec.name)?;
        let mut change = self.spaces.pool().change(Purpose::Release).await;
        // Somebody may have condemned it, or taken the name, while this waited for its turn.
        self.check_restore(space, &spec.name)?;
        change.put(keys::space(space.id()), space.encode(&spec, Standing::Whole));
        change.commit().await?;
        self.spaces.shared.note_name(space.id(), spec.name.clone());
        *space.spec.borrow_mut() = spec;
        space.trashed.set(None);
        self.spaces.note_minimums();
        Ok(())
    }

    /// Checks whether a space could be taken out of the trash under a name, and changes nothing.
    ///
    /// # Errors
    /// The reason why not.
    pub fn check_restore(self, space: &SpaceRows, name: &Name) -> Result<(), SpaceError> {
        if space.freed.get() {
            return Err(SpaceError::Deleted { name: space.name() });
        }
        if space.trashed.get().is_none() {
            return Err(SpaceError::NotTrashed { name: space.name() });
        }
        match self.spaces.find(name.as_str()) {
            Ok(_) => Err(SpaceError::NameTaken { name: name.clone() }),
            Err(_) => Ok(()),
        }
    }

    /// Deletes a space for good, with one change of the map: nobody finds it from then on, also behind a crash, and a
    /// [`purge`](Self::purge) gives its rows back.
    ///
    /// # Errors
    /// [`SpaceError`]; the space is as it was then.
    #[pooled]
    pub async fn condemn(self, space: &Rc<SpaceRows>) -> Result<(), SpaceError> {
        // Before anything else: a space that stays must stay usable.
        self.spaces.pool().log().check_writable()?;
        if space.condemned.get() {
            return Ok(());
        }
        let was_deleting = space.freed.replace(true);
        let condemned = self.put_condemned(space).await;
        if condemned.is_err() && !space.condemned.get() {
            space.freed.set(was_deleting);
        }
        condemned
    }

    #[pooled]
    async fn put_condemned(self, space: &Rc<SpaceRows>) -> Result<(), SpaceError> {
        Allocator::of(space).claims_end().await;
        space.shadows.claims_end().await;
        // Whoever makes conversion shadow rows sees that it goes, and leaves none behind.
        let _conversion_shadows = space.conversion_mutex.take().await;
        let _exclusive = space.spec_mutex.take().await;
        if space.condemned.get() {
            return Ok(());
        }
        // Somebody else may have tried it in vain meanwhile.
        space.freed.set(true);
        let mut change = self.spaces.pool().change(Purpose::Release).await;
        change.put(keys::space(space.id()), space.encode(&space.spec(), Standing::Unfinished));
        if let Some(shadows) = space.shadows.space() {
            change.put(keys::space(shadows.id()), shadows.encode(&shadows.spec(), Standing::Unfinished));
        }
        change.commit().await?;
        space.note_condemned();
        self.spaces.note_minimums();
        Ok(())
    }

    /// Frees the rows of all spaces that are condemned, also of those that are while it works, and the write caches that only they
    /// needed. Held and stopped between lots of rows; killed or stopped, it goes on when called again. Whether nothing is left.
    ///
    /// # Errors
    /// [`SpaceError`]; what was freed stays free.
    #[pooled]
    pub async fn purge(self, progress: &Progress) -> Result<bool, SpaceError> {
        loop {
            let condemned = self.condemned();
            let left: u64 = condemned.iter().map(|space| space.row_count.get()).sum();
            progress.total.set(progress.done.get() + left);
            let Some(space) = condemned.first() else { return Ok(true) };
            if !self.free_condemned(space, progress).await? {
                return Ok(false);
            }
            for (_, redundancy) in space.write_caches() {
                Caches::of(self.spaces).drop_cache(redundancy).await?;
            }
        }
    }

    /// Frees the rows of a condemned space, and strikes it when none is left; whether it came to that.
    #[pooled]
    pub(crate) async fn free_condemned(
        self,
        space: &Rc<SpaceRows>,
        progress: &Progress,
    ) -> Result<bool, SpaceError> {
        let mut from = 0;
        loop {
            if !progress.may_go_on(&self.spaces.shared.closing).await {
                return Ok(false);
            }
            // Of two who are at it, one frees a lot at a time.
            let _exclusive = space.spec_mutex.take().await;
            if !self.spaces.spaces.borrow().contains_key(&space.id()) {
                return Ok(true);
            }
            let found = self.spaces.pool().map().scan(keys::places(space.id(), from..u64::MAX), LOT).await?;
            let rows: Vec<u64> = found.iter().map(|(key, _)| keys::parts(key).2).collect();
            match rows.last() {
                Some(last) => {
                    Exchanges::of(space).free_rows(&rows).await?;
                    progress.done.set(progress.done.get() + rows.len() as u64);
                    from = last + 1;
                }
                None if from == 0 || mutation!(RenewedSkipped) => {
                    self.remove_condemned(space).await?;
                    return Ok(true);
                }
                // A row may have been moved to a place before the others while these were freed.
                None => from = 0,
            }
        }
    }

    /// Takes a space that has no rows any more off the map.
    async fn remove_condemned(self, space: &Rc<SpaceRows>) -> Result<(), SpaceError> {
        let shadows = space.shadows.space();
        let mut change = self.spaces.pool().change(Purpose::Release).await;
        change.delete(keys::space(space.id()));
        change.delete(keys::row_count(space.id()));
        settings_of(space.id()).into_iter().for_each(|key| change.delete(key));
        change.delete(reserve_of(space.id()));
        delete_attributes(&mut change, self.spaces.pool().map(), space.id()).await?;
        if let Some(shadows) = &shadows {
            change.delete(keys::space(shadows.id()));
            change.delete(keys::row_count(shadows.id()));
        }
        change.commit().await?;
        self.spaces.spaces.borrow_mut().remove(&space.id());
        shadows.iter().for_each(|shadows| drop(self.spaces.spaces.borrow_mut().remove(&shadows.id())));
        Ok(())
    }
}
