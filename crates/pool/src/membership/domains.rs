//! Fault domains by name: an enclosure, a shelf, whatever may fail as one (docs/design/0023).
//!
//! A member's domain is a number in the labels, which placement respects; its name stands in the map. A number without a name
//! is shown as that number.

use std::collections::BTreeSet;
use std::rc::Rc;

use dolmen_future_pool::pooled;
use dolmen_units::Name;

use crate::error::PoolError;
use crate::keys;
use crate::membership::settings::PoolSettings;
use crate::metadata::map::Purpose;

/// More are not looked for: no pool has as many disks.
const NAMES_MAX: usize = 1024;

impl PoolSettings {
    /// The name of a fault domain, if it has one.
    #[must_use]
    pub fn domain_name(&self, number: u32) -> Option<Name> {
        self.domain_names.borrow().get(&number).cloned()
    }

    /// The fault domain of a name, if there is one.
    #[must_use]
    pub fn domain_named(&self, name: &Name) -> Option<u32> {
        let names = self.domain_names.borrow();
        names.iter().find(|(_, known)| *known == name).map(|(number, _)| *number)
    }

    /// A number that is no domain of a member, and that no name has; so many names behind others that are new as well.
    #[must_use]
    pub fn free_domain(&self, taken: &BTreeSet<u32>) -> u32 {
        let of_members: BTreeSet<u32> =
            self.members.disks().iter().map(|disk| disk.member().fault_domain).collect();
        let names = self.domain_names.borrow();
        let is_free = |number: &u32| {
            !of_members.contains(number) && !names.contains_key(number) && !taken.contains(number)
        };
        (1..1 << 31).find(is_free).unwrap_or(0)
    }

    /// Gives fault domains names. Those of domains that no member is in, and that are not among these, are forgotten.
    ///
    /// # Errors
    /// What the pool says when it cannot be written.
    #[pooled]
    pub async fn name_domains(self: &Rc<Self>, named: &[(u32, Name)]) -> Result<(), PoolError> {
        let mut change = self.changes.begin(Purpose::Release).await;
        let mut names = self.domain_names.borrow().clone();
        let used: BTreeSet<u32> =
            self.members.disks().iter().map(|disk| disk.member().fault_domain).collect();
        for number in names.keys().filter(|number| !used.contains(number)) {
            change.delete(keys::domain_name(*number));
        }
        names.retain(|number, _| used.contains(number));
        for (number, name) in named {
            change.put(keys::domain_name(*number), name.as_str().as_bytes().to_vec());
            names.insert(*number, name.clone());
        }
        change.commit().await?;
        self.domain_names.replace(names);
        Ok(())
    }

    /// Reads the names, when the pool is opened. What is no name says nothing.
    pub(crate) async fn load_domain_names(&self) -> Result<(), PoolError> {
        for (key, value) in self.map.scan(keys::domain_names(), NAMES_MAX).await? {
            let (_, number, _) = keys::parts(&key);
            let name = String::from_utf8(value).ok().and_then(|text| text.parse().ok());
            if let (Ok(number), Some(name)) = (u32::try_from(number), name) {
                self.domain_names.borrow_mut().insert(number, name);
            }
        }
        Ok(())
    }
}
