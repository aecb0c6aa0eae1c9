//! The console: files of the program, as they lie in `crates/web/console`.

use std::sync::OnceLock;

use axum::Router;
use axum::extract::Path;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use dolmen_api::ErrorCode;

use super::app::Shared;
use super::refusal::Refusal;
use crate::secret::digest_of_bytes;

// `FILES`: name and content of each file of the folder, sorted by name.
include!(concat!(env!("OUT_DIR"), "/console_files.rs"));

/// The page at `/`.
const INDEX: &str = "index.html";
/// What stands in that page in the place of [`release`].
const RELEASE_MARK: &str = "RELEASE-OF-THE-CONSOLE";
/// Folder of the other files.
const FOLDER: &str = "/console/";

pub(super) fn routes() -> Router<Shared> {
    Router::new().route("/", get(async |headers: HeaderMap| file(INDEX, &headers))).route(
        "/console/{name}",
        get(async |Path(name): Path<String>, headers: HeaderMap| file(&name, &headers)),
    )
}

/// Returns whether a path is one of the console, which browsers may keep as long as its tag is the same.
pub(super) fn is_page(path: &str) -> bool {
    path == "/" || path.starts_with(FOLDER)
}

/// Returns what tells these files from those of another version. Each answer has it, and the page that a browser has loaded: where the
/// two differ, modules that it has and modules that it loads later do not belong together.
pub(super) fn release() -> &'static HeaderValue {
    static RELEASE: OnceLock<HeaderValue> = OnceLock::new();
    RELEASE.get_or_init(|| {
        let digests = FILES.iter().map(|(name, content)| format!("{name} {}\n", digest_of_bytes(content)));
        let release = format!("{:.16}", digest_of_bytes(digests.collect::<String>().as_bytes()));
        HeaderValue::from_str(&release).unwrap_or(HeaderValue::from_static("unknown"))
    })
}

/// Returns a file as it is served.
fn content_of(name: &str) -> Option<&'static [u8]> {
    static PAGE: OnceLock<Vec<u8>> = OnceLock::new();
    let (_, content) = FILES.iter().find(|(known, _)| *known == name)?;
    if name != INDEX {
        return Some(content);
    }
    let page = || {
        let release = release().to_str().unwrap_or("");
        String::from_utf8_lossy(content).replace(RELEASE_MARK, release).into_bytes()
    };
    Some(PAGE.get_or_init(page))
}

fn file(name: &str, headers: &HeaderMap) -> Response {
    let found = FILES.iter().zip(tags()).find(|((known, _), _)| *known == name);
    let found = found.and_then(|(_, tag)| Some((content_of(name)?, tag)));
    let (Some((content, tag)), Some(kind)) = (found, kind_of(name)) else {
        let message = "the console has no such file";
        return Refusal::new(StatusCode::NOT_FOUND, ErrorCode::NoSuchRoute, message).into_response();
    };
    let caching = [(header::ETAG, tag.as_str()), (header::CACHE_CONTROL, "no-cache")];
    let known = headers.get(header::IF_NONE_MATCH).and_then(|tags| tags.to_str().ok()).unwrap_or("");
    if known.split(',').any(|known| known.trim().trim_start_matches("W/") == tag) {
        return (StatusCode::NOT_MODIFIED, caching).into_response();
    }
    (caching, [(header::CONTENT_TYPE, kind)], content).into_response()
}

fn tags() -> &'static [String] {
    static TAGS: OnceLock<Vec<String>> = OnceLock::new();
    let tag = |content: &[u8]| format!("\"{:.32}\"", digest_of_bytes(content));
    TAGS.get_or_init(|| FILES.iter().map(|(name, _)| tag(content_of(name).unwrap_or_default())).collect())
}

/// Returns the type of a file by its name; none for one that is not served.
fn kind_of(name: &str) -> Option<&'static str> {
    let (_, ending) = name.rsplit_once('.')?;
    Some(match ending {
        "html" => "text/html; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "js" => "text/javascript; charset=utf-8",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "woff2" => "font/woff2",
        "json" => "application/json",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn text(name: &str) -> &'static str {
        let (_, content) = FILES.iter().find(|(known, _)| *known == name).unwrap();
        str::from_utf8(content).unwrap()
    }

    /// Scenario: the modules that the first one imports, and those that they import. The page names each of them beforehand, so that
    /// a browser asks for all at once.
    #[test]
    fn the_page_names_each_module_that_it_needs_at_once() {
        let mut wanted = BTreeSet::new();
        let mut left = vec!["main.js"];
        while let Some(name) = left.pop() {
            let imports =
                text(name).lines().filter_map(|line| line.split_once(" from './")?.1.strip_suffix("';"));
            left.extend(imports.filter(|import| wanted.insert(*import)));
        }
        let named = text(INDEX).lines().filter_map(|line| {
            line.strip_prefix(r#"<link rel="modulepreload" href="/console/"#)?.strip_suffix(r#"">"#)
        });
        assert_eq!(named.collect::<BTreeSet<_>>(), wanted);
    }

    #[test]
    fn every_file_of_the_console_has_a_type_and_a_tag() {
        assert!(FILES.iter().any(|(name, _)| *name == INDEX));
        for (name, content) in FILES {
            assert!(kind_of(name).is_some(), "{name}");
            assert!(!content.is_empty(), "{name}");
            let response = file(name, &HeaderMap::new());
            assert_eq!(response.status(), StatusCode::OK);
            let mut headers = HeaderMap::new();
            headers.insert(header::IF_NONE_MATCH, response.headers()[header::ETAG].clone());
            assert_eq!(file(name, &headers).status(), StatusCode::NOT_MODIFIED);
        }
    }
}
