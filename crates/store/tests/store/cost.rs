//! What it costs: pages read and written, with a cache far smaller than the tree.

use dolmen_store::Key;

use crate::world::{World, key, value};

#[cfg(debug_assertions)]
const ENTRIES: u64 = 60_000;
#[cfg(not(debug_assertions))]
const ENTRIES: u64 = 1_000_000;
const CHECKPOINTS: u64 = 5;
const CACHE_PAGES: usize = 32;

#[test]
fn a_large_map_is_filled_and_scanned_in_a_small_cache() {
    // Scenario: entries of 60 bytes in scattered order, some checkpoints, then one scan and one look-up in every 1,000.
    // End: the cache stays within its bound; a scan reads each page about once, a look-up a path.
    let world = World::blank(1, usize::try_from(ENTRIES).unwrap() / 40);
    world.format();
    let store = world.try_open(&[0], CACHE_PAGES).unwrap().0;
    for number in 0..ENTRIES {
        store.put(key(number), &value(number, 0, 60));
        if number % (ENTRIES / CHECKPOINTS) == ENTRIES / CHECKPOINTS - 1 {
            world.checkpoint(&store, 1);
        }
    }
    let filled = store.stats();
    assert_eq!(filled.entries, ENTRIES);
    // Every checkpoint rewrites every leaf at worst.
    assert!(filled.page_writes <= CHECKPOINTS * (filled.pages_used + 8), "{filled:?}");
    let scanner = std::rc::Rc::clone(&store);
    let seen = world.run(async move {
        let (mut seen, mut from) = (0, Key::MIN);
        while let Some((last, _)) = {
            let part = scanner.scan(from..Key::MAX, 4096).await.unwrap();
            assert!(part.is_sorted_by(|a, b| a.0 < b.0));
            seen += part.len() as u64;
            part.into_iter().last()
        } {
            from = last.next().unwrap();
        }
        seen
    });
    let scanned = store.stats();
    assert_eq!(seen, ENTRIES);
    assert!(
        scanned.page_reads - filled.page_reads <= filled.pages_used * 11 / 10 + 8,
        "{filled:?} {scanned:?}"
    );
    for number in (0..ENTRIES).step_by(1000) {
        assert_eq!(world.get(&store, key(number)).unwrap(), Some(value(number, 0, 60)));
    }
    let read = store.stats();
    assert!(read.page_reads - scanned.page_reads <= ENTRIES / 1000 * read.height as u64);
    assert!(read.cache_pages <= CACHE_PAGES);
    assert_eq!(world.seams.metadata.lent_count(), 0);
    println!("{filled:?}\n{scanned:?}\n{read:?}");
}

#[test]
fn a_small_change_of_a_large_map_writes_a_path() {
    let world = World::blank(1, 1200);
    world.format();
    let store = world.open();
    (0..20_000).for_each(|number| store.put(key(number), &value(number, 0, 60)));
    world.checkpoint(&store, 1);
    let before = store.stats();
    store.put(key(7), b"other");
    world.checkpoint(&store, 2);
    let after = store.stats();
    let written = after.page_writes - before.page_writes;
    assert!(written <= before.height as u64 + 3, "{written} pages for one change");
}

#[test]
fn a_scan_aside_leaves_the_cache_to_others() {
    // Scenario: thirty scattered keys are looked up, which fills half of the cache, and others fill the rest; then the whole map is
    // scanned aside, twice. End: the pages of the thirty keys are still in the cache, but for the sixteenth that the scan took. An
    // ordinary scan displaces them all.
    const CACHE_PAGES: usize = 64;
    let world = World::blank(1, 2400);
    world.format();
    let store = world.try_open(&[0], CACHE_PAGES).unwrap().0;
    (0..40_000).for_each(|number| store.put(key(number), &value(number, 0, 60)));
    world.checkpoint(&store, 1);
    let hot = || (0..30).map(|nth| key(nth * 1320));
    let reads_of_hot = || {
        let before = store.stats().page_reads;
        hot().for_each(|key| assert!(world.get(&store, key).unwrap().is_some()));
        store.stats().page_reads - before
    };
    let scan = |is_aside: bool| {
        let scanner = std::rc::Rc::clone(&store);
        let seen = world.run(async move {
            let (mut seen, mut range) = (0, Key::MIN..Key::MAX);
            loop {
                let part = match is_aside {
                    true => scanner.scan_aside(range.clone(), 100).await.unwrap(),
                    false => scanner.scan(range.clone(), 100).await.unwrap(),
                };
                seen += part.len();
                let Some((last, _)) = part.last() else { return seen };
                range.start = last.next().unwrap();
            }
        });
        assert_eq!(seen, 40_000);
    };
    reads_of_hot();
    (0..40).for_each(|nth| assert!(world.get(&store, key(nth * 800 + 200)).unwrap().is_some()));
    reads_of_hot();
    assert_eq!(reads_of_hot(), 0);
    assert_eq!(store.stats().cache_pages, CACHE_PAGES);
    for _ in 0..2 {
        scan(true);
        let reads = reads_of_hot();
        assert!(reads <= CACHE_PAGES as u64 / 16 + 2, "{reads} pages of others were displaced");
    }
    scan(false);
    let reads = reads_of_hot();
    assert!(reads > 20, "an ordinary scan displaces {reads} pages");
}
