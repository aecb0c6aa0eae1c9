//! What the spaces of a golden image hold, as a text that other readers of pools read too; the README beside says how.

use std::collections::BTreeMap;
use std::fmt::Write;

use dolmen_space::{Attribute, Provisioning, Resiliency, SpaceSpec};
use dolmen_units::{Epoch, EpochId, HostId, PoolId};

use super::BLOCK;

const SECTOR: usize = 512;

#[derive(Debug, Clone)]
pub struct Content {
    pub pool: PoolId,
    /// The host that had it, and what that has on record.
    pub host: HostId,
    pub epoch: EpochId,
    pub spaces: Vec<SpaceContent>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpaceContent {
    /// What tells its content from that of the others.
    pub number: u8,
    pub name: String,
    /// Resiliency and provisioning.
    pub kind: String,
    pub size: u64,
    /// What each block may hold, one fill as a rule; what is not named holds zeros.
    pub blocks: BTreeMap<u64, Vec<u16>>,
}

impl SpaceContent {
    /// What a block may hold.
    pub fn fills(&self, block: u64) -> &[u16] {
        self.blocks.get(&block).map_or(&[0], Vec::as_slice)
    }

    /// Which of its fills the block has.
    pub fn fill_of(&self, block: u64, bytes: &[u8]) -> Option<u16> {
        self.fills(block).iter().copied().find(|fill| is_filled(self.number, block, *fill, bytes))
    }

    /// Whether a block holds what may have been written there once, whole.
    pub fn is_some_fill(&self, block: u64, bytes: &[u8]) -> bool {
        (0..=u16::MAX).any(|fill| is_filled(self.number, block, fill, bytes))
    }
}

/// The attributes of a space.
pub fn attributes_of(number: u8, name: &str) -> Vec<Attribute> {
    let attribute = |kind, number, value: &[u8]| Attribute { kind, number, value: value.to_vec() };
    vec![attribute(1, 0, name.as_bytes()), attribute(2, number.into(), &[number; 100])]
}

/// The words for what a space is.
pub fn kind_of(spec: &SpaceSpec) -> String {
    let resiliency = match spec.resiliency {
        Resiliency::Simple => "simple".to_owned(),
        Resiliency::Span => "span".to_owned(),
        Resiliency::Mirror { copies } => format!("mirror-{copies}"),
        Resiliency::Parity { parity } => format!("parity-{parity}"),
    };
    let provisioning = match spec.provisioning {
        Provisioning::Thin => "thin",
        Provisioning::Fixed => "fixed",
    };
    format!("{resiliency} {provisioning} {}", spec.sector.0)
}

/// The eight bytes that stand again and again in a sector of a block.
fn word(number: u8, block: u64, fill: u16, sector: usize) -> u64 {
    let place = u64::from(number) << 56 | u64::from(fill) << 40 | block << 8 | sector as u64;
    let mut z = place.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Fills blocks from `first` on; fill 0 stands for zeros.
pub fn fill_blocks(number: u8, first: u64, fill: u16, into: &mut [u8]) {
    if fill == 0 {
        into.fill(0);
        return;
    }
    for (index, sector) in into.chunks_mut(SECTOR).enumerate() {
        let (block, within) = (index * SECTOR / BLOCK, index % (BLOCK / SECTOR));
        let word = word(number, first + block as u64, fill, within).to_le_bytes();
        sector.chunks_mut(8).for_each(|to| to.copy_from_slice(&word));
    }
}

/// Whether a block is what was written with this fill.
pub fn is_filled(number: u8, block: u64, fill: u16, bytes: &[u8]) -> bool {
    let mut expected = [0; BLOCK];
    fill_blocks(number, block, fill, &mut expected);
    bytes == expected
}

impl Content {
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        writeln!(text, "pool {}", hex(&self.pool.0)).unwrap();
        writeln!(text, "host {}", hex(&self.host.0)).unwrap();
        writeln!(text, "epoch {} {:016x}", self.epoch.number.0, self.epoch.nonce).unwrap();
        for space in &self.spaces {
            writeln!(text, "space {} {} {} {}", space.number, space.name, space.size, space.kind).unwrap();
            let mut run: Option<(u64, u64, &Vec<u16>)> = None;
            for (block, fills) in space.blocks.iter().filter(|(_, fills)| ***fills != [0]) {
                run = match run {
                    Some((first, count, same)) if first + count == *block && same == fills => {
                        Some((first, count + 1, same))
                    }
                    other => {
                        write_run(&mut text, other);
                        Some((*block, 1, fills))
                    }
                };
            }
            write_run(&mut text, run);
        }
        text
    }

    pub fn parse(text: &str) -> Self {
        let (mut pool, mut host, mut epoch) = (PoolId::NONE, HostId::NONE, EpochId::default());
        let mut spaces: Vec<SpaceContent> = Vec::new();
        for stripe in text.lines() {
            let words: Vec<&str> = stripe.split(' ').collect();
            match words[..] {
                ["pool", id] => pool = PoolId(bytes(id)),
                ["host", id] => host = HostId(bytes(id)),
                ["epoch", number, nonce] => {
                    let nonce = u64::from_str_radix(nonce, 16).unwrap();
                    epoch = EpochId { number: Epoch(number.parse().unwrap()), nonce };
                }
                ["space", number, name, size, ref kind @ ..] => spaces.push(SpaceContent {
                    number: number.parse().unwrap(),
                    name: name.to_owned(),
                    kind: kind.join(" "),
                    size: size.parse().unwrap(),
                    blocks: BTreeMap::new(),
                }),
                ["blocks", first, count, ref fills @ ..] => {
                    let (first, count): (u64, u64) = (first.parse().unwrap(), count.parse().unwrap());
                    let fills: Vec<u16> = fills.iter().map(|fill| fill.parse().unwrap()).collect();
                    let blocks = &mut spaces.last_mut().unwrap().blocks;
                    (first..first + count).for_each(|block| _ = blocks.insert(block, fills.clone()));
                }
                _ => panic!("no line of a content: {stripe}"),
            }
        }
        Self { pool, host, epoch, spaces }
    }
}

fn write_run(text: &mut String, run: Option<(u64, u64, &Vec<u16>)>) {
    if let Some((first, count, fills)) = run {
        let fills: Vec<String> = fills.iter().map(u16::to_string).collect();
        writeln!(text, "blocks {first} {count} {}", fills.join(" ")).unwrap();
    }
}

fn hex(id: &[u8; 16]) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bytes(text: &str) -> [u8; 16] {
    u128::from_str_radix(text, 16).unwrap().to_be_bytes()
}
