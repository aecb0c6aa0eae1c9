//! What crosses the border to the kernel's ublk driver, as in `linux/ublk_cmd.h`.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Features that a device is made with, and that the kernel says it has.
pub(crate) mod feature {
    /// The device survives its server.
    pub(crate) const USER_RECOVERY: u64 = 1 << 3;
    /// What the server had not answered is given to the next one.
    pub(crate) const USER_RECOVERY_REISSUE: u64 = 1 << 4;
    /// Commands are numbered like ioctls.
    pub(crate) const CMD_IOCTL_ENCODE: u64 = 1 << 6;
    /// The content is moved by `pread` and `pwrite`.
    pub(crate) const USER_COPY: u64 = 1 << 7;
    /// The device can be resized.
    pub(crate) const UPDATE_SIZE: u64 = 1 << 10;
    /// The kernel looks for partitions on a thread of its own, or not at all.
    pub(crate) const NO_AUTO_PART_SCAN: u64 = 1 << 18;

    /// What every device of ours is made with.
    pub(crate) const NEEDED: u64 = USER_RECOVERY | USER_RECOVERY_REISSUE | CMD_IOCTL_ENCODE | USER_COPY;
}

/// `_IOC` of the kernel, with the driver's letter.
const fn ioctl_number(direction: u32, number: u32, bytes: usize) -> u32 {
    // The sizes are those of two structs below.
    assert!(bytes < 1 << 14, "a size has 14 bits");
    #[allow(clippy::cast_possible_truncation)]
    let bytes = bytes as u32;
    direction << 30 | bytes << 16 | (b'u' as u32) << 8 | number
}

const fn read(number: u32) -> u32 {
    ioctl_number(2, number, size_of::<ControlCommand>())
}

const fn write(number: u32) -> u32 {
    ioctl_number(3, number, size_of::<ControlCommand>())
}

const fn on_queue(number: u32) -> u32 {
    ioctl_number(3, number, size_of::<IoCommand>())
}

/// Commands to `/dev/ublk-control`.
pub(crate) mod control {
    use super::{read, write};

    pub(crate) const GET_DEV_INFO: u32 = read(0x02);
    pub(crate) const ADD_DEV: u32 = write(0x04);
    pub(crate) const DEL_DEV: u32 = write(0x05);
    pub(crate) const START_DEV: u32 = write(0x06);
    pub(crate) const STOP_DEV: u32 = write(0x07);
    pub(crate) const SET_PARAMS: u32 = write(0x08);
    pub(crate) const START_USER_RECOVERY: u32 = write(0x10);
    pub(crate) const END_USER_RECOVERY: u32 = write(0x11);
    pub(crate) const GET_FEATURES: u32 = read(0x13);
    pub(crate) const DEL_DEV_ASYNC: u32 = read(0x14);
    pub(crate) const UPDATE_SIZE: u32 = write(0x15);
}

/// Commands to a device's channel.
pub(crate) mod channel {
    use super::on_queue;

    /// Waits for the tag's first request.
    pub(crate) const FETCH: u32 = on_queue(0x20);
    /// Answers the tag's request, and waits for its next.
    pub(crate) const COMMIT_AND_FETCH: u32 = on_queue(0x21);
}

/// The completion of a command that brings a request; any other means that there will be none.
pub(crate) const IO_IS_THERE: i32 = 0;

/// Where the content of tag 0 lies in the channel; the descriptors lie at its beginning.
const CONTENT_OFFSET: u64 = 0x8000_0000;
/// A tag's content has so many bits of address.
const CONTENT_BITS: u32 = 25;

/// Where the content of a tag of queue 0 lies in the channel.
pub(crate) const fn content_at(tag: u16) -> u64 {
    CONTENT_OFFSET + ((tag as u64) << CONTENT_BITS)
}

/// What requests ask for: the low eight bits of [`IoDescriptor::operation_and_flags`].
pub(crate) mod operation {
    pub(crate) const READ: u32 = 0;
    pub(crate) const WRITE: u32 = 1;
    pub(crate) const FLUSH: u32 = 2;
    pub(crate) const DISCARD: u32 = 3;
    pub(crate) const WRITE_ZEROES: u32 = 5;
    pub(crate) const MASK: u32 = 0xff;
    /// On the medium before it is answered.
    pub(crate) const FUA: u32 = 1 << 13;
}

/// What a disk is like.
pub(crate) mod attribute {
    pub(crate) const READ_ONLY: u32 = 1 << 0;
    /// What was written is durable after a flush only.
    pub(crate) const VOLATILE_CACHE: u32 = 1 << 2;
    /// Single writes can be made durable.
    pub(crate) const FUA: u32 = 1 << 3;
}

/// Which parts of [`Parameters`] say something.
pub(crate) mod parameter {
    pub(crate) const BASIC: u32 = 1 << 0;
    pub(crate) const DISCARD: u32 = 1 << 1;
}

/// `ublksrv_ctrl_cmd`.
#[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(crate) struct ControlCommand {
    pub(crate) device: u32,
    pub(crate) queue: u16,
    /// The length of what `address` points to.
    pub(crate) len: u16,
    pub(crate) address: u64,
    pub(crate) data: u64,
    pub(crate) path_len: u16,
    pub(crate) padding: u16,
    pub(crate) reserved: u32,
}

/// `ublksrv_ctrl_dev_info`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(crate) struct DeviceInfo {
    pub(crate) queue_count: u16,
    pub(crate) queue_depth: u16,
    pub(crate) state: u16,
    pub(crate) padding: u16,
    pub(crate) io_bytes_max: u32,
    pub(crate) device: u32,
    pub(crate) server_pid: i32,
    pub(crate) padding_2: u32,
    pub(crate) features: u64,
    /// The server's own; the kernel keeps it.
    pub(crate) mark: u64,
    pub(crate) owner_uid: u32,
    pub(crate) owner_gid: u32,
    pub(crate) reserved: [u64; 2],
}

/// The head, `ublk_param_basic` and `ublk_param_discard` of `ublk_params`, and the beginning of what stands behind them,
/// which is not read.
#[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(crate) struct Parameters {
    pub(crate) len: u32,
    pub(crate) kinds: u32,
    pub(crate) attributes: u32,
    pub(crate) logical_block_shift: u8,
    pub(crate) physical_block_shift: u8,
    pub(crate) io_optimal_shift: u8,
    pub(crate) io_least_shift: u8,
    pub(crate) sectors_max: u32,
    pub(crate) chunk_sectors: u32,
    pub(crate) device_sectors: u64,
    pub(crate) virtual_boundary: u64,
    pub(crate) discard_alignment: u32,
    pub(crate) discard_granularity: u32,
    pub(crate) discard_sectors_max: u32,
    pub(crate) zeroes_sectors_max: u32,
    pub(crate) discard_segments_max: u16,
    pub(crate) reserved: u16,
    pub(crate) after: u32,
}

/// `ublksrv_io_desc`, which the kernel writes for each tag before the completion of its command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(crate) struct IoDescriptor {
    pub(crate) operation_and_flags: u32,
    pub(crate) sectors: u32,
    pub(crate) first_sector: u64,
    pub(crate) address: u64,
}

/// `ublksrv_io_cmd`.
#[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(crate) struct IoCommand {
    pub(crate) queue: u16,
    pub(crate) tag: u16,
    /// Bytes, or the negative of an error number.
    pub(crate) result: i32,
    pub(crate) address: u64,
}

const _: () = assert!(size_of::<ControlCommand>() == 32 && size_of::<DeviceInfo>() == 64);
const _: () = assert!(size_of::<IoDescriptor>() == 24 && size_of::<IoCommand>() == 16);
const _: () = assert!(size_of::<Parameters>() == 64, "the parts that are used end at 60");

/// Where a device stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// Not started, or stopped.
    Dead,
    /// Served.
    Live,
    /// Nobody serves it; its requests wait.
    Quiesced,
    /// One that a newer kernel knows.
    Other(u16),
}

impl DeviceInfo {
    pub(crate) fn state(&self) -> State {
        match self.state {
            0 => State::Dead,
            1 => State::Live,
            2 => State::Quiesced,
            other => State::Other(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;

    #[test]
    fn the_structs_are_those_of_the_kernel() {
        // Offsets from linux/ublk_cmd.h of Linux 6.12, as a C compiler gives them.
        assert_eq!(
            [
                offset_of!(ControlCommand, device),
                offset_of!(ControlCommand, queue),
                offset_of!(ControlCommand, len),
                offset_of!(ControlCommand, address),
                offset_of!(ControlCommand, data),
                offset_of!(ControlCommand, path_len),
            ],
            [0, 4, 6, 8, 16, 24]
        );
        assert_eq!(
            [
                offset_of!(DeviceInfo, queue_count),
                offset_of!(DeviceInfo, queue_depth),
                offset_of!(DeviceInfo, state),
                offset_of!(DeviceInfo, io_bytes_max),
                offset_of!(DeviceInfo, device),
                offset_of!(DeviceInfo, server_pid),
                offset_of!(DeviceInfo, features),
                offset_of!(DeviceInfo, mark),
                offset_of!(DeviceInfo, owner_uid),
                offset_of!(DeviceInfo, reserved),
            ],
            [0, 2, 4, 8, 12, 16, 24, 32, 40, 48]
        );
        assert_eq!(
            [
                offset_of!(Parameters, attributes),
                offset_of!(Parameters, logical_block_shift),
                offset_of!(Parameters, io_least_shift),
                offset_of!(Parameters, sectors_max),
                offset_of!(Parameters, chunk_sectors),
                offset_of!(Parameters, device_sectors),
                offset_of!(Parameters, virtual_boundary),
                offset_of!(Parameters, discard_alignment),
                offset_of!(Parameters, discard_granularity),
                offset_of!(Parameters, discard_sectors_max),
                offset_of!(Parameters, zeroes_sectors_max),
                offset_of!(Parameters, discard_segments_max),
                offset_of!(Parameters, after),
            ],
            [8, 12, 15, 16, 20, 24, 32, 40, 44, 48, 52, 56, 60]
        );
        assert_eq!(
            [
                offset_of!(IoDescriptor, sectors),
                offset_of!(IoDescriptor, first_sector),
                offset_of!(IoDescriptor, address),
                offset_of!(IoCommand, tag),
                offset_of!(IoCommand, result),
                offset_of!(IoCommand, address),
            ],
            [4, 8, 16, 2, 4, 8]
        );
    }

    #[test]
    fn the_commands_have_the_kernels_numbers() {
        // What `_IOR` and `_IOWR` of linux/ioctl.h give, as a C compiler printed it.
        assert_eq!(control::GET_DEV_INFO, 0x8020_7502);
        assert_eq!(control::ADD_DEV, 0xc020_7504);
        assert_eq!(control::DEL_DEV, 0xc020_7505);
        assert_eq!(control::START_DEV, 0xc020_7506);
        assert_eq!(control::STOP_DEV, 0xc020_7507);
        assert_eq!(control::SET_PARAMS, 0xc020_7508);
        assert_eq!(control::START_USER_RECOVERY, 0xc020_7510);
        assert_eq!(control::END_USER_RECOVERY, 0xc020_7511);
        assert_eq!(control::GET_FEATURES, 0x8020_7513);
        assert_eq!(control::DEL_DEV_ASYNC, 0x8020_7514);
        assert_eq!(control::UPDATE_SIZE, 0xc020_7515);
        assert_eq!(channel::FETCH, 0xc010_7520);
        assert_eq!(channel::COMMIT_AND_FETCH, 0xc010_7521);
        assert_eq!(content_at(0), 0x8000_0000);
        assert_eq!(content_at(3), 0x8000_0000 + 3 * (32 << 20));
    }
}
