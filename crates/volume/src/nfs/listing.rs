//! Exports that `showmount -e` and `exportfs -v` list. Both print paths as they are, without escapes.

/// An export as a server lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedExport {
    /// Path of the folder.
    pub path: String,
    /// Client, as the tool prints it.
    pub client: String,
    /// Options, separated by commas; none from `showmount`.
    pub options: String,
}

/// Output that lists no exports.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "line {line} of {tool} is {text:?}, expected {expected}; the state of the exports is unknown: report it"
)]
pub struct ListingError {
    /// Tool that printed it.
    pub tool: &'static str,
    /// Number of the line, from 1.
    pub line: usize,
    /// Line, cut to 200 characters.
    pub text: String,
    /// What was expected there.
    pub expected: &'static str,
}

fn error(tool: &'static str, at: usize, line: &str, expected: &'static str) -> ListingError {
    ListingError { tool, line: at + 1, text: line.chars().take(200).collect(), expected }
}

/// Reads `showmount -e HOST`: a headline, then a path and its clients on each line.
///
/// # Errors
/// Fails at a line that is not understood.
pub fn parse_showmount(printed: &str) -> Result<Vec<ListedExport>, ListingError> {
    let tool = "showmount -e";
    let mut lines = printed.lines().enumerate();
    let headline = lines.next().map_or("", |(_, line)| line);
    if !headline.starts_with("Export list for ") {
        return Err(error(tool, 0, headline, "'Export list for' and the host"));
    }
    let mut exports = Vec::new();
    for (at, line) in lines {
        let expected = "an absolute path and its clients";
        let (path, clients) = line.rsplit_once(' ').ok_or_else(|| error(tool, at, line, expected))?;
        if !path.starts_with('/') {
            return Err(error(tool, at, line, expected));
        }
        exports.extend(clients.split(',').filter(|client| !client.is_empty()).map(|client| ListedExport {
            path: path.trim_end().to_owned(),
            client: client.to_owned(),
            options: String::new(),
        }));
    }
    Ok(exports)
}

/// Reads `exportfs -v`: a path, then a client with its options, on the next line if the path is long.
///
/// # Errors
/// Fails at a line that is not understood.
pub fn parse_exportfs(printed: &str) -> Result<Vec<ListedExport>, ListingError> {
    let tool = "exportfs -v";
    let expected = "an absolute path, or a client and its options";
    let mut exports = Vec::new();
    let mut current: Option<String> = None;
    for (at, line) in printed.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let (path, rest) = match line.split_once('\t') {
            Some((path, rest)) => (path.trim_end(), rest.trim()),
            None => (line.trim_end(), ""),
        };
        if path.starts_with('/') {
            current = Some(path.to_owned());
        } else if !path.is_empty() || rest.is_empty() {
            return Err(error(tool, at, line, expected));
        }
        if rest.is_empty() {
            continue;
        }
        let client = rest.strip_suffix(')').and_then(|rest| rest.split_once('('));
        let (Some((client, options)), Some(path)) = (client, &current) else {
            return Err(error(tool, at, line, expected));
        };
        let (client, options) = (client.to_owned(), options.to_owned());
        exports.push(ListedExport { path: path.clone(), client, options });
    }
    Ok(exports)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn listed(path: &str, client: &str, options: &str) -> ListedExport {
        let (path, client, options) = (path.to_owned(), client.to_owned(), options.to_owned());
        ListedExport { path, client, options }
    }

    #[test]
    fn exports_are_listed_with_their_clients() {
        let printed = "Export list for localhost:\n/srv/a b  10.0.0.0/8,host.example\n/srv/docs (everyone)\n";
        assert_eq!(
            parse_showmount(printed),
            Ok(vec![
                listed("/srv/a b", "10.0.0.0/8", ""),
                listed("/srv/a b", "host.example", ""),
                listed("/srv/docs", "(everyone)", ""),
            ])
        );
        let printed = "/srv/a b      \t10.0.0.0/8(sync,wdelay,rw)\n/srv/a/longer/path\n\t\thost.example(sync,ro)\n\t\t<world>(ro)\n";
        assert_eq!(
            parse_exportfs(printed),
            Ok(vec![
                listed("/srv/a b", "10.0.0.0/8", "sync,wdelay,rw"),
                listed("/srv/a/longer/path", "host.example", "sync,ro"),
                listed("/srv/a/longer/path", "<world>", "ro"),
            ])
        );
        assert_eq!((parse_showmount("Export list for h:\n"), parse_exportfs("")), (Ok(vec![]), Ok(vec![])));
    }

    #[test]
    fn the_listing_of_the_server_of_the_kernel_is_read() {
        let exports = parse_exportfs(include_str!("../../tests/transcripts/exportfs-2.6.2.txt")).unwrap();
        let found: Vec<_> =
            exports.iter().map(|export| (export.path.as_str(), export.client.as_str())).collect();
        assert_eq!(
            found,
            [("/srv/a b#(c)", "2001:db8::1"), ("/srv/a b#(c)", "10.0.0.0/8"), ("/srv/docs", "192.0.2.7")]
        );
        assert!(exports[1].options.split(',').any(|option| option == "rw"));
    }

    #[test]
    fn output_that_lists_no_exports_is_shown() {
        for printed in [
            "",
            "clnt_create: RPC: Program not registered",
            "Export list for h:\nsrv 10.0.0.0/8",
            "Export list for h:\n/srv",
        ] {
            assert!(parse_showmount(printed).is_err(), "{printed}");
        }
        for printed in ["exportfs: unknown", "\thost(ro)", "/srv\thost", "/srv\thost(ro"] {
            assert!(parse_exportfs(printed).is_err(), "{printed}");
        }
        let error = parse_exportfs("/a\th(ro)\nnonsense").unwrap_err();
        assert_eq!((error.line, error.text.as_str()), (2, "nonsense"));
    }

    proptest! {
        #[test]
        fn no_text_stops_the_parsers(text in "(?s).*", lines in "(/a|[ \t(),h]|\n){0,20}") {
            for text in [text, lines] {
                let _ = (parse_showmount(&format!("Export list for h:\n{text}")), parse_exportfs(&text));
            }
        }
    }
}
