//! Devices and links in virtual time: what a command costs on hardware that is not at hand.
//!
//! Each model is a small machine of its own: [`Device::submit`] hands it a command, [`Device::next_event`] says when
//! something happens, [`Device::poll`] gives what is done. Time is a number of nanoseconds that the caller moves on;
//! nothing here knows of any clock, and the same seed gives the same answers at the same times.
//!
//! The models are made from data sheets and from assumptions where those are silent, and judged by measurements that
//! others published; `docs/device_models.md` has the sources, the figures and the deviations, and tests keep it true. The
//! example `table` prints every parameter, and marks what is assumed.

mod array;
pub mod calibration;
pub mod catalogue;
mod device;
mod disk;
mod error;
pub mod figures;
mod flash;
mod link;
pub mod load;
mod random;
mod request;
mod time;

pub use array::{Array, ArrayCache, ArrayParameters, Level};
pub use device::Device;
pub use disk::{Disk, DiskParameters, Scheduler, Seeks, WriteCache};
pub use error::{ParameterError, UnknownModel};
pub use flash::{Condition, Flash, FlashParameters, WriteBuffer};
pub use link::{Delivery, Direction, Link, LinkParameters, Message, SendError};
pub use random::Random;
pub use request::{Completion, Op, Request, SubmitError, Ticket};
pub use time::{SECOND_NS, Time};
