//! Sections of Samba, written by the real `net` into a registry of the test's own.

use crate::{printed, run};
use dolmen_units::PoolId;
use dolmen_volume::file_system::FileSystem;
use dolmen_volume::record::{Access, AccountGrant, AccountKind, Encryption, Unknown};
use dolmen_volume::samba::{Configuration, SectionError, ShareName, SmbShare, delete_command, server_faults};
use dolmen_volume::share_mark::ShareMark;
use dolmen_volume::version::Version;
use std::path::Path;

/// Runs a tool of Samba on the configuration of the test.
fn samba(program: &str, folder: &Path, arguments: &[String]) -> String {
    let configuration = folder.join("smb.conf").to_str().unwrap().to_owned();
    let option = if program == "net" {
        vec!["-s".to_owned(), configuration]
    } else {
        vec!["-s".to_owned(), "--".to_owned(), configuration]
    };
    let arguments: Vec<String> = option.iter().chain(arguments).cloned().collect();
    let output = run(program, &arguments).unwrap();
    assert!(output.status.success(), "{program} {arguments:?}: {}", printed(&output));
    String::from_utf8(output.stdout).unwrap()
}

/// Writes a configuration whose registry lies in the folder.
fn configure(folder: &Path) {
    let places = [
        "private dir",
        "lock directory",
        "state directory",
        "cache directory",
        "pid directory",
        "ncalrpc dir",
    ];
    let places: String = places.iter().map(|place| format!("\t{place} = {}\n", folder.display())).collect();
    // `include` opens the registry at once, so the places stand before it.
    let log = folder.join("log");
    let text = format!("[global]\n{places}\tlog file = {}\n\tinclude = registry\n", log.display());
    std::fs::write(folder.join("smb.conf"), text).unwrap();
}

/// A share with odd names is written, changed and deleted beside a section of somebody else, which stays as it is.
#[test]
fn a_registry_of_samba_holds_what_a_share_asks_for() {
    if run("net", &["--version"]).is_none() || run("testparm", &["--version"]).is_none() {
        return;
    }
    let folder = std::env::temp_dir().join(format!("dolmen-samba-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    configure(&folder);
    let net = |arguments: &[&str]| {
        let arguments: Vec<String> = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        samba("net", &folder, &arguments)
    };
    net(&["conf", "setparm", "--", "Photos", "comment", "by hand"]);
    let registry = || Configuration::parse(&net(&["conf", "list"])).unwrap();
    let apply = |commands: &[Vec<String>]| {
        for command in commands {
            let arguments: Vec<&str> = command.iter().skip(1).map(String::as_str).collect();
            net(&arguments);
        }
    };
    let grant = |to, name: &str, access| AccountGrant {
        to,
        name: name.parse().unwrap(),
        access,
        unknown: Unknown::new(),
    };
    let accounts = [
        grant(AccountKind::User, "EXAMPLE\\o'neil, jr", Access::ReadWrite),
        grant(AccountKind::Group, "Domain Users", Access::ReadOnly),
    ];
    let mark = ShareMark { pool: PoolId([1; 16]), space: 2, share: 3 };
    for name in ["-x", "Größe #1 '(alt) {b}"] {
        let name: ShareName = name.parse().unwrap();
        let share = SmbShare {
            name: &name,
            volume: "tank/home",
            path: "/srv/ä #;=[b] $HOME",
            accounts: &accounts,
            encryption: Encryption::Required,
            time_machine_bytes: Some(1 << 40),
            file_system: FileSystem::Btrfs,
            samba: Version::new(4, 17),
            mark,
        };
        for (share, changes) in
            [(share, true), (share, false), (SmbShare { accounts: &accounts[1..], ..share }, true)]
        {
            let commands = share.commands(&registry()).unwrap();
            assert_eq!(!commands.is_empty(), changes, "{commands:?}");
            apply(&commands);
            let mut found = registry().section(name.as_str()).unwrap().clone();
            let mut wanted = share.section().unwrap();
            found.parameters.sort();
            wanted.parameters.sort();
            assert_eq!(found.parameters, wanted.parameters);
        }
        let whole = Configuration::parse(&samba("testparm", &folder, &[])).unwrap();
        assert_eq!(server_faults(&whole), []);
        assert_eq!(whole.section(name.as_str()).unwrap().value("path"), Some(share.path));
        let photos: ShareName = "photos".parse().unwrap();
        let foreign = delete_command(&registry(), &photos, mark);
        assert_eq!(foreign, Err(SectionError::Foreign { name: "Photos".to_owned() }));
        apply(&[delete_command(&registry(), &name, mark).unwrap().unwrap()]);
        assert_eq!(delete_command(&registry(), &name, mark), Ok(None));
        assert_eq!(registry().section("photos").unwrap().value("comment"), Some("by hand"));
    }
    std::fs::remove_dir_all(&folder).unwrap();
}
