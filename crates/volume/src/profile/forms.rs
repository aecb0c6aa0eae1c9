//! Forms of the options that profiles give `mkfs`.
//!
//! `mkfs` runs as root, and its options come from a record, which another host may have written: `-l logdev=/dev/sdb` would write to
//! a disk of this host. So each option has to have a form of this table, and no form has room for a path.

use crate::file_system::{FileSystem, FileSystemUuid, Label};

/// Form of a value.
#[derive(Debug, Clone, Copy)]
enum Form {
    /// This text.
    Text(&'static str),
    /// A key, `=`, and 0 or 1.
    Switch(&'static str),
    /// A key, `=`, and a number.
    Number(&'static str),
    /// A UUID.
    Uuid,
    /// A key, `=`, and a UUID.
    KeyedUuid(&'static str),
    /// A label of the file system.
    Label,
}

use Form::{KeyedUuid, Number, Switch, Text, Uuid};

/// An option with a value: a list with commas between, or one form.
type Valued = (&'static str, &'static [Form]);

/// Options without a value.
const FLAGS: [&str; 3] = ["-q", "-K", "--mixed"];

const XFS: &[Valued] = &[
    (
        "-m",
        &[
            KeyedUuid("uuid"),
            Switch("reflink"),
            Switch("rmapbt"),
            Switch("bigtime"),
            Switch("inobtcount"),
            Switch("metadir"),
        ],
    ),
    ("-i", &[Switch("nrext64"), Switch("exchange")]),
    ("-n", &[Switch("parent")]),
    ("-d", &[Text("noalign"), Number("su"), Number("sw")]),
    ("-s", &[Text("size=4096")]),
    ("-L", &[Form::Label]),
];

const BTRFS: &[Valued] = &[
    ("-U", &[Uuid]),
    ("-d", &[Text("single")]),
    ("-m", &[Text("single"), Text("dup")]),
    ("-s", &[Text("4096")]),
    ("-n", &[Text("4096")]),
    ("-O", &[Text("block-group-tree"), Text("^block-group-tree")]),
    ("-L", &[Form::Label]),
];

const EXT4: &[Valued] = &[
    ("-t", &[Text("ext4")]),
    ("-b", &[Text("4096")]),
    ("-I", &[Text("256")]),
    ("-m", &[Text("0")]),
    ("-e", &[Text("remount-ro")]),
    ("-O", &[Text("metadata_csum"), Text("64bit"), Text("orphan_file"), Text("^orphan_file")]),
    ("-U", &[Uuid]),
    (
        "-E",
        &[Number("stride"), Number("stripe_width"), Text("nodiscard"), Text("assume_storage_prezeroed=1")],
    ),
    ("-L", &[Form::Label]),
];

impl Form {
    fn has(self, file_system: FileSystem, text: &str) -> bool {
        let is_number = |text: &str| {
            !text.is_empty() && text.len() <= 20 && text.bytes().all(|byte| byte.is_ascii_digit())
        };
        let value_of = |key: &str| text.strip_prefix(key)?.strip_prefix('=');
        let is_uuid = |text: &str| text.parse::<FileSystemUuid>().is_ok();
        match self {
            Self::Text(form) => text == form,
            Self::Switch(key) => value_of(key).is_some_and(|value| matches!(value, "0" | "1")),
            Self::Number(key) => value_of(key).is_some_and(is_number),
            Self::Uuid => is_uuid(text),
            Self::KeyedUuid(key) => value_of(key).is_some_and(is_uuid),
            Self::Label => Label::new(text, file_system).is_ok(),
        }
    }
}

/// Returns the first of the options of `mkfs` that no profile gives, with its value.
pub(crate) fn option_of_no_profile(file_system: FileSystem, options: &[String]) -> Option<String> {
    let table = match file_system {
        FileSystem::Xfs => XFS,
        FileSystem::Btrfs => BTRFS,
        FileSystem::Ext4 => EXT4,
    };
    let mut rest = options.iter().map(String::as_str);
    while let Some(option) = rest.next() {
        if FLAGS.contains(&option) {
            continue;
        }
        let Some((_, forms)) = table.iter().find(|(name, _)| *name == option) else {
            return Some(option.to_owned());
        };
        let Some(value) = rest.next() else { return Some(option.to_owned()) };
        let has_form = |part: &str| forms.iter().any(|form| form.has(file_system, part));
        // A label may hold commas.
        let is_given = match forms {
            [Form::Label] => has_form(value),
            _ => value.split(',').all(has_form),
        };
        if !is_given {
            return Some(format!("{option} {value}"));
        }
    }
    None
}
