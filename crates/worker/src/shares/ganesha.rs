//! Export blocks of Ganesha: one file for each share, in a folder that its configuration reads.
//!
//! Ganesha reads every file of that folder, hidden ones too. So a new file is written beside the folder, and renamed into it.

use std::fs;
use std::num::NonZeroU16;
use std::path::{Path, PathBuf};

use dolmen_mutation::mutation;
use dolmen_volume::nfs::{GaneshaBlock, ganesha_blocks, ganesha_export, ganesha_folder_line, reads_folder};
use dolmen_volume::record::{NetworkGrant, Protocol};
use dolmen_volume::share_mark::ShareMark;
use rustix::process::{Pid, Signal, kill_process};

use super::kernel::refused;
use super::order::{Ganesha, ListedShare};
use super::own_file;
use crate::protocol::{Failure, FailureCode};

/// Name of its process.
const PROCESS: &str = "ganesha.nfsd";

/// A file with blocks.
struct Blocks {
    path: PathBuf,
    mark: Option<ShareMark>,
    blocks: Vec<GaneshaBlock>,
}

fn unreadable(path: &Path, error: &dyn std::fmt::Display, hint: &str) -> Failure {
    let message = format!("{}: {error}; no export was changed", path.display());
    Failure { code: FailureCode::BadPath, message, hint: hint.to_owned() }
}

fn file_of(mark: ShareMark, ganesha: &Ganesha) -> PathBuf {
    ganesha.blocks_dir.join(mark.file_name("conf"))
}

fn configuration(ganesha: &Ganesha) -> Result<String, Failure> {
    let path = &ganesha.ganesha_conf;
    fs::read_to_string(path).map_err(|error| unreadable(path, &error, "name the configuration of Ganesha"))
}

/// Fails unless the configuration reads the folder of blocks.
fn require_read(ganesha: &Ganesha, text: &str) -> Result<(), Failure> {
    let folder = ganesha.blocks_dir.to_string_lossy();
    if reads_folder(text, &folder) {
        return Ok(());
    }
    let line = ganesha_folder_line(&folder);
    let path = ganesha.ganesha_conf.display();
    Err(Failure {
        code: FailureCode::ServerSettings,
        message: format!("{path} does not read the exports of {folder}; no export was changed"),
        hint: format!("make the folder, add the line '{line}' to {path}, and start Ganesha again"),
    })
}

/// Files with blocks: the configuration and those of the folder.
fn all_blocks(ganesha: &Ganesha, text: &str) -> Result<Vec<Blocks>, Failure> {
    let mut all =
        vec![Blocks { path: ganesha.ganesha_conf.clone(), mark: None, blocks: ganesha_blocks(text) }];
    for (path, _) in own_file::files(&ganesha.blocks_dir, "")? {
        let text = fs::read_to_string(&path).map_err(|error| unreadable(&path, &error, ""))?;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let mark = own_file::mark_of(&name, ".conf");
        all.push(Blocks { path, mark, blocks: ganesha_blocks(&text) });
    }
    Ok(all)
}

/// Returns a number for the block of a share, which no other block has. A share keeps its number as long as it keeps its path:
/// Ganesha takes no other path for a number that it knows, and would go on with the folder of before. A new number comes from
/// share and path, so that it is hardly one that Ganesha still knows from a block that is deleted and not yet forgotten.
fn number_for(mark: ShareMark, path: &str, all: &[Blocks]) -> Option<NonZeroU16> {
    let is_own = |file: &&Blocks| file.mark == Some(mark);
    let others = all.iter().filter(|file| !is_own(file)).flat_map(|file| &file.blocks);
    let mut taken: Vec<u16> = others.filter_map(|block| block.number).collect();
    if let Some(block) = all.iter().filter(is_own).flat_map(|file| &file.blocks).next() {
        let is_kept = block.path == path || mutation!(ExportNumberKept);
        match block
            .number
            .and_then(NonZeroU16::new)
            .filter(|number| is_kept && !taken.contains(&number.get()))
        {
            Some(number) => return Some(number),
            None => taken.extend(block.number),
        }
    }
    let first = drawn(&format!("{mark}{path}"));
    let mut free = (first..=u16::MAX).chain(1..first).filter(|number| !taken.contains(number));
    free.find_map(NonZeroU16::new)
}

/// Draws a number from a text, the same one each time (FNV-1a).
fn drawn(text: &str) -> u16 {
    let sum =
        text.bytes().fold(0x811c_9dc5_u32, |sum, byte| (sum ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    let [high, low, ..] = (sum ^ sum << 16).to_be_bytes();
    u16::from_be_bytes([high, low])
}

/// Exports the folder of a share, and returns whether anything was changed.
pub(super) fn put(
    mark: ShareMark,
    path: &str,
    networks: &[NetworkGrant],
    ganesha: &Ganesha,
    notes: &mut Vec<String>,
) -> Result<bool, Failure> {
    let text = configuration(ganesha)?;
    require_read(ganesha, &text)?;
    let all = all_blocks(ganesha, &text)?;
    let is_foreign =
        |file: &&Blocks| file.mark != Some(mark) && file.blocks.iter().any(|block| block.path == path);
    if let Some(foreign) = all.iter().find(is_foreign) {
        return Err(Failure {
            code: FailureCode::ForeignData,
            message: format!(
                "{path} is exported already, by {}; it is left as it is",
                foreign.path.display()
            ),
            hint: "end the other export".to_owned(),
        });
    }
    let number = number_for(mark, path, &all).ok_or_else(|| Failure {
        code: FailureCode::Refused,
        message: "Ganesha has 65,535 exports, and takes no more".to_owned(),
        hint: "remove exports".to_owned(),
    })?;
    let Some(wanted) = ganesha_export(number, path, networks).map_err(|error| refused(&error))? else {
        notes.push("no host was granted the share over NFS, so there is no export".to_owned());
        return remove(mark, ganesha, notes);
    };
    let file = file_of(mark, ganesha);
    let is_changed = own_file::read(&file)?.as_deref() != Some(&wanted);
    if is_changed {
        let beside = ganesha.blocks_dir.parent().unwrap_or(Path::new("/"));
        let by = beside.join(format!(".{}.new", mark.file_name("conf")));
        own_file::replace(&file, &by, &wanted)?;
    }
    reload(ganesha, notes)?;
    Ok(is_changed)
}

/// Takes the block of a share away, and returns whether there was one.
pub(super) fn remove(mark: ShareMark, ganesha: &Ganesha, notes: &mut Vec<String>) -> Result<bool, Failure> {
    let file = file_of(mark, ganesha);
    let is_there = own_file::read(&file)?.is_some();
    if is_there {
        own_file::delete(&file)?;
    }
    // Also without a file: a worker that died behind the deletion has sent the server no signal.
    if ganesha.pid_file.exists() {
        reload(ganesha, notes)?;
    }
    Ok(is_there)
}

/// Lets Ganesha read its exports again.
fn reload(ganesha: &Ganesha, notes: &mut Vec<String>) -> Result<(), Failure> {
    let path = &ganesha.pid_file;
    let text = fs::read_to_string(path).unwrap_or_default();
    let pid = text.trim().parse().ok().and_then(Pid::from_raw);
    let is_it = |pid: Pid| {
        let name = fs::read_to_string(format!("/proc/{}/comm", pid.as_raw_pid())).unwrap_or_default();
        name.trim() == PROCESS
    };
    match pid.filter(|pid| is_it(*pid)) {
        Some(pid) => kill_process(pid, Signal::HUP).map_err(|error| Failure {
            code: FailureCode::Refused,
            message: format!("Ganesha, process {}, takes no signal: {error}", pid.as_raw_pid()),
            hint: "run the worker as root".to_owned(),
        }),
        None => {
            notes.push(format!(
                "{} names no process of Ganesha, so it reads the change when it starts",
                path.display()
            ));
            Ok(())
        }
    }
}

/// Lists export blocks, those of others too.
pub(super) fn list(ganesha: &Ganesha) -> Result<Vec<ListedShare>, Failure> {
    if !ganesha.ganesha_conf.exists() {
        return Ok(Vec::new());
    }
    let text = configuration(ganesha)?;
    let is_read = reads_folder(&text, &ganesha.blocks_dir.to_string_lossy());
    let mut listed = Vec::new();
    for file in all_blocks(ganesha, &text)? {
        let is_available = is_read || file.path == ganesha.ganesha_conf;
        listed.extend(file.blocks.into_iter().map(|block| ListedShare {
            protocol: Protocol::Nfs,
            name: file.path.display().to_string(),
            path: block.path,
            mark: file.mark,
            is_available,
        }));
    }
    Ok(listed)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARK: &str = "01020304-0506-0708-090a-0b0c0d0e0f10/2/3";
    const OTHER: &str = "01020304-0506-0708-090a-0b0c0d0e0f10/2/4";

    struct Rig {
        folder: tempfile::TempDir,
        ganesha: Ganesha,
    }

    impl Rig {
        fn new(conf: &str) -> Self {
            let folder = tempfile::tempdir().unwrap();
            let path = |name: &str| folder.path().join(name);
            fs::create_dir(path("blocks")).unwrap();
            let ganesha =
                Ganesha { ganesha_conf: path("conf"), blocks_dir: path("blocks"), pid_file: path("pid") };
            let line = ganesha_folder_line(&path("blocks").to_string_lossy());
            fs::write(path("conf"), conf.replace("LINE", &line)).unwrap();
            Self { folder, ganesha }
        }

        fn put(&self, mark: &str, path: &str, client: &str) -> Result<bool, Failure> {
            let grant = serde_json::json!([{"client": client, "access": "read-write"}]);
            let networks: Vec<NetworkGrant> = serde_json::from_value(grant).unwrap();
            put(mark_of(mark), path, &networks, &self.ganesha, &mut Vec::new())
        }

        fn blocks(&self) -> Vec<(Option<u16>, String)> {
            let text = configuration(&self.ganesha).unwrap();
            let all = all_blocks(&self.ganesha, &text).unwrap();
            all.into_iter().flat_map(|file| file.blocks).map(|block| (block.number, block.path)).collect()
        }
    }

    fn mark_of(text: &str) -> ShareMark {
        ShareMark::try_from(text.to_owned()).unwrap()
    }

    #[test]
    fn a_share_keeps_its_number_and_takes_none_of_another_export() {
        let rig = Rig::new("LINE\n");
        let number = |path: &str| {
            let blocks = rig.blocks();
            let numbers: Vec<_> =
                blocks.iter().filter(|block| block.1 == path).map(|block| block.0).collect();
            assert_eq!(numbers.len(), 1, "{blocks:?}");
            numbers[0].unwrap()
        };
        assert!(rig.put(MARK, "/srv/a", "10.0.0.0/8").unwrap());
        assert!(!rig.put(MARK, "/srv/a", "10.0.0.0/8").unwrap());
        let first = number("/srv/a");
        // Another export has the number that the next one would get.
        let taken = drawn(&format!("{}/srv/b", mark_of(OTHER)));
        let by_hand = format!("EXPORT {{ Export_Id = {taken}; Path = /by/hand; }}\n");
        fs::write(rig.folder.path().join("blocks/hand.conf"), by_hand).unwrap();
        assert!(rig.put(OTHER, "/srv/b", "10.0.0.0/8").unwrap());
        assert_eq!(number("/srv/b"), taken + 1);
        assert!(rig.put(MARK, "/srv/a", "10.1.0.0/16").unwrap());
        assert_eq!(number("/srv/a"), first);
        // Ganesha would go on with the old folder under the old number.
        assert!(rig.put(MARK, "/srv/c", "10.1.0.0/16").unwrap());
        assert_ne!(number("/srv/c"), first, "another folder kept the number");
        assert!(remove(mark_of(MARK), &rig.ganesha, &mut Vec::new()).unwrap());
        assert!(!remove(mark_of(MARK), &rig.ganesha, &mut Vec::new()).unwrap());
        let paths: Vec<_> = rig.blocks().into_iter().map(|block| block.1).collect();
        assert_eq!(paths, ["/srv/b", "/by/hand"]);
        let names: Vec<_> =
            fs::read_dir(rig.folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names.len(), 2, "{names:?}");
    }

    #[test]
    fn an_export_of_another_and_a_folder_that_is_not_read_are_refused() {
        let rig = Rig::new("EXPORT { Export_Id = 1; Path = \"/by/hand\"; }\nLINE\n");
        assert_eq!(rig.put(MARK, "/by/hand", "10.0.0.0/8").unwrap_err().code, FailureCode::ForeignData);
        assert!(rig.put(MARK, "/srv/a", "10.0.0.0/8").unwrap());
        assert_eq!(rig.put(OTHER, "/srv/a", "10.0.0.0/8").unwrap_err().code, FailureCode::ForeignData);
        let unread = Rig::new("NFSv4 { }\n");
        let refused = unread.put(MARK, "/srv/a", "10.0.0.0/8").unwrap_err();
        assert_eq!(refused.code, FailureCode::ServerSettings);
        assert!(refused.hint.contains("%dir \"/"), "{}", refused.hint);
    }
}
