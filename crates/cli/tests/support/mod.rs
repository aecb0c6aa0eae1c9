//! The daemon's program, which `dolmen daemon` executes, for tests of the command line.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Checks that `dolmend` lies beside `dolmen` and is newer than its sources. Cargo builds it with the workspace, and not with the
/// tests of this crate alone: an older one would be tested in its place.
pub(crate) fn check_daemon_program() {
    let program = Path::new(env!("CARGO_BIN_EXE_dolmen")).with_file_name("dolmend");
    let changed = |path: &Path| fs::metadata(path).and_then(|status| status.modified()).ok();
    let advice = "build it first: `cargo build --workspace --bins --locked`";
    let Some(built) = changed(&program) else { panic!("{} is missing; {advice}", program.display()) };
    // The file that cargo writes beside a program names its sources.
    let sources = fs::read_to_string(program.with_extension("d")).unwrap();
    let (_, sources) = sources.split_once(": ").unwrap();
    let newer: Vec<PathBuf> = sources
        .split_whitespace()
        .map(PathBuf::from)
        .filter(|source| changed(source).is_none_or(|changed: SystemTime| changed > built))
        .collect();
    assert!(newer.is_empty(), "{} is older than {newer:?}; {advice}", program.display());
}
