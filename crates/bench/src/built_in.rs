//! The profiles that need no file, and their names.

use dolmen_units::Bytes;

use crate::profile::{Loads, Pattern, Profile};

/// Outstanding I/Os of the five load profiles.
const SWEEP: [u32; 9] = [1, 3, 8, 16, 32, 64, 128, 256, 512];
/// Lengths of the files that are written and read once.
const FILES: [Bytes; 4] = [Bytes::mib(128), Bytes::mib(256), Bytes::mib(512), Bytes::gib(1)];
/// I/Os under way on such a file: as many as a copy that reads ahead.
const FILES_OUTSTANDING: u32 = 8;
/// Steps of the sweep on which striping and spanning were compared.
const STRIPING_STEP: u32 = 8;
const STRIPING_STEPS: u32 = 32;
/// Outstanding I/Os of each worker of a fleet, and the workers.
const FLEET_OUTSTANDING: u32 = 40;
const FLEET_WORKERS: u32 = 4;
const FLEET_READS: [u8; 3] = [100, 70, 0];

/// Profiles that belong together, under a name of their own.
#[derive(Debug)]
pub struct Group {
    /// The name.
    pub name: &'static str,
    /// What they are for.
    pub title: &'static str,
    make: fn() -> Vec<Profile>,
}

impl Group {
    /// The profiles.
    #[must_use]
    pub fn profiles(&self) -> Vec<Profile> {
        (self.make)()
    }
}

/// All groups.
pub const GROUPS: [Group; 4] = [
    Group { name: "load", title: "five kinds of servers, 1 to 512 outstanding I/Os", make: load },
    Group { name: "files", title: "files of 128 MiB to 1 GiB, written and read once", make: files },
    Group {
        name: "striping",
        title: "random reads of 64 KiB, 8 to 256 outstanding I/Os in steps of 8",
        make: striping,
    },
    Group {
        name: "fleet",
        title: "4 workers with 40 outstanding I/Os each, 4 KiB and 64 KiB, 100, 70 and 0 % reads",
        make: fleet,
    },
];

/// A name that no profile has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no profile is called {found:?}; there are {known}")]
pub struct UnknownProfile {
    /// What was asked for.
    pub found: String,
    /// What there is.
    pub known: String,
}

/// The profiles of a name, which is that of a group or of a single one; `own` are those that somebody brought along.
///
/// # Errors
/// When nothing is called so.
pub fn profiles_named(name: &str, own: &[Profile]) -> Result<Vec<Profile>, UnknownProfile> {
    if let Some(found) = own.iter().find(|profile| profile.name == name) {
        return Ok(vec![found.clone()]);
    }
    if let Some(group) = GROUPS.iter().find(|group| group.name == name) {
        return Ok(group.profiles());
    }
    let all = || GROUPS.iter().flat_map(Group::profiles);
    match all().find(|profile| profile.name == name) {
        Some(found) => Ok(vec![found]),
        None => {
            let groups = GROUPS.iter().map(|group| group.name.to_owned());
            let mut names: Vec<String> = groups.chain(all().map(|profile| profile.name)).collect();
            names.extend(own.iter().map(|profile| profile.name.clone()));
            let mut seen = std::collections::BTreeSet::new();
            names.retain(|name| seen.insert(name.clone()));
            Err(UnknownProfile { found: name.to_owned(), known: names.join(", ") })
        }
    }
}

fn swept(name: &str, title: &str, block: Bytes, pattern: Pattern, reads_percent: u8) -> Profile {
    let loads = Loads::Outstanding(SWEEP.to_vec());
    Profile {
        name: name.to_owned(),
        title: title.to_owned(),
        block,
        pattern,
        reads_percent,
        workers: 1,
        loads,
    }
}

fn load() -> Vec<Profile> {
    let (large, small) = (Bytes::kib(64), Bytes::kib(8));
    vec![
        swept("file-copy", "File copy", large, Pattern::Random, 50),
        swept("file-server", "File server", large, Pattern::Random, 67),
        swept("database", "Database", small, Pattern::Random, 67),
        swept("streaming", "Streaming", large, Pattern::Sequential, 100),
        swept("restore", "Restore", large, Pattern::Sequential, 0),
    ]
}

fn files() -> Vec<Profile> {
    let loads = || Loads::Files { sizes: FILES.to_vec(), outstanding: FILES_OUTSTANDING };
    let one = |name, title, reads| Profile {
        loads: loads(),
        ..swept(name, title, Bytes::kib(64), Pattern::Sequential, reads)
    };
    vec![one("file-write", "File written", 0), one("file-read", "File read", 100)]
}

fn striping() -> Vec<Profile> {
    let loads = Loads::Outstanding((1..=STRIPING_STEPS).map(|step| step * STRIPING_STEP).collect());
    let random = swept("striping", "Striping against spanning", Bytes::kib(64), Pattern::Random, 100);
    vec![Profile { loads, ..random }]
}

fn fleet() -> Vec<Profile> {
    let one = |block: Bytes, reads: u8| {
        let kib = block.0 / 1024;
        let name = format!("fleet-{kib}k-{reads}");
        let title = format!("Fleet, {kib} KiB, {reads} % reads");
        let loads = Loads::Outstanding(vec![FLEET_OUTSTANDING]);
        Profile { workers: FLEET_WORKERS, loads, ..swept(&name, &title, block, Pattern::Random, reads) }
    };
    let blocks = [Bytes::kib(4), Bytes::kib(64)];
    blocks.into_iter().flat_map(|block| FLEET_READS.map(|reads| one(block, reads))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every built-in profile makes sense, and the load is what is promised.
    #[test]
    fn the_profiles_are_those_of_the_published_measurements() {
        for profile in GROUPS.iter().flat_map(Group::profiles) {
            assert_eq!(profile.check(), Ok(()), "{}", profile.name);
        }
        let message: Vec<String> =
            load().iter().map(|profile| format!("{}: {}", profile.title, profile.summary())).collect();
        assert_eq!(
            message,
            [
                "File copy: random, 50 % reads, 64 KiB",
                "File server: random, 67 % reads, 64 KiB",
                "Database: random, 67 % reads, 8 KiB",
                "Streaming: sequential, reads, 64 KiB",
                "Restore: sequential, writes, 64 KiB",
            ]
        );
        let depths =
            |profile: &Profile| -> Vec<u32> { profile.loads().iter().map(|load| load.outstanding).collect() };
        assert!(load().iter().all(|profile| depths(profile) == SWEEP));
        let striping = depths(&striping()[0]);
        assert_eq!((striping.len(), striping[0], striping[1], striping[31]), (32, 8, 16, 256));
        let fleet = fleet();
        assert_eq!(fleet.len(), 6);
        assert!(fleet.iter().all(|profile| profile.workers == 4 && depths(profile) == [40]));
        assert_eq!(fleet[1].summary(), "random, 70 % reads, 4 KiB, 4 workers");
    }

    #[test]
    fn an_unknown_name_lists_those_that_there_are() {
        assert_eq!(profiles_named("load", &[]).unwrap().len(), 5);
        assert_eq!(profiles_named("restore", &[]).unwrap().len(), 1);
        let own = Profile { name: "mail".to_owned(), ..load().remove(0) };
        let own = [own];
        assert_eq!(profiles_named("mail", &own).unwrap(), own);
        let error = profiles_named("mial", &own).unwrap_err().to_string();
        assert!(error.starts_with("no profile is called \"mial\"; there are load, files, striping, fleet, "));
        assert!(error.contains("fleet-64k-0") && error.ends_with("mail"), "{error}");
    }
}
