//! One target of `dolmen-fuzz`, the one that `DOLMEN_FUZZ_TARGET` names, under libFuzzer (`scripts/fuzz.sh`).
#![no_main]

use std::sync::LazyLock;

use dolmen_fuzz::{TARGETS, Target, target};
use libfuzzer_sys::{Corpus, fuzz_target};

static TARGET: LazyLock<Target> = LazyLock::new(|| {
    let name = std::env::var("DOLMEN_FUZZ_TARGET").unwrap_or_default();
    target(&name).unwrap_or_else(|| {
        let names = TARGETS.map(|target| target.name).join(", ");
        panic!("DOLMEN_FUZZ_TARGET is '{name}', which is none of {names}")
    })
});

fuzz_target!(|data: &[u8]| -> Corpus {
    let _ = (TARGET.run)(data);
    Corpus::Keep
});
