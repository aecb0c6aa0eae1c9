//! What is got back from disks that no pool is opened from.

#[path = "../../../space/tests/golden/mod.rs"]
mod golden;
#[path = "../../../space/tests/harness/mod.rs"]
mod harness;

mod golden_images;
mod scenarios;
