//! The files of the console.

use crate::client::Web;

/// Scenario: a browser loads the page and its files, and asks again with their tags.
#[test]
fn files_of_the_console_are_served_with_their_types_and_tags() {
    let web = Web::alone();
    for (path, kind) in
        [("/", "text/html; charset=utf-8"), ("/console/index.html", "text/html; charset=utf-8")]
    {
        let answer = web.get(path, "");
        assert_eq!((answer.status, answer.header("content-type")), (200, Some(kind)), "{path}");
        assert!(answer.body.contains("<title>Dolmen"), "{path}");
        let tag = answer.header("etag").unwrap();
        let again = web.get(path, &format!("if-none-match: {tag}\r\n"));
        assert_eq!((again.status, again.body.as_str()), (304, ""));
        assert_eq!(again.header("etag"), Some(tag));
        assert_eq!(web.get(path, "if-none-match: \"x\"\r\n").status, 200);
    }
    let page = web.get("/", "").body;
    assert!(
        !page.contains("<style") && !page.contains("onclick"),
        "the policy forbids what stands in the page itself"
    );
    // A page that stays open over an upgrade finds out by any answer.
    let (_, release) = page.split_once("name=\"dolmen-console\" content=\"").unwrap();
    let release = &release[..16];
    assert!(release.chars().all(|digit| digit.is_ascii_hexdigit()), "{release}");
    for path in ["/", "/account", "/account/users", "/api/v1/status", "/none"] {
        assert_eq!(web.get(path, "").header("dolmen-console"), Some(release), "{path}");
    }
    for file in page.split("\"/console/").skip(1).map(|rest| rest.split('"').next().unwrap()) {
        assert_eq!(web.get(&format!("/console/{file}"), "").status, 200, "{file}");
    }
}
