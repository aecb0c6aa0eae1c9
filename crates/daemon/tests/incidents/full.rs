//! Pools that are full: of promises, and altogether.

use serde_json::json;

use crate::bench::{
    Content, MIB, client, df, expect_sound as expect_scrubbed, health, idle, make_pool, make_space, mirror,
    parity, restart,
};
use crate::client::World;
use crate::mounted::{Mounted, file_content};
use crate::power::Machine;

/// What the kernel calls a device that has no room.
const NO_SPACE: u32 = 28;
const DISKS: &str = "/v1/pools/tank/disks";

/// Writes from a place on, with a flush behind each piece, until a write is refused; where that was.
fn write_until_refused(content: &mut Content, world: &World, name: &str, from: usize, most: usize) -> usize {
    let mut client = client(world, name);
    for at in from..content.len() / MIB {
        assert!(at <= most, "{at} MiB of {name} were acknowledged, more than the disks hold");
        let error = content.try_write(&mut client, at * MIB, MIB, 1);
        if error != 0 {
            assert_eq!(error, NO_SPACE, "writing {name} at {at} MiB");
            return at;
        }
        client.flush();
    }
    panic!("{name} never met the end of its pool");
}

/// The incident: 2 GB of disks, a thin space of ten times as much, half of it written with a flush behind each write, and the power
/// fails when the disks are full. Here with 512 MiB of disks and 4 GiB. Expected: a write is refused before more was acknowledged
/// than the disks hold, and each behind it is; behind the cut all that was acknowledged reads back; a disk is added, and writing
/// goes on where it had to stop.
#[test]
fn incident_01_thin_overcommit() {
    let mut machine = Machine::new(2);
    let paths = ["d0", "d1"].map(|name| machine.disk(name));
    make_pool(&machine.world, &paths);
    make_space(&machine.world, "thin", 4096, mirror());
    let mut content = Content::new("thin", 4096);
    let most = 256;
    let end = write_until_refused(&mut content, &machine.world, "thin", 0, most);
    assert!(end > 128, "only {end} MiB of {most} were taken");
    let mut after = client(&machine.world, "thin");
    for at in [end, end + 1, 4095] {
        assert_eq!(content.try_write(&mut after, at * MIB, MIB, 2), NO_SPACE, "{at} MiB");
    }
    // What is there can be written over, and that is promised as well.
    content.write(&mut after, 3 * MIB, MIB, 3);
    after.flush();
    let (_, why) = health(&machine.world);
    assert!(why.contains("tank/thin has met the end of pool tank"), "{why}");
    machine.cut();
    machine.boot();
    content.expect(&machine.world, "behind the cut");
    for name in ["d2", "d3"] {
        let disk = machine.make_disk(name, 256 << 20);
        machine.world.post(DISKS, &json!({"disks": [disk]}));
    }
    idle(&machine.world);
    let further = write_until_refused(&mut content, &machine.world, "thin", end, 2 * most);
    assert!(further > end + 128, "with two disks more only {} MiB were taken", further - end);
    machine.cut();
    machine.boot();
    content.expect(&machine.world, "behind the second cut");
    expect_scrubbed(&machine.world);
}

/// The same with files, on ext4 and on XFS: files are written and synced until that fails, and the power fails. Expected: it does fail;
/// behind the cut, and with disks added, each mounts, every file that was synced is there, and files can be written again.
#[test]
fn incident_01_thin_overcommit_with_files() {
    for kind in ["ext4", "xfs"] {
        let mut machine = Machine::new(2);
        if !machine.can_be_cut() {
            return println!("skipped: files over a power cut");
        }
        let paths = ["d0", "d1"].map(|name| machine.disk(name));
        make_pool(&machine.world, &paths);
        let thin =
            json!({"name": "thin", "size_bytes": 4096 * MIB, "resiliency": "mirror", "row_bytes": MIB});
        machine.world.post("/v1/pools/tank/spaces", &thin);
        let mut mounted = match Mounted::new(&machine.world, "thin", kind) {
            Ok(mounted) => mounted,
            Err(why) => {
                println!("skipped: {kind} on a space ({why})");
                continue;
            }
        };
        let name = |number: usize| format!("file-{number}");
        let write =
            |mounted: &Mounted, number| mounted.write_file(&name(number), &file_content(number, 4 * MIB));
        let synced = (0..128).take_while(|number| write(&mounted, *number).is_ok()).count();
        assert!((24..64).contains(&synced), "{synced} files of 4 MiB were synced on disks of 256 MiB");
        machine.cut_under(&[&mounted]);
        machine.boot();
        for disk in ["d2", "d3"] {
            let disk = machine.make_disk(disk, 256 << 20);
            machine.world.post(DISKS, &json!({"disks": [disk]}));
        }
        idle(&machine.world);
        mounted.mount_again(&machine.world);
        (0..synced).for_each(|number| {
            mounted.expect_file(&name(number), &file_content(number, 4 * MIB), "behind the cut")
        });
        for number in 200..208 {
            write(&mounted, number).unwrap_or_else(|error| panic!("{kind}: with disks more: {error}"));
        }
        mounted.expect_sound("with disks more");
        machine.world.post("/v1/pools/tank/spaces/thin/detach", &json!({}));
        expect_scrubbed(&machine.world);
    }
}

/// The incident: nothing fits any more, and what would make room needs some. Expected: with two thin spaces that have met the end
/// of the pool, also behind a kill and a restart, what is there is read and written over; a discard gives room, and so does a
/// deletion, at once; a disk is added and gives room; and all that was read is sound.
#[test]
fn incident_02_full_pool() {
    let mut world = World::new(4);
    let paths = ["d0", "d1", "d2"].map(|name| world.disk(name));
    make_pool(&world, &paths);
    make_space(&world, "m", 2048, mirror());
    make_space(&world, "p", 2048, parity());
    let (mut m, mut p) = (Content::new("m", 2048), Content::new("p", 2048));
    // The rest of the pool is the mirror's.
    p.fill(&world, 96, 1);
    let end = write_until_refused(&mut m, &world, "m", 0, 768);
    let p_end = write_until_refused(&mut p, &world, "p", 96, 768);
    for is_killed in [true, false] {
        if is_killed {
            world.kill();
            world.start();
        } else {
            restart(&mut world);
        }
        let mut clients = [client(&world, "m"), client(&world, "p")];
        m.write(&mut clients[0], 5 * MIB, 4 * MIB, 3);
        p.write(&mut clients[1], 5 * MIB, MIB, 3);
        assert_eq!(m.try_write(&mut clients[0], end * MIB, MIB, 3), NO_SPACE);
        assert_eq!(p.try_write(&mut clients[1], p_end * MIB, MIB, 3), NO_SPACE);
        m.expect(&world, "full");
        p.expect(&world, "full");
    }
    // What a discard gives back, another write has.
    let mut client_m = client(&world, "m");
    m.trim(&mut client_m, 8 * MIB, 8 * MIB);
    client_m.flush();
    let again = m.try_write(&mut client_m, end * MIB, 4 * MIB, 4);
    assert_eq!(again, 0, "a discard of 8 MiB has given no room to 4");
    restart(&mut world);
    m.expect(&world, "behind a discard");
    let free = df(&world, "free_bytes");
    world.post("/v1/pools/tank/spaces/p/unserve", &json!({}));
    world.post("/v1/pools/tank/spaces/p/delete", &json!({"purge": true, "destroy": "tank/p"}));
    idle(&world);
    assert!(df(&world, "free_bytes") > free + (96 << 20), "a deletion has given no room");
    let further = write_until_refused(&mut m, &world, "m", end + 4, 768);
    assert!(further > end + 32, "{further}");
    world.post(DISKS, &json!({"disks": [world.disk("d3")]}));
    idle(&world);
    world.kill();
    world.start();
    let last = write_until_refused(&mut m, &world, "m", further, 1024);
    assert!(last > further + 32, "a disk more has given no room");
    m.expect(&world, "with a disk more");
    expect_scrubbed(&world);
}
