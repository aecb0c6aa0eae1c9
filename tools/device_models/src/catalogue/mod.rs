//! The models by name.

pub mod assumed;
mod disks;
mod solid;

use crate::array::{ArrayCache, ArrayParameters, Level};
use crate::device::Device;
use crate::disk::{Disk, DiskParameters};
use crate::error::{ParameterError, UnknownModel};
use crate::flash::{Condition, Flash, FlashParameters};
use crate::link::{Link, LinkParameters};

/// What a model is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A rotating disk.
    Disk(DiskParameters),
    /// A solid-state disk.
    Flash(FlashParameters),
}

/// A device of the catalogue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Model {
    /// Its name here.
    pub name: &'static str,
    /// What it is called by its maker.
    pub product: &'static str,
    /// What it is made of.
    pub kind: Kind,
    /// The parameters that no source tells, by their names.
    pub assumed: &'static [&'static str],
}

impl Model {
    /// Size, in bytes.
    #[must_use]
    pub const fn capacity_bytes(&self) -> u64 {
        match &self.kind {
            Kind::Disk(parameters) => parameters.capacity_bytes,
            Kind::Flash(parameters) => parameters.capacity_bytes,
        }
    }

    /// Makes one, in the steady state where that matters.
    ///
    /// # Errors
    /// When a parameter describes no device; those of the catalogue do.
    pub fn build(&self, seed: u64) -> Result<Box<dyn Device>, ParameterError> {
        Ok(match self.kind {
            Kind::Disk(parameters) => Box::new(Disk::new(parameters, seed)?),
            Kind::Flash(parameters) => Box::new(Flash::new(parameters, Condition::Steady, seed)?),
        })
    }
}

/// Names of parameters.
type Fields = &'static [&'static str];

const fn disk(name: &'static str, product: &'static str, made: DiskParameters, assumed: Fields) -> Model {
    Model { name, product, kind: Kind::Disk(made), assumed }
}

const fn flash(name: &'static str, product: &'static str, made: FlashParameters, assumed: Fields) -> Model {
    Model { name, product, kind: Kind::Flash(made), assumed }
}

/// All devices.
pub const DEVICES: [Model; 12] = [
    disk("cheetah-15k5", "Seagate Cheetah 15K.5 147 GB", disks::CHEETAH_15K5, assumed::CHEETAH_15K5),
    disk("savvio-10k1", "Seagate Savvio 10K.1 73 GB", disks::SAVVIO_10K1, assumed::SAVVIO_10K1),
    disk("atlas-10k", "Quantum Atlas 10K 9.1 GB", disks::ATLAS_10K, assumed::ATLAS_10K),
    disk("cheetah-9lp", "Seagate Cheetah 9LP 9.1 GB", disks::CHEETAH_9LP, assumed::CHEETAH_9LP),
    disk("ultrastar-18es", "IBM Ultrastar 18ES 9.1 GB", disks::ULTRASTAR_18ES, assumed::ULTRASTAR_18ES),
    disk(
        "constellation-7k2",
        "Seagate Constellation 500 GB",
        disks::CONSTELLATION_7K2,
        assumed::CONSTELLATION_7K2,
    ),
    disk("fireball-lct08", "Quantum Fireball lct08 8.4 GB", disks::FIREBALL_LCT08, assumed::FIREBALL_LCT08),
    disk(
        "travelstar-5k320",
        "Hitachi Travelstar 5K320 320 GB",
        disks::TRAVELSTAR_5K320,
        assumed::TRAVELSTAR_5K320,
    ),
    flash("intel-s3700", "Intel SSD DC S3700 800 GB", solid::INTEL_S3700, assumed::INTEL_S3700),
    flash("samsung-850pro", "Samsung SSD 850 PRO 512 GB", solid::SAMSUNG_850PRO, assumed::SAMSUNG_850PRO),
    flash("micron-5100max", "Micron 5100 MAX 960 GB", solid::MICRON_5100MAX, assumed::MICRON_5100MAX),
    flash("intel-p3700", "Intel SSD DC P3700 2 TB", solid::INTEL_P3700, assumed::INTEL_P3700),
];

/// A link of the catalogue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkModel {
    /// Its name here.
    pub name: &'static str,
    /// What it is.
    pub product: &'static str,
    /// What it is made of.
    pub parameters: LinkParameters,
    /// The parameters that no source tells, by their names.
    pub assumed: &'static [&'static str],
}

/// TCP over Ethernet: 1,448 of 1,538 bytes of a frame are data with time stamps and a maximum unit of 1,500 bytes.
const fn ethernet(name: &'static str, product: &'static str, gigabits: u64, latency_ns: u64) -> LinkModel {
    LinkModel {
        name,
        product,
        parameters: LinkParameters {
            bits_per_second: gigabits * 1_000_000_000,
            frame_payload_bytes: 1_448,
            frame_overhead_bytes: 90,
            latency_ns,
            send_ns: 5_000,
            receive_ns: 5_000,
            fetch_ns: 0,
            inline_bytes: u64::MAX,
            bus_bytes_per_second: 15_750_000_000,
        },
        assumed: assumed::ETHERNET,
    }
}

/// All links.
pub const LINKS: [LinkModel; 4] = [
    ethernet("ethernet-1g", "TCP over 1 Gb/s Ethernet", 1, 20_000),
    ethernet("ethernet-10g", "TCP over 10 Gb/s Ethernet", 10, 10_000),
    ethernet("ethernet-25g", "TCP over 25 Gb/s Ethernet", 25, 8_000),
    LinkModel {
        name: "rdma-100g",
        product: "Remote direct memory access over 100 Gb/s InfiniBand",
        parameters: LinkParameters {
            bits_per_second: 100_000_000_000,
            frame_payload_bytes: 4_096,
            frame_overhead_bytes: 30,
            latency_ns: 700,
            send_ns: 0,
            receive_ns: 0,
            fetch_ns: 550,
            inline_bytes: 188,
            bus_bytes_per_second: 15_750_000_000,
        },
        assumed: assumed::RDMA_100G,
    },
];

/// A controller with 1 GiB of cache kept by a battery, as sold about 2012.
#[must_use]
pub const fn controller(level: Level, cache: ArrayCache) -> ArrayParameters {
    ArrayParameters {
        level,
        interleave_bytes: 64 << 10,
        command_ns: 10_000,
        bus_bytes_per_second: 2_000_000_000,
        cache,
        cache_bytes: 1 << 30,
        rows_per_member: 16,
    }
}

/// The device of a name.
///
/// # Errors
/// When there is none; the message lists those that there are.
pub fn device(name: &str) -> Result<&'static Model, UnknownModel> {
    DEVICES.iter().find(|model| model.name == name).ok_or_else(|| UnknownModel {
        kind: "device",
        name: name.to_owned(),
        known: DEVICES.map(|model| model.name).join(", "),
    })
}

/// The link of a name.
///
/// # Errors
/// When there is none; the message lists those that there are.
pub fn link(name: &str) -> Result<&'static LinkModel, UnknownModel> {
    LINKS.iter().find(|model| model.name == name).ok_or_else(|| UnknownModel {
        kind: "link",
        name: name.to_owned(),
        known: LINKS.map(|model| model.name).join(", "),
    })
}

impl LinkModel {
    /// Makes one.
    ///
    /// # Errors
    /// When a parameter describes no link; those of the catalogue do.
    pub fn build(&self) -> Result<Link, ParameterError> {
        Link::new(self.parameters)
    }
}
