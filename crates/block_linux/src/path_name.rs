//! Names for paths that are no UTF-8: documents, labels and records carry text.
//!
//! A byte that is no part of a character is written `\\xNN`. A path that is text is its own name; a name that leads nowhere as it
//! is, and has such escapes, is the path that they stand for.

use std::borrow::Cow;
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Returns the name of a path.
#[must_use]
pub fn name_of(path: &Path) -> String {
    let mut name = String::new();
    for chunk in path.as_os_str().as_bytes().utf8_chunks() {
        name.push_str(chunk.valid());
        chunk.invalid().iter().for_each(|byte| name.push_str(&format!("\\x{byte:02x}")));
    }
    name
}

/// Returns the path that a name stands for, whatever is there; none where it has no escapes.
#[must_use]
pub fn unescaped(name: &Path) -> Option<PathBuf> {
    let mut plain = Vec::new();
    let mut rest = name.as_os_str().as_bytes();
    let mut is_escaped = false;
    while let Some((first, tail)) = rest.split_first() {
        let digits = rest.strip_prefix(b"\\x").and_then(|digits| std::str::from_utf8(digits.get(..2)?).ok());
        // Only bytes above ASCII are ever escaped.
        let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()).filter(|byte| *byte >= 0x80);
        plain.push(byte.unwrap_or(*first));
        is_escaped |= byte.is_some();
        rest = if byte.is_some() { rest.get(4..).unwrap_or_default() } else { tail };
    }
    is_escaped.then(|| PathBuf::from(OsString::from_vec(plain)))
}

/// Returns the path that a name leads to. Looks whether there is something under the name as it is, where it has escapes.
#[must_use]
pub fn path_of(name: &Path) -> Cow<'_, Path> {
    match unescaped(name).filter(|_| fs::symlink_metadata(name).is_err()) {
        Some(path) => Cow::Owned(path),
        None => Cow::Borrowed(name),
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;

    /// Scenario: names with bytes that are no UTF-8, beside one that looks like such a name. Each leads to its own file.
    #[test]
    fn a_name_leads_to_its_path() {
        let folder = tempfile::tempdir().unwrap();
        for bytes in
            [&b"bad\xffname"[..], b"\xc3(\xf0\x9f", "größe".as_bytes(), b"plain", b"odd\\x41", b"\\xzz"]
        {
            let path = folder.path().join(OsStr::from_bytes(bytes));
            fs::write(&path, bytes).unwrap();
            let name = name_of(&path);
            assert_eq!(fs::read(path_of(Path::new(&name))).unwrap(), bytes, "{name}");
        }
        let literal = folder.path().join("bad\\xffname");
        assert_eq!(
            name_of(&folder.path().join(OsStr::from_bytes(b"bad\xffname"))),
            literal.display().to_string()
        );
        fs::write(&literal, "text").unwrap();
        assert_eq!(path_of(&literal), literal, "what is there as it is comes first");
        assert_eq!(unescaped(Path::new("/plain")), None);
    }
}
