//! The suites of the two seams, run by the implementors in memory: so that the suites themselves are tested, and the
//! sessions here are tested on implementors that keep their contracts.

use std::rc::Rc;

use crate::world::World;

#[test]
fn the_export_in_memory_keeps_the_contract() {
    let world = World::new(1);
    let (disk, arena) = (Rc::clone(&world.server.exports().disk), world.arena.clone());
    world.run(async move { dolmen_nbd::conformance::export(disk.as_ref(), disk.as_ref(), &arena).await });
    assert_eq!(world.arena.lent_count(), 0);
}

#[test]
fn the_connection_in_memory_keeps_the_contract() {
    for seed in 0..20 {
        let world = World::new(seed);
        let [a, b] = world.stream();
        let arena = world.arena.clone();
        world.run(async move { dolmen_nbd::conformance::connection(a.as_ref(), b.as_ref(), &arena).await });
        assert_eq!(world.arena.lent_count(), 0);
    }
}
