//! The contract of [`BlockDevice`] as a suite that every implementor runs, the simulated one included.
//!
//! Every check panics with what it saw. The device's content is overwritten.

use dolmen_buffer::{Arena, Buffer};
use dolmen_units::Epoch;

use crate::device::{self, BlockDevice, DeviceError, Durability};

const TOKEN: Epoch = Epoch(1);

/// Runs every check.
///
/// # Panics
/// When the device breaks its contract.
pub async fn all(device: &dyn BlockDevice, arena: &Arena) {
    written_is_read_back(device, arena).await;
    overwriting_changes_only_its_own_range(device, arena).await;
    bad_ranges_are_refused_and_the_buffer_returns(device, arena).await;
    zeroes_are_read_where_they_were_asked_for(device, arena).await;
    many_at_once_all_take_effect(device, arena).await;
    a_dropped_submission_still_takes_effect(device, arena).await;
    a_fenced_writer_changes_nothing(device, arena).await;
    assert_eq!(arena.lent_count(), 0, "the device gives every buffer back");
}

fn pattern(arena: &Arena, len: usize, seed: u8) -> Buffer {
    let Some(mut buffer) = arena.try_take(len) else { panic!("the suite needs an arena with free frames") };
    for (index, byte) in buffer.iter_mut().enumerate() {
        *byte = seed.wrapping_add(u8::try_from(index % 251).unwrap_or(0));
    }
    buffer
}

async fn write(device: &dyn BlockDevice, at: u64, from: Buffer) -> Result<(), DeviceError> {
    device::write(device, TOKEN, at, from.freeze(), Durability::Cached).await
}

async fn expect(device: &dyn BlockDevice, arena: &Arena, at: u64, expected: &[u8]) {
    let Some(buffer) = arena.try_take(expected.len()) else {
        panic!("the suite needs an arena with free frames")
    };
    let (buffer, result) = device::read(device, TOKEN, at, buffer).await;
    assert_eq!(result, Ok(()), "reading {} bytes at {at}", expected.len());
    assert!(*buffer == *expected, "{} bytes at {at} read back as they were written", expected.len());
}

async fn written_is_read_back(device: &dyn BlockDevice, arena: &Arena) {
    for (at, len) in [(0, 4096), (8192, 65536), (1 << 20, 1 << 20)] {
        assert_eq!(write(device, at, pattern(arena, len, 3)).await, Ok(()));
        expect(device, arena, at, &pattern(arena, len, 3)).await;
    }
    let durable = pattern(arena, 4096, 9).freeze();
    assert_eq!(device::write(device, TOKEN, 4096, durable, Durability::Durable).await, Ok(()));
    assert_eq!(device::flush(device, TOKEN).await, Ok(()));
    expect(device, arena, 4096, &pattern(arena, 4096, 9)).await;
}

async fn overwriting_changes_only_its_own_range(device: &dyn BlockDevice, arena: &Arena) {
    assert_eq!(write(device, 0, pattern(arena, 3 * 4096, 1)).await, Ok(()));
    assert_eq!(write(device, 4096, pattern(arena, 4096, 77)).await, Ok(()));
    let whole = pattern(arena, 3 * 4096, 1);
    expect(device, arena, 0, whole.get(..4096).unwrap_or_default()).await;
    expect(device, arena, 4096, &pattern(arena, 4096, 77)).await;
    expect(device, arena, 8192, whole.get(8192..).unwrap_or_default()).await;
}

async fn bad_ranges_are_refused_and_the_buffer_returns(device: &dyn BlockDevice, arena: &Arena) {
    let capacity = device.geometry().capacity.0;
    assert_eq!(write(device, capacity, pattern(arena, 4096, 0)).await, Err(DeviceError::OutOfRange));
    assert_eq!(write(device, capacity - 4096, pattern(arena, 8192, 0)).await, Err(DeviceError::OutOfRange));
    assert_eq!(write(device, u64::MAX - 4095, pattern(arena, 4096, 0)).await, Err(DeviceError::OutOfRange));
    assert_eq!(write(device, 100, pattern(arena, 4096, 0)).await, Err(DeviceError::Misaligned));
    assert_eq!(write(device, 0, pattern(arena, 100, 0)).await, Err(DeviceError::Misaligned));
    let (buffer, result) = device::read(device, TOKEN, capacity, pattern(arena, 4096, 0)).await;
    assert_eq!((buffer.len(), result), (4096, Err(DeviceError::OutOfRange)));
}

async fn zeroes_are_read_where_they_were_asked_for(device: &dyn BlockDevice, arena: &Arena) {
    assert_eq!(write(device, 0, pattern(arena, 3 * 4096, 5)).await, Ok(()));
    match device::write_zeroes(device, TOKEN, 4096, 4096).await {
        Ok(()) => expect(device, arena, 4096, &[0; 4096]).await,
        Err(error) => assert_eq!(error, DeviceError::Unsupported),
    }
    let whole = pattern(arena, 3 * 4096, 5);
    expect(device, arena, 0, whole.get(..4096).unwrap_or_default()).await;
    expect(device, arena, 8192, whole.get(8192..).unwrap_or_default()).await;
    let forgotten = device::discard(device, TOKEN, 8192, 4096).await;
    assert!(matches!(forgotten, Ok(()) | Err(DeviceError::Unsupported)), "{forgotten:?}");
    expect(device, arena, 0, whole.get(..4096).unwrap_or_default()).await;
}

async fn many_at_once_all_take_effect(device: &dyn BlockDevice, arena: &Arena) {
    let start = |index: u8| {
        let from = pattern(arena, 4096, index).freeze();
        device::write(device, TOKEN, u64::from(index) * 4096, from, Durability::Cached)
    };
    let under_way: Vec<_> = (0..64).map(start).collect();
    for write in under_way {
        assert_eq!(write.await, Ok(()));
    }
    for index in 0..64 {
        expect(device, arena, u64::from(index) * 4096, &pattern(arena, 4096, index)).await;
    }
}

async fn a_dropped_submission_still_takes_effect(device: &dyn BlockDevice, arena: &Arena) {
    let from = pattern(arena, 4096, 200).freeze();
    drop(device::write(device, TOKEN, 0, from, Durability::Cached));
    drop(device::read(device, TOKEN, 4096, pattern(arena, 4096, 0)));
    // A flush is submitted after both, but only completion orders them: so wait until the write is seen.
    for _ in 0..1000 {
        assert_eq!(device::flush(device, TOKEN).await, Ok(()));
        let (buffer, result) = device::read(device, TOKEN, 0, pattern(arena, 4096, 0)).await;
        assert_eq!(result, Ok(()));
        if *buffer == *pattern(arena, 4096, 200) && arena.lent_count() == 1 {
            return;
        }
    }
    panic!("a write whose submission was dropped takes effect and returns its memory");
}

async fn a_fenced_writer_changes_nothing(device: &dyn BlockDevice, arena: &Arena) {
    assert_eq!(write(device, 0, pattern(arena, 4096, 1)).await, Ok(()));
    device.fence(Epoch(2));
    assert_eq!(write(device, 0, pattern(arena, 4096, 2)).await, Err(DeviceError::Fenced));
    let late = device::read(device, Epoch(2), 0, pattern(arena, 4096, 0));
    let (buffer, result) = late.await;
    assert_eq!(result, Ok(()));
    assert!(*buffer == *pattern(arena, 4096, 1), "a fenced write changes nothing");
}
