//! Names and units, beside systemd's own tools.

use crate::{printed, run};
use dolmen_volume::mount_point::MountPoint;
use dolmen_volume::unit::{self, Boot};

/// Odd texts, none of which begins with a slash.
const ODD: [&str; 16] = [
    "tank/home",
    "a-b",
    "-a",
    ".a",
    "..a",
    "a.b",
    "ä ö",
    "a\\b",
    "a\"b'c",
    "100%",
    "$HOME",
    "a=b;c",
    "[Unit]",
    "a:b_c@d",
    "tab\there",
    "日本",
];

#[test]
fn names_are_escaped_as_systemd_escape_does() {
    for text in ODD {
        let Some(output) = run("systemd-escape", &["--", text]) else { return };
        assert_eq!(printed(&output).trim_end_matches('\n'), unit::escape(text), "{text:?}");
        let path = format!("/srv/{text}");
        if let Ok(mount_point) = path.parse::<MountPoint>() {
            let output = run("systemd-escape", &["--path", "--", &path]).unwrap();
            assert_eq!(printed(&output).trim_end_matches('\n'), unit::escape_path(&mount_point), "{path:?}");
        }
    }
}

/// Units of oddly named volumes and places pass the check of systemd without a word.
#[test]
fn systemd_accepts_the_units() {
    if run("systemd-analyze", &["--version"]).is_none() {
        return;
    }
    let folder = std::env::temp_dir().join(format!("dolmen-units-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let service = unit::service_unit("/bin/true", &["", ";", "%h", "a\nExecStart=/bin/false\n"]).unwrap();
    std::fs::write(path(unit::SERVICE), &service).unwrap();
    for text in ODD {
        let Ok(mount_point) = format!("/srv/{}", text.replace('/', "_")).parse::<MountPoint>() else {
            continue;
        };
        let unit = unit::mount_unit("0f", text, &mount_point, Boot::Mounted).unwrap();
        std::fs::write(path(&unit.name), &unit.text).unwrap();
        let output =
            run("systemd-analyze", &["verify", "--man=no", &path(unit::SERVICE), &path(&unit.name)]).unwrap();
        let complaints = printed(&output);
        // Complaints about units of the host itself are not ours. systemd before 254 leaves out a key that it does not know.
        let is_ours = |line: &&str| {
            (line.contains("dolmen") || line.contains(&unit.name))
                && !(line.contains("Unknown key") && line.contains("'DelegateSubgroup'"))
        };
        let ours: Vec<_> = complaints.lines().filter(is_ours).collect();
        assert!(ours.is_empty(), "{text:?}: {ours:?}\n{}", unit.text);
    }
    std::fs::remove_dir_all(&folder).unwrap();
}
