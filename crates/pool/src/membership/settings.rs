//! What people set of a pool as a whole; it stands in the map.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use dolmen_future_pool::pooled;
use dolmen_units::DiskSlot;
use dolmen_units::Name;

use crate::changes::change::Changes;
use crate::error::PoolError;
use crate::keys;
use crate::members::identity::Identity;
use crate::members::role::DECLARED_LOST;
use crate::members::role::{ROLE, ROLES_MAX, decode};
use crate::members::table::Members;
use crate::metadata::map::{MetadataMap, Purpose};
use crate::room::free_space::FreeSpace;

/// The number of the setting, in its key of the map.
const REPAIR_AFTER: u64 = 1;
/// How long a disk may be absent where nobody has set that.
const REPAIR_AFTER_USUAL: Duration = Duration::from_secs(30 * 60);
/// Lost disks for which room is kept (docs/design/0023).
const KEEP_ROOM_FOR: u64 = 2;
/// Percents from which on the status reports that the pool fills up, a byte each.
const ALERT_AT: u64 = 3;
/// The most of these.
pub const ALERTS_MAX: usize = 4;
/// Those where nobody has set any.
const ALERTS_USUAL: [u8; 2] = [80, 90];
/// The most disks for which room is kept.
pub const KEEP_ROOM_FOR_MAX: u32 = 8;

/// Settings of an open pool, which stand in its map.
pub struct PoolSettings {
    pub(crate) identity: Rc<Identity>,
    pub(crate) members: Rc<Members>,
    pub(crate) map: Rc<MetadataMap>,
    pub(crate) free_space: Rc<FreeSpace>,
    pub(crate) changes: Rc<Changes>,
    /// Names of fault domains.
    pub(crate) domain_names: RefCell<BTreeMap<u32, Name>>,
}

impl PoolSettings {
    pub(crate) fn new(
        identity: &Rc<Identity>,
        members: &Rc<Members>,
        map: &Rc<MetadataMap>,
        free_space: &Rc<FreeSpace>,
        changes: &Rc<Changes>,
    ) -> Rc<Self> {
        Rc::new(Self {
            identity: Rc::clone(identity),
            members: Rc::clone(members),
            map: Rc::clone(map),
            free_space: Rc::clone(free_space),
            changes: Rc::clone(changes),
            domain_names: RefCell::default(),
        })
    }

    /// Reads, when the pool is opened, what claims have to know. A number that makes no sense is none.
    #[pooled]
    pub(crate) async fn load_settings(&self) -> Result<(), PoolError> {
        let value = self.map.get(&keys::pool_setting(KEEP_ROOM_FOR)).await?;
        let losses = value.and_then(|value| value.try_into().ok()).map_or(0, u64::from_le_bytes);
        self.free_space.keep.set(u32::try_from(losses).unwrap_or(0).min(KEEP_ROOM_FOR_MAX));
        self.load_roles().await?;
        self.load_domain_names().await
    }

    /// Reads them, when the pool is opened. One of a disk that is no member is of the past.
    #[pooled]
    pub(crate) async fn load_roles(&self) -> Result<(), PoolError> {
        let found = self.map.scan(keys::member_settings(), ROLES_MAX).await?;
        let disks = self.members.disks();
        for (key, value) in found {
            let (_, slot, which) = keys::parts(&key);
            let slot = u16::try_from(slot).map(DiskSlot).ok();
            let Some(disk) = disks.iter().find(|disk| Some(disk.slot()) == slot) else { continue };
            if which == ROLE
                && let Some(role) = decode(disk.id(), &value)
            {
                self.members.note_role(disk.id(), Some(role));
            }
            if which == DECLARED_LOST && value == disk.id().0 {
                self.members.declared_lost.borrow_mut().insert(disk.id());
            }
        }
        Ok(())
    }

    /// Sets it. Whether there is as much room is the business of whoever calls.
    ///
    /// # Errors
    /// What the pool says when it cannot be written.
    #[pooled]
    pub async fn set_keep_room_for(self: &Rc<Self>, losses: u32) -> Result<(), PoolError> {
        let losses = losses.min(KEEP_ROOM_FOR_MAX);
        let mut change = self.changes.begin(Purpose::Release).await;
        change.put(keys::pool_setting(KEEP_ROOM_FOR), u64::from(losses).to_le_bytes().to_vec());
        change.commit().await?;
        self.free_space.keep.set(losses);
        Ok(())
    }

    /// How long a disk may be absent before what it had is rebuilt on others (docs/design/0015); `None` for ever.
    ///
    /// # Errors
    /// [`PoolError`] when the map cannot be read, or holds no number there.
    #[pooled]
    pub async fn repair_after(&self) -> Result<Option<Duration>, PoolError> {
        let Some(value) = self.map.get(&keys::pool_setting(REPAIR_AFTER)).await? else {
            return Ok(Some(REPAIR_AFTER_USUAL));
        };
        let seconds = value.as_slice().try_into().map(u64::from_le_bytes).map_err(|_| {
            let what = format!("a setting of {} bytes", value.len());
            PoolError::Corrupt { name: self.identity.name.clone(), what }
        })?;
        Ok(Some(Duration::from_secs(seconds)).filter(|after| !after.is_zero()))
    }

    /// Sets it, in whole seconds.
    ///
    /// # Errors
    /// What the pool says when it cannot be written.
    #[pooled]
    pub async fn set_repair_after(self: &Rc<Self>, after: Option<Duration>) -> Result<(), PoolError> {
        let seconds = after.map_or(0, |after| after.as_secs().max(1));
        let mut change = self.changes.begin(Purpose::Release).await;
        change.put(keys::pool_setting(REPAIR_AFTER), seconds.to_le_bytes().to_vec());
        change.commit().await.map(drop)
    }

    /// Percents of use from which on the status reports it, ascending.
    ///
    /// # Errors
    /// [`PoolError`] when the map cannot be read. A number that makes no sense is none.
    #[pooled]
    pub async fn alert_at(&self) -> Result<Vec<u8>, PoolError> {
        let Some(value) = self.map.get(&keys::pool_setting(ALERT_AT)).await? else {
            return Ok(ALERTS_USUAL.to_vec());
        };
        let mut percents: Vec<u8> = value.into_iter().filter(|percent| (1..=99).contains(percent)).collect();
        percents.sort_unstable();
        percents.truncate(ALERTS_MAX);
        Ok(percents)
    }

    /// Sets them.
    ///
    /// # Errors
    /// What the pool says when it cannot be written.
    #[pooled]
    pub async fn set_alert_at(self: &Rc<Self>, percents: &[u8]) -> Result<(), PoolError> {
        let mut value = [0; 8];
        let places = value.iter_mut().take(ALERTS_MAX).zip(percents);
        places.for_each(|(place, percent)| *place = *percent);
        let mut change = self.changes.begin(Purpose::Release).await;
        change.put(keys::pool_setting(ALERT_AT), value.to_vec());
        change.commit().await
    }
}
