//! Rule: `docs/format/` describes the bytes that the code writes. Each table there is compared with the struct of
//! its name, and each on-disk struct has a table once its crate is documented at all.
//!
//! A table stands under a heading that names the type in backticks, `` `Label` `` or `` `disk::Label` ``, and begins
//! with the columns offset, size and field. A heading may add the total as `(4096 bytes)`.

use crate::finding::Finding;
use crate::layout::{Field, FormatStruct, Types};
use crate::modules::RustFile;
use crate::tree::Tree;

const FOLDER: &str = "docs/format/";

/// A table as a document gives it.
#[derive(Debug)]
struct Table<'a> {
    path: &'a str,
    line: usize,
    /// The name in the heading, perhaps with its crate.
    name: String,
    total: Option<u128>,
    rows: Vec<(usize, Result<Field, String>)>,
}

/// Compares all tables with all on-disk structs, in both directions.
pub(crate) fn check(tree: &Tree, files: &[RustFile]) -> Vec<Finding> {
    let types = Types::read(files);
    let documents: Vec<(&str, &str)> =
        tree.ending(".md").filter(|(path, _)| path.starts_with(FOLDER)).collect();
    let mut findings = Vec::new();
    let mut described = Vec::new();
    for (path, text) in &documents {
        for table in tables(path, text) {
            match subject(&types, &table, text) {
                Ok(subject) => {
                    described.push(&subject.id);
                    compare(&types, &table, subject, &mut findings);
                }
                Err(finding) => findings.push(finding),
            }
        }
    }
    for subject in types.formats.iter().filter(|subject| !described.contains(&&subject.id)) {
        if documents.iter().any(|(_, text)| names_crate(text, &subject.id.krate)) {
            let what = format!("{} is written to disk but {FOLDER} has no table of it", subject.id.name);
            let advice = format!("add a heading with `{}` and its table", subject.id.name);
            findings.push(Finding::new(&subject.path, subject.line, what, advice));
        }
    }
    findings
}

/// Whether a document says that it describes a crate's format.
fn names_crate(text: &str, krate: &str) -> bool {
    let package = format!("dolmen-{}", krate.replace('_', "-"));
    let names = [format!("`{package}`"), format!("crates/{krate}/"), format!("crates/{krate}`")];
    names.iter().any(|name| text.contains(name.as_str()))
}

/// The struct that a table describes.
fn subject<'a>(types: &'a Types, table: &Table<'_>, text: &str) -> Result<&'a FormatStruct, Finding> {
    let (krate, name) = match table.name.rsplit_once("::") {
        Some((krate, name)) => (Some(krate.trim_start_matches("dolmen_")), name),
        None => (None, table.name.as_str()),
    };
    let named = || types.formats.iter().filter(|subject| subject.id.name == name);
    let mut matching: Vec<&FormatStruct> =
        named().filter(|subject| krate.is_none_or(|krate| subject.id.krate == krate)).collect();
    if matching.len() > 1 {
        matching.retain(|subject| names_crate(text, &subject.id.krate));
    }
    match matching.as_slice() {
        [one] => Ok(one),
        [] if named().next().is_none() => {
            let what = format!("no format.rs has a repr(C) struct {name}");
            Err(Finding::new(table.path, table.line, what, "correct the heading or drop the table"))
        }
        _ => {
            let what = format!("several crates have a struct {name}");
            Err(Finding::new(table.path, table.line, what, format!("write `crate::{name}` in the heading")))
        }
    }
}

fn compare(types: &Types, table: &Table<'_>, subject: &FormatStruct, findings: &mut Vec<Finding>) {
    let name = &subject.id.name;
    let (fields, size) = match types.layout(&subject.id) {
        Ok(layout) => layout,
        Err(why) => {
            let what = format!("the layout of {name} cannot be worked out: {why}");
            findings.push(Finding::new(
                &subject.path,
                subject.line,
                what,
                "use zerocopy integers, bytes and plain constants",
            ));
            return;
        }
    };
    let advice = format!("make the table and {}:{} agree", subject.path, subject.line);
    let mut report =
        |line: usize, what: String| findings.push(Finding::new(table.path, line, what, advice.as_str()));
    for (at, (line, row)) in table.rows.iter().enumerate() {
        match (row, fields.get(at)) {
            (Err(why), _) => report(*line, format!("{name}: {why}")),
            (Ok(row), Some(field)) if row != field => {
                report(*line, format!("{name}: the table says {}, the struct says {}", say(row), say(field)));
            }
            (Ok(_), Some(_)) => {}
            (Ok(row), None) => report(*line, format!("{name}: the struct has no field {}", row.name)),
        }
    }
    for field in fields.iter().skip(table.rows.len()) {
        report(table.line, format!("{name}: the table lacks {}", say(field)));
    }
    if table.total.is_some_and(|total| total != size) {
        report(
            table.line,
            format!("{name}: the heading says {} bytes, the struct has {size}", table.total.unwrap_or(0)),
        );
    }
}

fn say(field: &Field) -> String {
    format!("{} at {} with {} bytes", field.name, field.offset, field.size)
}

/// The tables of a document that stand under a type's name.
fn tables<'a>(path: &'a str, text: &str) -> Vec<Table<'a>> {
    let mut found: Vec<Table<'a>> = Vec::new();
    let mut heading: Option<(usize, String, Option<u128>)> = None;
    let mut open = false;
    for (at, line) in text.lines().enumerate() {
        let cells = cells(line);
        if line.starts_with("##") {
            heading = type_heading(line).map(|(name, total)| (at + 1, name, total));
            open = false;
        } else if cells.is_empty() {
            open = false;
        } else if !open && is_head(&cells) {
            if let Some((line, name, total)) = heading.take() {
                found.push(Table { path, line, name, total, rows: Vec::new() });
                open = true;
            }
        } else if open && !cells.iter().all(|cell| cell.chars().all(|c| matches!(c, '-' | ':'))) {
            let row = row(&cells);
            if let Some(table) = found.last_mut() {
                table.rows.push((at + 1, row));
            }
        }
    }
    found
}

fn cells(line: &str) -> Vec<&str> {
    let inside = line.trim().strip_prefix('|').map(|rest| rest.strip_suffix('|').unwrap_or(rest));
    inside.map(|inside| inside.split('|').map(str::trim).collect()).unwrap_or_default()
}

fn is_head(cells: &[&str]) -> bool {
    ["offset", "size", "field"].iter().zip(cells).filter(|(name, cell)| cell.to_lowercase() == **name).count()
        == 3
}

/// The type named in a heading, and the total if it gives one.
fn type_heading(line: &str) -> Option<(String, Option<u128>)> {
    let mut parts = line.split('`');
    let name = parts.nth(1)?.to_owned();
    let total = line.split_once(" bytes").and_then(|(before, _)| number(before.rsplit([' ', '(']).next()?));
    let is_type = name.rsplit("::").next()?.starts_with(|c: char| c.is_uppercase());
    is_type.then_some((name, total))
}

fn row(cells: &[&str]) -> Result<Field, String> {
    let [offset, size, name, ..] = cells else { return Err("a row with fewer than three cells".to_owned()) };
    let offset = number(offset).ok_or_else(|| format!("{offset:?} is no offset"))?;
    let size = number(size).ok_or_else(|| format!("{size:?} is no size"))?;
    Ok(Field { offset, size, name: name.trim_matches('`').to_owned() })
}

/// A number in decimal or hexadecimal, or a product of two written `16 × 240`.
fn number(text: &str) -> Option<u128> {
    if let Some((left, right)) = text.split_once('×') {
        return number(left)?.checked_mul(number(right)?);
    }
    let digits: String = text.trim_matches('`').chars().filter(|c| !matches!(c, '_' | ',' | ' ')).collect();
    match digits.strip_prefix("0x") {
        Some(hexadecimal) => u128::from_str_radix(hexadecimal, 16).ok(),
        None => digits.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::modules::files_of;

    const CODE: &str = "
        use zerocopy::little_endian::{U16, U32, U64 as Long, U128};
        pub const NAME_BYTES: usize = 2 * size_of::<Head>() + (BLOCK as usize >> 0) * 0 + 4;
        pub const SLOTS: usize = 4;
        pub const REST: usize = BLOCK as usize - 76;
        type Id = [u8; 16];
        #[repr(C)] pub struct Head { magic: [u8; 8], pub length: U32, kind: Kind, reserved: [u8; 3] }
        #[repr(u8)] pub enum Kind { A = 1 }
        #[repr(C)] pub struct Label { pub head: Head, id: Id, slots: [U16; SLOTS], serial: zerocopy::U64<zerocopy::LE>, at: Long, wide: U128, spare: [u8; REST - 0] }
        struct Checked { a: u64 }
        #[cfg(test)] mod tests { #[repr(C)] struct Other { a: u8 } }
    ";
    const UNITS: &str = "pub const BLOCK: u64 = 4 * 1024;";
    const HEAD: &str = "## `Head` (16 bytes)\n| offset | size | field | says |\n|---|---:|---|---|\n| 0 | 8 | `magic` | x |\n| 8 | 4 | length | x |\n| 12 | 1 | kind | x |\n| 13 | 3 | reserved | x |\n";
    const LABEL: &str = "### The `disk::Label` (4092 bytes)\nprose\n\n| Offset | Size | Field |\n|---|---|---|\n| 0x0 | 16 | `head` |\n| 16 | 16 | `id` |\n| 32 | 2 × 4 | `slots` |\n| 40 | 8 | `serial` |\n| 48 | 8 | `at` |\n| 56 | 16 | `wide` |\n| 72 | 4_020 | `spare` |\n";

    fn found(code: &str, document: &str) -> Vec<String> {
        let code = code.replace(" + (BLOCK as usize >> 0) * 0", "");
        let all = [
            ("crates/disk/Cargo.toml", ""),
            ("crates/disk/src/lib.rs", "mod format;"),
            ("crates/disk/src/format.rs", code.as_str()),
            ("crates/units/Cargo.toml", ""),
            ("crates/units/src/lib.rs", UNITS),
            ("docs/format/disk.md", document),
        ];
        check(&Tree::of(&all), &files_of(&all)).iter().map(ToString::to_string).collect()
    }

    fn good() -> String {
        format!("# Of `dolmen-disk`\n{HEAD}\n{LABEL}")
    }

    #[test]
    fn tables_that_agree_have_no_findings() {
        assert_eq!(found(CODE, &good()), [] as [String; 0]);
    }

    #[test]
    fn every_kind_of_disagreement_is_found() {
        for (old, new, needle) in [
            (
                "| 8 | 4 | length",
                "| 9 | 4 | length",
                "the table says length at 9 with 4 bytes, the struct says length at 8 with 4 bytes",
            ),
            ("| 40 | 8 | `serial`", "| 40 | 4 | `serial`", "serial at 40 with 4 bytes, the struct says"),
            ("`magic`", "`magik`", "magik at 0"),
            ("| 72 | 4_020 | `spare` |\n", "", "the table lacks spare at 72"),
            ("(4092 bytes)", "(4096 bytes)", "the heading says 4096 bytes, the struct has 4092"),
            (
                "| 72 | 4_020 | `spare` |",
                "| 72 | 4_020 | `spare` |\n| 4092 | 4 | more |",
                "the struct has no field more",
            ),
            ("| 72 | 4_020", "| 72 | rest", "\"rest\" is no size"),
            ("`Head`", "`Haed`", "no format.rs has a repr(C) struct Haed"),
        ] {
            let lines = found(CODE, &good().replace(old, new));
            assert!(lines.iter().any(|line| line.contains(needle)), "{needle}: {lines:?}");
        }
    }

    #[test]
    fn a_change_of_the_struct_alone_is_found() {
        let lines = found(&CODE.replace("SLOTS: usize = 4", "SLOTS: usize = 5"), &good());
        assert!(
            lines[0].contains("slots at 32 with 8 bytes, the struct says slots at 32 with 10 bytes"),
            "{lines:?}"
        );
    }

    #[test]
    fn a_struct_without_a_table_is_found_once_its_crate_is_documented() {
        let lines = found(CODE, &format!("Of `dolmen-disk`\n{HEAD}"));
        assert!(
            lines.len() == 1
                && lines[0].contains("Label is written to disk but docs/format/ has no table of it"),
            "{lines:?}"
        );
        assert_eq!(found(CODE, "Of `dolmen-store`\n"), [] as [String; 0]);
    }

    #[test]
    fn integers_of_the_host_are_found() {
        let lines = found(&CODE.replace("pub length: U32", "pub length: u32"), &good());
        assert!(lines.iter().any(|line| line.contains("u32 has the host's byte order")), "{lines:?}");
    }
}
