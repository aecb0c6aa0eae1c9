//! File systems on attached spaces, and what becomes of them when the power fails.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::json;

use crate::bench::blocks;
use crate::client::{World, eventually};
use crate::power::{run, shut_down};

/// A space that is attached, with a file system of some kind that is mounted.
pub(crate) struct Mounted {
    space: String,
    pub(crate) kind: &'static str,
    /// The link to the device.
    link: PathBuf,
    device: String,
    /// Where the daemon has its files mounted.
    attached: PathBuf,
    pub(crate) at: PathBuf,
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

impl Mounted {
    /// Makes a file system on a space of the tank and mounts it; why not, where this machine cannot.
    pub(crate) fn new(world: &World, space: &str, kind: &'static str) -> Result<Self, String> {
        run(&format!("mkfs.{kind}"), &["-V"])?;
        let mut mounted = Self::attach(world, space, kind)?;
        let quiet: &[&str] = if kind == "xfs" { &["-q", "-f"] } else { &["-q", "-F"] };
        run(&format!("mkfs.{kind}"), &[quiet, &[&mounted.device]].concat()).unwrap();
        mounted.mount().map(|()| mounted)
    }

    fn attach(world: &World, space: &str, kind: &'static str) -> Result<Self, String> {
        let path = format!("/v1/pools/tank/spaces/{space}/attach");
        let (status, answer) = world.try_ask("POST", &path, br#"{"transport": "loop"}"#).unwrap();
        let code = &answer["error"]["code"];
        if code == "missing" || code == "permission" {
            return Err(answer["error"]["message"].to_string());
        }
        assert_eq!(status, 200, "{answer}");
        let folder = world.folder.path();
        let link = folder.join("dev/tank").join(space);
        let at = folder.join(format!("mnt-{space}"));
        fs::create_dir_all(&at).unwrap();
        let device = text(&fs::canonicalize(&link).unwrap());
        Ok(Self { space: space.to_owned(), kind, link, device, attached: folder.join("run/attached"), at })
    }

    pub(crate) fn mount(&mut self) -> Result<(), String> {
        self.device = text(&fs::canonicalize(&self.link).unwrap());
        run("mount", &["-t", self.kind, &self.device, &text(&self.at)]).map(drop)
    }

    /// As behind a boot: the space is attached again, unless the daemon has done that, and mounted.
    pub(crate) fn mount_again(&mut self, world: &World) {
        world.post(&format!("/v1/pools/tank/spaces/{}/attach", self.space), &json!({"transport": "loop"}));
        self.mount().unwrap();
    }

    /// Writes a file of these contents and has it on the disk; whether all of that was acknowledged.
    pub(crate) fn write_file(&self, name: &str, content: &[u8]) -> std::io::Result<()> {
        let mut file = fs::File::create(self.at.join(name))?;
        std::io::Write::write_all(&mut file, content)?;
        file.sync_all()
    }

    pub(crate) fn expect_file(&self, name: &str, content: &[u8], when: &str) {
        let found = fs::read(self.at.join(name)).unwrap_or_else(|error| panic!("{when}: {name}: {error}"));
        assert!(found == content, "{when}: {name} on {} is not what was acknowledged", self.kind);
    }

    /// Unmounts it, and has its own checker look at it.
    pub(crate) fn expect_sound(&self, when: &str) {
        eventually("it is unmounted", || run("umount", &[&text(&self.at)]).ok());
        let (program, option) = if self.kind == "xfs" { ("xfs_repair", "-n") } else { ("fsck.ext4", "-fn") };
        let stated = run(program, &[option, &self.device]);
        assert!(stated.is_ok(), "{when}: {stated:?}");
    }

    /// What becomes of it when the machine loses its power: what it had not written goes with the machine's memory.
    pub(crate) fn dies(&self) {
        shut_down(&self.at);
    }

    /// What else a machine without power has not any more. The daemon and its descriptor holder are dead.
    pub(crate) fn is_released(&self) {
        let at = text(&self.at);
        eventually("a dead file system is unmounted", || run("umount", &[&at]).ok());
        let _ = run("losetup", &["--detach", &self.device]);
        let _ = run("umount", &["--lazy", &text(&self.attached)]);
        let _ = fs::remove_file(&self.link);
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = run("umount", &["--lazy", &text(&self.at)]);
        let _ = run("losetup", &["--detach", &self.device]);
        let _ = run("umount", &["--lazy", &text(&self.attached)]);
    }
}

/// What a file with this number holds.
pub(crate) fn file_content(number: usize, length: usize) -> Vec<u8> {
    blocks(number * length, length, u8::try_from(number % 251).unwrap_or_default())
}

/// Processes that a process has begun.
pub(crate) fn children_of(pid: u32) -> Vec<i32> {
    let of = |entry: fs::DirEntry| {
        let child: i32 = entry.file_name().to_str()?.parse().ok()?;
        let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
        let parent = stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse::<u32>().ok()?;
        (parent == pid).then_some(child)
    };
    fs::read_dir("/proc").unwrap().filter_map(|entry| of(entry.ok()?)).collect()
}
