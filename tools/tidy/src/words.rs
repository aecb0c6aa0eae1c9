//! Rule: one word for one thing, in code, messages and documents; and no unfinished work.

use crate::finding::Finding;
use crate::modules::RustFile;
use crate::source::split;
use crate::tree::Tree;

/// Where a word is looked for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Identifiers, comments, messages and documents.
    Everywhere,
    /// Not in identifiers, because the standard library uses it as a name.
    Prose,
}

struct Synonym {
    /// Lower case, words separated by one space; found in `snake_case` and `CamelCase` alike.
    word: &'static str,
    instead: &'static str,
    place: Place,
    /// Path prefixes where it has a right of its own.
    except: &'static [&'static str],
}

const fn everywhere(word: &'static str, instead: &'static str) -> Synonym {
    Synonym { word, instead, place: Place::Everywhere, except: &[] }
}

/// Words of other systems for things that have a name here.
const SYNONYMS: [Synonym; 11] = [
    everywhere("vdisk", "space"),
    // The introductions have to say what a space is before they can use the word.
    Synonym {
        word: "virtual disk",
        instead: "space",
        place: Place::Everywhere,
        except: &["README.md", "ARCHITECTURE.md", "docs/", "crates/space/src/lib.rs"],
    },
    everywhere("stripe unit", "interleave"),
    // An option of mke2fs has this name.
    Synonym {
        word: "stripe width",
        instead: "columns",
        place: Place::Everywhere,
        except: &["crates/volume/src/profile/"],
    },
    // A structured reply of NBD comes in what its specification calls chunks.
    Synonym {
        word: "chunk",
        instead: "interleave or slab",
        place: Place::Prose,
        except: &["crates/nbd/", "tools/fuzz/src/nbd/", "docs/design/"],
    },
    everywhere("resilver", "repair or resync"),
    everywhere("resilvering", "repair or resync"),
    // iSCSI has logical units; a space exported over it is one to the other side.
    Synonym { word: "lun", instead: "space", place: Place::Everywhere, except: &["crates/iscsi/"] },
    everywhere("zpool", "pool"),
    everywhere("zvol", "space"),
    everywhere("hot spare", "spare"),
];

/// Marks of unfinished work.
const UNFINISHED: [&str; 4] =
    [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X"), concat!("HA", "CK")];
/// This crate names what it forbids.
const OWN: &str = "tools/tidy/";

/// Checks Rust files by view, and documents and scripts whole.
pub(crate) fn check(tree: &Tree, files: &[RustFile]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in files.iter().filter(|file| !file.path.starts_with(OWN)) {
        for (at, line) in split(&file.text).iter().enumerate() {
            let prose = format!("{} {}", outside_ticks(&line.comment), line.string);
            check_line(&file.path, at + 1, &line.code, &prose, &mut findings);
        }
    }
    let documents = tree.all().filter(|(path, _)| is_prose(path) && !path.starts_with(OWN));
    for (path, text) in documents {
        for (at, line) in text.lines().enumerate() {
            check_line(path, at + 1, "", &outside_ticks(line), &mut findings);
        }
    }
    findings
}

fn is_prose(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    let ending = name.rsplit_once('.').map(|(_, ending)| ending);
    matches!(ending, Some("md" | "sh" | "toml" | "html")) || matches!(name, "test" | "demo" | "Makefile")
}

fn check_line(path: &str, line: usize, code: &str, prose: &str, findings: &mut Vec<Finding>) {
    let in_code = words(code);
    let in_prose = words(prose);
    for synonym in
        SYNONYMS.iter().filter(|synonym| !synonym.except.iter().any(|start| path.starts_with(start)))
    {
        let named = synonym.place == Place::Everywhere && holds(&in_code, synonym.word);
        if named || holds(&in_prose, synonym.word) {
            let what = format!("{:?} is another system's word", synonym.word);
            findings.push(Finding::new(path, line, what, format!("say {}", synonym.instead)));
        }
    }
    for mark in UNFINISHED {
        if format!("{code} {prose}").split(|c: char| !c.is_alphanumeric()).any(|word| word == mark) {
            let what = format!("{mark} marks unfinished work");
            findings.push(Finding::new(
                path,
                line,
                what,
                "finish it, or say in plain words what is left out and why",
            ));
        }
    }
}

/// A line without what stands between backticks: names of other systems' interfaces are quoted there.
fn outside_ticks(line: &str) -> String {
    line.split('`').step_by(2).collect::<Vec<_>>().join(" ")
}

/// The words of a line, lower case, with one space before and behind each; names are cut at `_` and at capitals.
fn words(line: &str) -> String {
    let mut words = String::from(" ");
    let mut before = ' ';
    for c in line.chars() {
        let starts = c.is_uppercase() && before.is_lowercase();
        if starts || !c.is_alphanumeric() && !words.ends_with(' ') {
            words.push(' ');
        }
        if c.is_alphanumeric() {
            words.extend(c.to_lowercase());
        }
        before = c;
    }
    words.push(' ');
    words
}

fn holds(words: &str, word: &str) -> bool {
    words.contains(&format!(" {word} ")) || words.contains(&format!(" {word}s "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<String> {
        let tree = Tree::of(&[("crates/a/Cargo.toml", ""), ("crates/nbd/Cargo.toml", ""), (path, text)]);
        let house = crate::house::House::read(&tree).0;
        let (files, _) = crate::modules::read(&tree, &house);
        check(&tree, &files).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn words_of_other_systems_are_found_in_names_comments_messages_and_documents() {
        for text in [
            "fn make_vdisk() {}",
            "struct VirtualDisk;",
            "// each chunk",
            "fn f() { g(\"resilver done\") }",
            "/* stripe units */",
        ] {
            assert_eq!(found("crates/a/src/lib.rs", text).len(), 1, "{text}");
        }
        assert_eq!(
            found("docs/x.md", "a zpool"),
            ["docs/x.md:1: \"zpool\" is another system's word; say pool"]
        );
    }

    #[test]
    fn words_with_a_right_of_their_own_are_left_alone() {
        for (path, text) in [
            ("crates/a/src/lib.rs", "fn f(x: &[u8]) { x.chunks(2); } // `chunks` of luna, plunk"),
            ("crates/nbd/src/lib.rs", "// the last chunk of a reply"),
            ("README.md", "a space is a virtual disk"),
        ] {
            assert_eq!(found(path, text), [] as [String; 0], "{text}");
        }
    }

    #[test]
    fn unfinished_work_is_found_in_code_documents_and_scripts() {
        let mark = UNFINISHED[0];
        for path in ["crates/a/src/lib.rs", "docs/x.md", "scripts/x.sh", "test"] {
            assert_eq!(found(path, &format!("// {mark}: later")).len(), 1, "{path}");
            assert_eq!(found(path, "// mastodon"), [] as [String; 0], "{path}");
        }
    }
}
