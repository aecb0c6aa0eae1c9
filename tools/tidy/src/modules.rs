//! Rule: every Rust file is reached from a root of its crate. A file that no `mod` names is never compiled, so
//! neither the compiler nor any test has seen it.
//!
//! The walk also tells which files are compiled for tests only, which the other checks need.

use crate::finding::Finding;
use crate::house::House;
use crate::tokens::{Token, test_lines, tokens};
use crate::tree::Tree;
use std::collections::{BTreeMap, BTreeSet};

/// One Rust file of a crate.
#[derive(Debug)]
pub(crate) struct RustFile {
    /// The crate's folder name.
    pub krate: String,
    /// Relative to the root of the checkout.
    pub path: String,
    /// What it says.
    pub text: String,
    /// Its tokens; empty where it is no Rust.
    pub tokens: Vec<Token>,
    /// The lines that only tests compile, from 1.
    pub test_lines: BTreeSet<usize>,
    /// Whether all of it is for tests, benches, examples or the build.
    pub all_test: bool,
}

impl RustFile {
    /// Whether a line goes into what ships.
    pub(crate) fn ships(&self, line: usize) -> bool {
        !self.all_test && !self.test_lines.contains(&line)
    }

    /// The tokens that go into what ships.
    pub(crate) fn shipping_tokens(&self) -> Vec<Token> {
        if self.all_test {
            Vec::new()
        } else {
            self.tokens.iter().filter(|token| !token.test).cloned().collect()
        }
    }
}

/// All Rust files of the house, and what is wrong with the way they hang together.
pub(crate) fn read(tree: &Tree, house: &House) -> (Vec<RustFile>, Vec<Finding>) {
    let mut files = Vec::new();
    let mut findings = Vec::new();
    for krate in &house.crates {
        let folder = krate.folder.clone();
        let mut walk = Walk { tree, reached: BTreeMap::new() };
        for (root, test) in roots(tree, &folder, &krate.manifest) {
            walk.file(&root, true, test);
        }
        for (path, text) in tree.ending(".rs").filter(|(path, _)| path.starts_with(&folder)) {
            let Some(test) = walk.reached.get(path) else {
                let advice = "name it in a `mod` or delete it";
                findings.push(Finding::new(
                    path,
                    0,
                    "no `mod` leads to this file, so it is never compiled",
                    advice,
                ));
                continue;
            };
            let tokens = tokens(text).unwrap_or_else(|| {
                findings.push(Finding::new(path, 0, "this is not Rust", "make it compile"));
                Vec::new()
            });
            files.push(RustFile {
                krate: krate.name.clone(),
                path: path.to_owned(),
                text: text.to_owned(),
                test_lines: test_lines(&tokens),
                tokens,
                all_test: *test,
            });
        }
    }
    (files, findings)
}

/// The files from which the compiler starts, with whether they are for tests only.
fn roots(tree: &Tree, folder: &str, manifest: &toml::Table) -> Vec<(String, bool)> {
    let mut roots = vec![
        ("src/lib.rs".to_owned(), false),
        ("src/main.rs".to_owned(), false),
        ("build.rs".to_owned(), true),
    ];
    for (path, _) in tree.ending(".rs") {
        let Some(path) = path.strip_prefix(folder) else { continue };
        for (below, test) in [("src/bin/", false), ("tests/", true), ("benches/", true), ("examples/", true)]
        {
            let Some(rest) = path.strip_prefix(below) else { continue };
            let in_folder = rest.strip_suffix("/main.rs").is_some_and(|name| !name.contains('/'));
            if in_folder || !rest.contains('/') {
                roots.push((path.to_owned(), test));
            }
        }
    }
    for (section, test) in [("bin", false), ("test", true), ("bench", true), ("example", true)] {
        let tables = manifest.get(section).and_then(toml::Value::as_array).into_iter().flatten();
        roots.extend(tables.filter_map(|table| Some((table.get("path")?.as_str()?.to_owned(), test))));
    }
    let lib = manifest.get("lib").and_then(|lib| lib.get("path")).and_then(toml::Value::as_str);
    roots.extend(lib.map(|path| (path.to_owned(), false)));
    roots.into_iter().map(|(path, test)| (format!("{folder}{path}"), test)).collect()
}

struct Walk<'a> {
    tree: &'a Tree,
    /// Path → whether only tests compile it.
    reached: BTreeMap<String, bool>,
}

impl Walk<'_> {
    /// Takes a file and all that it names. `at_root` tells whether its modules lie beside it or in a folder of its name.
    fn file(&mut self, path: &str, at_root: bool, test: bool) {
        let Some(text) = self.tree.text(path) else { return };
        if self.reached.get(path).is_some_and(|only_tests| !only_tests || test) {
            return;
        }
        self.reached.insert(path.to_owned(), test);
        let Ok(file) = syn::parse_file(text) else { return };
        let test = test || file.attrs.iter().any(is_test);
        self.reached.insert(path.to_owned(), test);
        let with = path.rsplit_once('/').map_or("", |(folder, _)| folder).to_owned();
        let below = if at_root || path.ends_with("/mod.rs") {
            with.clone()
        } else {
            path.strip_suffix(".rs").unwrap_or(path).to_owned()
        };
        self.items(&file.items, &with, &below, test);
    }

    fn items(&mut self, items: &[syn::Item], with: &str, below: &str, test: bool) {
        for item in items {
            match item {
                syn::Item::Mod(module) => self.module(module, with, below, test),
                syn::Item::Macro(call) if call.mac.path.is_ident("include") => {
                    if let Ok(name) = call.mac.parse_body::<syn::LitStr>() {
                        self.file(&format!("{with}/{}", name.value()), false, test);
                    }
                }
                _ => {}
            }
        }
    }

    fn module(&mut self, module: &syn::ItemMod, with: &str, below: &str, test: bool) {
        let test = test || module.attrs.iter().any(is_test);
        let name = module.ident.to_string();
        let name = name.strip_prefix("r#").unwrap_or(&name);
        if let Some((_, items)) = &module.content {
            let inside = format!("{below}/{name}");
            return self.items(items, &inside, &inside, test);
        }
        match module.attrs.iter().find_map(path_attribute) {
            Some(path) => self.file(&joined(with, &path), true, test),
            None => {
                self.file(&format!("{below}/{name}.rs"), false, test);
                self.file(&format!("{below}/{name}/mod.rs"), false, test);
            }
        }
    }
}

/// The path of a file that is named from a folder.
fn joined(folder: &str, path: &str) -> String {
    let mut parts: Vec<&str> = folder.split('/').collect();
    for part in path.split('/') {
        if part == ".." {
            parts.pop();
        } else {
            parts.push(part);
        }
    }
    parts.join("/")
}

fn is_test(attribute: &syn::Attribute) -> bool {
    let syn::Meta::List(list) = &attribute.meta else { return false };
    let text = list.tokens.to_string();
    let mut words = text.split(|c: char| !c.is_alphanumeric() && c != '_');
    list.path.is_ident("cfg") && words.clone().any(|word| word == "test") && !words.any(|word| word == "not")
}

fn path_attribute(attribute: &syn::Attribute) -> Option<String> {
    let syn::Meta::NameValue(pair) = &attribute.meta else { return None };
    let syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(path), .. }) = &pair.value else { return None };
    pair.path.is_ident("path").then(|| path.value())
}

/// Reads the Rust files of a tree whose crates have the manifests given there.
#[cfg(test)]
pub(crate) fn files_of(files: &[(&str, &str)]) -> Vec<RustFile> {
    let tree = Tree::of(files);
    read(&tree, &House::read(&tree).0).0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn orphans(files: &[(&str, &str)]) -> Vec<String> {
        let mut all = vec![(
            "crates/a/Cargo.toml",
            "[package]\nname = \"dolmen-a\"\n[[bin]]\nname = \"x\"\npath = \"src/odd.rs\"\n",
        )];
        all.extend_from_slice(files);
        let tree = Tree::of(&all);
        let (house, _) = House::read(&tree);
        read(&tree, &house).1.into_iter().map(|finding| finding.path).collect()
    }

    #[test]
    fn files_that_modules_lead_to_are_no_orphans() {
        let found = orphans(&[
            (
                "crates/a/src/lib.rs",
                "mod one;\nmod two { mod three; }\n#[path = \"else/where.rs\"]\nmod four;\n#[path = \"../tests/folder/far.rs\"]\nmod seven;\ninclude!(\"five.rs\");\nmod r#type;",
            ),
            ("crates/a/src/one.rs", "mod deep;"),
            ("crates/a/src/one/deep.rs", ""),
            ("crates/a/src/two/three.rs", ""),
            ("crates/a/src/else/where.rs", ""),
            ("crates/a/tests/folder/far.rs", ""),
            ("crates/a/src/five.rs", ""),
            ("crates/a/src/type/mod.rs", "mod six;"),
            ("crates/a/src/type/six.rs", ""),
            ("crates/a/src/odd.rs", ""),
            ("crates/a/tests/t.rs", "mod helper;"),
            ("crates/a/tests/helper/mod.rs", ""),
            ("crates/a/src/bin/tool/main.rs", ""),
        ]);
        assert_eq!(found, [] as [String; 0]);
    }

    #[test]
    fn a_file_that_nothing_names_is_an_orphan() {
        let found = orphans(&[
            ("crates/a/src/lib.rs", "// mod lost;\n"),
            ("crates/a/src/lost.rs", "mod found;"),
            ("crates/a/src/lost/found.rs", ""),
            ("crates/a/tests/helper/mod.rs", ""),
        ]);
        assert_eq!(
            found,
            ["crates/a/src/lost.rs", "crates/a/src/lost/found.rs", "crates/a/tests/helper/mod.rs"]
        );
    }

    #[test]
    fn a_module_for_tests_makes_its_files_tests() {
        let files = files_of(&[
            ("crates/a/Cargo.toml", ""),
            ("crates/a/src/lib.rs", "#[cfg(test)]\nmod tests;\n#[cfg(not(test))]\nmod real;\n"),
            ("crates/a/src/tests.rs", "mod more;"),
            ("crates/a/src/tests/more.rs", ""),
            ("crates/a/src/real.rs", ""),
        ]);
        let tests: Vec<_> =
            files.iter().filter(|file| file.all_test).map(|file| file.path.as_str()).collect();
        assert_eq!(tests, ["crates/a/src/tests.rs", "crates/a/src/tests/more.rs"]);
        assert!(!files.iter().find(|file| file.path.ends_with("lib.rs")).unwrap().ships(2));
    }
}
