//! A disk in the hands of a pool, which can be taken out of them.
//!
//! A pool that is closed must let go of its disks at once, so that they can be moved or opened again, whatever task still
//! remembers them. So the pool is given this, and the daemon keeps the device itself.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;
use std::rc::{Rc, Weak};

use dolmen_block_io::{
    Action, BlockDevice, Clock, Command, Completions, DeviceError, Geometry, IoCounters, IoKind, Meter,
    Outcome, Payload, Submission,
};
use dolmen_block_linux::{LinuxDevice, MediumExtent};
use dolmen_units::{Bytes, Epoch, PoolId};

use crate::state::connection::Connection;
use crate::state::identity::Identity;
use crate::state::places::Held;

/// A disk that can be taken away.
pub(crate) struct MemberDevice {
    device: RefCell<Option<Rc<LinuxDevice>>>,
    /// The pool that it was opened for. By its name alone it could be another's by now.
    pool: PoolId,
    /// What it is called: a file may be renamed while it is in use.
    name: RefCell<String>,
    /// What it was when it was opened, whatever it is called.
    connection: Option<Connection>,
    medium: Option<MediumExtent>,
    geometry: Cell<Geometry>,
    /// What was asked of the device, kept when it is gone.
    counters: Cell<IoCounters>,
    /// How long what was asked of it took.
    meter: Rc<Meter>,
    refused: Rc<Completions>,
}

impl MemberDevice {
    fn new(device: Rc<LinuxDevice>, pool: PoolId, clock: Rc<dyn Clock>) -> Rc<Self> {
        let (name, geometry) = (device.name(), Cell::new(device.geometry()));
        let (connection, medium) = (Connection::at(Path::new(&name)), MediumExtent::at(Path::new(&name)));
        let refused = Completions::new();
        Rc::new(Self {
            device: RefCell::new(Some(device)),
            pool,
            name: RefCell::new(name),
            connection,
            medium,
            geometry,
            counters: Cell::default(),
            meter: Meter::new(clock),
            refused,
        })
    }

    /// Closes the device, once the commands under way have ended. Later ones find it gone.
    fn release(&self) {
        self.counters.set(self.counters());
        drop(self.device.borrow_mut().take());
    }
}

impl BlockDevice for MemberDevice {
    fn geometry(&self) -> Geometry {
        self.geometry.get()
    }

    fn size_now(&self) -> Bytes {
        let device = self.device.borrow();
        device.as_ref().map_or(self.geometry.get().capacity, |device| device.size_now())
    }

    fn extend(&self) {
        if let Some(device) = self.device.borrow().as_ref() {
            device.extend();
            self.geometry.set(device.geometry());
        }
    }

    fn name(&self) -> String {
        self.name.borrow().clone()
    }

    fn submit(&self, command: Command) -> Submission {
        if let Some(device) = self.device.borrow().as_ref() {
            let (kind, bytes) = IoKind::of(&command.action);
            let started = self.meter.begin(kind, bytes);
            return device.submit(command).metered(&self.meter, started);
        }
        let payload = match command.action {
            Action::Read { into, .. } => Payload::Buffer(into),
            Action::Write { from, .. } => Payload::Shared(from),
            Action::Flush | Action::Discard { .. } | Action::WriteZeroes { .. } => Payload::None,
        };
        self.refused.ready(Outcome { result: Err(DeviceError::Detached), payload })
    }

    fn fence(&self, epoch: Epoch) {
        if let Some(device) = self.device.borrow().as_ref() {
            device.fence(epoch);
        }
    }

    fn counters(&self) -> IoCounters {
        self.device.borrow().as_ref().map_or_else(|| self.counters.get(), |device| device.counters())
    }

    fn meter(&self) -> Option<Rc<Meter>> {
        Some(Rc::clone(&self.meter))
    }
}

impl fmt::Debug for MemberDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MemberDevice({})", self.name.borrow())
    }
}

/// The disks that pools have.
pub(crate) struct Members {
    given: RefCell<Vec<Weak<MemberDevice>>>,
    clock: Rc<dyn Clock>,
}

impl Members {
    /// None so far.
    pub(crate) fn new(clock: Rc<dyn Clock>) -> Self {
        Self { given: RefCell::default(), clock }
    }

    /// Hands a device out to a pool.
    pub(crate) fn give(&self, device: Rc<LinuxDevice>, pool: PoolId) -> Rc<dyn BlockDevice> {
        let member = MemberDevice::new(device, pool, Rc::clone(&self.clock));
        let mut given = self.given.borrow_mut();
        given.retain(|weak| weak.strong_count() > 0);
        given.push(Rc::downgrade(&member));
        member
    }

    /// Takes back all devices of a pool, those that it misses by now among them.
    pub(crate) fn release_all_of(&self, pool: PoolId) {
        self.release_those(|member| member.pool == pool);
    }

    /// Takes a device back.
    pub(crate) fn release(&self, device: &Rc<dyn BlockDevice>) {
        self.release_those(|member| std::ptr::addr_eq(member, Rc::as_ptr(device)));
    }

    /// Devices that pools have, by name.
    pub(crate) fn held(&self) -> Vec<Held> {
        let given = self.given.borrow();
        let held = given.iter().filter_map(Weak::upgrade).filter(|member| member.device.borrow().is_some());
        let of = |member: Rc<MemberDevice>| {
            let (name, identity) = (member.name(), member.connection?.identity());
            Some(Held { name, identity, capacity: member.geometry.get().capacity })
        };
        held.filter_map(of).collect()
    }

    /// Returns what devices and files are that pools have.
    pub(crate) fn identities(&self) -> BTreeSet<Identity> {
        self.held().into_iter().map(|held| held.identity).collect()
    }

    /// Returns how a device that a pool has is connected.
    pub(crate) fn connection_of(&self, device: &Rc<dyn BlockDevice>) -> Option<Connection> {
        let given = self.given.borrow();
        let mut given = given.iter().filter_map(Weak::upgrade);
        given.find(|member| std::ptr::addr_eq(Rc::as_ptr(member), Rc::as_ptr(device)))?.connection
    }

    /// Returns the pool that has a disk on this medium, by whatever path.
    pub(crate) fn pool_on(&self, medium: &MediumExtent) -> Option<PoolId> {
        let given = self.given.borrow();
        let mut held =
            given.iter().filter_map(Weak::upgrade).filter(|member| member.device.borrow().is_some());
        let is_on =
            |member: &Rc<MemberDevice>| member.medium.as_ref().is_some_and(|own| own.overlaps(medium));
        held.find(is_on).map(|member| member.pool)
    }

    /// A device is called otherwise from now on.
    pub(crate) fn rename(&self, old: &str, new: &str) {
        for member in self.given.borrow().iter().filter_map(Weak::upgrade) {
            if *member.name.borrow() == old {
                *member.name.borrow_mut() = new.to_owned();
            }
        }
    }

    fn release_those(&self, is_meant: impl Fn(&MemberDevice) -> bool) {
        let given: Vec<Rc<MemberDevice>> = self.given.borrow().iter().filter_map(Weak::upgrade).collect();
        given.iter().filter(|member| is_meant(member)).for_each(|member| member.release());
    }
}
