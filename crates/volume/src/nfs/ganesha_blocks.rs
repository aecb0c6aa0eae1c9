//! Export blocks in files of Ganesha, and whether its configuration reads a folder.

/// An export block.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GaneshaBlock {
    /// Its number; `None` if the block has none that is a number.
    pub number: Option<u16>,
    /// Folder that it exports; empty if the block names none.
    pub path: String,
}

/// A piece of a configuration.
#[derive(Debug, PartialEq, Eq)]
enum Token {
    /// A word, or a text between quotes.
    Text(String),
    /// One of `{`, `}`, `=`, `;` and `,`.
    Sign(char),
}

/// Cuts a configuration into words and signs; comments are left out.
fn tokens(text: &str) -> Vec<Token> {
    let mut found = Vec::new();
    let mut characters = text.chars().peekable();
    while let Some(first) = characters.next() {
        match first {
            '#' => while characters.next_if(|c| *c != '\n').is_some() {},
            '{' | '}' | '=' | ';' | ',' => found.push(Token::Sign(first)),
            quote @ ('\'' | '"') => {
                let mut inner = String::new();
                while let Some(c) = characters.next_if(|c| *c != quote) {
                    inner.push(c);
                }
                characters.next();
                found.push(Token::Text(inner));
            }
            c if c.is_whitespace() => {}
            c => {
                let mut word = String::from(c);
                let is_inner = |c: &char| !c.is_whitespace() && !"{}=;,#'\"".contains(*c);
                while let Some(c) = characters.next_if(is_inner) {
                    word.push(c);
                }
                found.push(Token::Text(word));
            }
        }
    }
    found
}

/// Returns the export blocks of a configuration. Text that is no block is left out: it exports nothing.
#[must_use]
pub fn ganesha_blocks(text: &str) -> Vec<GaneshaBlock> {
    let tokens = tokens(text);
    let mut blocks: Vec<GaneshaBlock> = Vec::new();
    let (mut depth, mut export_depth) = (0_u32, None);
    for (at, token) in tokens.iter().enumerate() {
        let before = at.checked_sub(1).and_then(|at| tokens.get(at));
        match token {
            Token::Sign('{') => {
                let is_export =
                    matches!(before, Some(Token::Text(word)) if word.eq_ignore_ascii_case("export"));
                depth += 1;
                if is_export && export_depth.is_none() {
                    export_depth = Some(depth);
                    blocks.push(GaneshaBlock::default());
                }
            }
            Token::Sign('}') => {
                if export_depth == Some(depth) {
                    export_depth = None;
                }
                depth = depth.saturating_sub(1);
            }
            Token::Sign('=') if export_depth == Some(depth) => {
                let (Some(Token::Text(key)), Some(Token::Text(value))) = (before, tokens.get(at + 1)) else {
                    continue;
                };
                let Some(block) = blocks.last_mut() else { continue };
                if key.eq_ignore_ascii_case("export_id") {
                    block.number = value.parse().ok();
                } else if key.eq_ignore_ascii_case("path") {
                    block.path.clone_from(value);
                }
            }
            Token::Sign(_) | Token::Text(_) => {}
        }
    }
    blocks
}

/// Returns the line with which Ganesha reads all files of a folder, hidden ones too: nothing half written may lie there.
#[must_use]
pub fn ganesha_folder_line(folder: &str) -> String {
    format!("%dir \"{folder}\"")
}

/// Returns whether a configuration has a line that reads all files of a folder.
#[must_use]
pub fn reads_folder(configuration: &str, folder: &str) -> bool {
    let named = |line: &str| {
        let rest = line.trim().strip_prefix("%dir")?;
        let path = rest.split('#').next().unwrap_or_default().trim();
        rest.starts_with([' ', '\t']).then(|| path.trim_matches('"').trim_end_matches('/').to_owned())
    };
    configuration.lines().filter_map(named).any(|path| path == folder.trim_end_matches('/'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nfs::ganesha_export;
    use crate::nfs::tests::any_client;
    use crate::record::{Access, NetworkGrant, Unknown};
    use proptest::prelude::*;

    #[test]
    fn blocks_have_their_number_and_path() {
        let text = "NFS_CORE_PARAM { NFS_Port = 2049; }\n# EXPORT { Export_Id = 1; }\nexport { export_id=77; Path = \"/a {b}\"; \
                    FSAL { Name = VFS; Path = /no; } Pseudo = /p; }\nEXPORT { Path = /c; }\n";
        let block = |number, path: &str| GaneshaBlock { number, path: path.to_owned() };
        assert_eq!(ganesha_blocks(text), [block(Some(77), "/a {b}"), block(None, "/c")]);
        assert_eq!(ganesha_blocks("EXPORT_DEFAULTS { Path = /a; }"), []);
    }

    #[test]
    fn a_folder_is_read_through_its_own_line_alone() {
        let line = ganesha_folder_line("/etc/ganesha/dolmen");
        assert!(reads_folder(&format!("NFSv4 {{}}\n{line}\n"), "/etc/ganesha/dolmen"));
        assert!(reads_folder("%dir /etc/ganesha/dolmen/", "/etc/ganesha/dolmen"));
        for text in
            ["", "#%dir /etc/ganesha/dolmen", "%dir /etc/ganesha/dolmen2", "%directory /etc/ganesha/dolmen"]
        {
            assert!(!reads_folder(text, "/etc/ganesha/dolmen"), "{text}");
        }
    }

    proptest! {
        /// A block that is written reads back, whatever its path.
        #[test]
        fn a_written_block_reads_back(number in 1..=u16::MAX, path in "/.{0,20}", client in any_client()) {
            let networks = [NetworkGrant { client, access: Access::ReadOnly, unknown: Unknown::new() }];
            let Ok(Some(text)) = ganesha_export(number.try_into().unwrap(), &path, &networks) else { return Ok(()) };
            prop_assert_eq!(ganesha_blocks(&text), [GaneshaBlock { number: Some(number), path }]);
        }

        #[test]
        fn no_text_stops_the_parsers(text in "(?s).*", lines in "(export|[{}=;#'\" ]|path|\n){0,30}") {
            let _ = (ganesha_blocks(&text), ganesha_blocks(&lines), reads_folder(&text, "/a"));
        }
    }
}
