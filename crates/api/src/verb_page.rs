//! The page about the verbs, `docs/api/README.md`, made of their table.

use std::fmt::Write;

use crate::verb_declaration::{ALWAYS, CHANGE_IN_POOL};
use crate::{CodeKind, Declaration, ErrorCode, JobStart, Repeat, VerbId, VerbKind, all_codes};

/// Text before the table.
const HEAD: &str = "\
# The API

JSON over HTTP/1.1 on the Unix socket of the daemon, `/run/dolmen/dolmen.sock` unless a setting names another. A test compares this page \
and [openapi.json](openapi.json) with the table of verbs in `crates/api/src/verbs.rs`; `DOLMEN_UPDATE_GOLDEN=1 cargo test -p dolmen-api` \
writes both again.

```sh
curl --unix-socket /run/dolmen/dolmen.sock http://localhost/v1/status
curl --unix-socket /run/dolmen/dolmen.sock http://localhost/v1/pools/tank/scrub --data '{\"dry_run\": true}'
```

- Every answer has `schema`, which is 1. It goes up when a field changes its meaning or goes away. New fields come without notice: \
ignore those that you do not know.
- Requests with unknown fields are refused. A body may be left out where every field has a default.
- Every change has `dry_run`: the answer is then the plan, and nothing is changed.
- An answer whose status is not 2xx is an `ErrorDocument`; its code is one of those of the verb.
- Parameters are percent-encoded. `{disk}` is a path, an id, its first digits, or a slot. `{object}` is a pool, `POOL/SPACE`, \
`POOL/SLOT`, a disk, or the number of a job.
- Sizes end in `_bytes`. Times end in `_s`, `_ms` or `_us`.

`role` is the least role that a caller needs. Today the daemon admits root and its own user alone, as administrators. \
A verb with *repeat* succeeds a second time and changes nothing: a client that has lost the answer may ask again. \
A verb with *job* may start or end a job, which the answer holds.

## Verbs
| verb | method and path | request | answer | role | repeat | job |
|---|---|---|---|---|---|---|
";

/// Returns the page.
#[must_use]
pub fn verb_page() -> String {
    page_of(VerbId::ALL.iter().map(|verb| verb.declaration()))
}

pub(crate) fn page_of<'a>(verbs: impl Iterator<Item = &'a Declaration> + Clone) -> String {
    let mut page = HEAD.to_owned();
    for verb in verbs.clone() {
        let request = if crate::verb_declaration::is_nothing(verb) { "" } else { verb.request };
        let repeats = verb.kind == VerbKind::Question || verb.repeat == Repeat::Same;
        let yes = |is: bool| if is { "yes" } else { "" };
        // Writing to a text cannot fail.
        let _ = writeln!(
            page,
            "| `{}` | `{} {}` | {request} | {} | {} | {} | {} |",
            verb.name,
            verb.kind.method(),
            verb.route(),
            verb.answer,
            verb.role.word(),
            yes(repeats),
            yes(verb.job == JobStart::Maybe)
        );
    }
    let words =
        |codes: Vec<ErrorCode>| codes.into_iter().map(ErrorCode::word).collect::<Vec<&str>>().join(", ");
    let (always, in_pool) = (words(ALWAYS.to_vec()), words(CHANGE_IN_POOL.to_vec()));
    let _ = writeln!(page, "\n## What each does, and its errors");
    let _ = writeln!(page, "Every verb may be refused with {always}; a change in a pool with {in_pool}.\n");
    page.push_str("| verb | what it does | further error codes |\n|---|---|---|\n");
    for verb in verbs {
        let further = verb.errors().into_iter().filter(|code| !verb.is_general(*code)).collect();
        let _ = writeln!(page, "| `{}` | {} | {} |", verb.name, verb.help, words(further));
    }
    page.push_str("\n## Error codes\n| code | status | what it means |\n|---|---|---|\n");
    let explained = all_codes().filter(|(kind, ..)| *kind == CodeKind::Error);
    for ((_, word, explanation), code) in explained.zip(ErrorCode::ALL) {
        let _ = writeln!(page, "| `{word}` | {} | {} |", code.status(), explanation.means);
    }
    page
}
