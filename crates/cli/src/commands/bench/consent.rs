//! Whether somebody means to overwrite what targets hold.

use super::target::Prepared;
use crate::confirm::{Consent, Danger, Refusal, ask, decide};
use crate::terminal::out::Out;

/// Asks for each target that would lose what it holds. Which of them are named is judged before the first question.
pub(super) fn consent(prepared: &[Prepared], named: &[String], out: &mut Out<'_>) -> Result<(), Refusal> {
    let mut questions = Vec::new();
    for one in prepared {
        let Some(holds) = &one.holds else { continue };
        let name = one.target.name.as_str();
        let object = format!("{name}, which holds {holds}");
        let given = named.iter().find(|given| *given == name).map(String::as_str);
        let danger = Danger { object: &object, name, alias: None };
        if decide(out, &danger, given)? == Consent::ToBeAsked {
            questions.push((object, name));
        }
    }
    for (object, name) in questions {
        ask(out, &Danger { object: &object, name, alias: None })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use dolmen_bench::{Path, Target, TargetPath};
    use dolmen_units::Bytes;

    use super::*;
    use crate::commands::bench::target::Kept;
    use crate::terminal::out::Kind;
    use crate::terminal::paint::Paint;

    fn prepared(name: &str, holds: Option<&str>) -> Prepared {
        let target = Target {
            name: name.to_owned(),
            what: "a block device".to_owned(),
            path: TargetPath::File { path: name.to_owned() },
            access: Path::Direct,
            working_set: Bytes::mib(1),
            unit: Bytes(512),
            caches: Vec::new(),
            is_filled: true,
        };
        let holds = holds.map(str::to_owned);
        Prepared { target, holds, identity: name.to_owned(), kept: Kept::Nothing }
    }

    fn asked(
        prepared: &[Prepared],
        named: &[&str],
        kind: Kind,
        typed: &str,
    ) -> (Result<(), Refusal>, String) {
        let (mut results, mut messages) = (Vec::new(), Vec::new());
        let mut out = Out {
            results: &mut results,
            results_kind: kind,
            messages: &mut messages,
            messages_kind: kind,
            answers: &mut Cursor::new(typed.as_bytes().to_vec()),
            answers_kind: kind,
            paint_results: Paint::Never,
            columns: None,
            is_unread: false,
            unwritten: None,
        };
        let named: Vec<String> = named.iter().map(|&name| name.to_owned()).collect();
        let verified = consent(prepared, &named, &mut out);
        (verified, String::from_utf8(messages).unwrap())
    }

    /// Two of three targets hold something; each of them has to be named, on the command line or at the terminal.
    #[test]
    fn each_target_that_holds_something_is_named() {
        let all =
            [prepared("/a", Some("swap space")), prepared("/b", None), prepared("/c", Some("a LUKS volume"))];
        let (verified, stated) = asked(&all, &["/a", "/c"], Kind::Plain, "");
        assert_eq!((verified, stated.as_str()), (Ok(()), ""));
        let (verified, stated) = asked(&all, &["/c"], Kind::Terminal, "/a\n");
        assert_eq!(verified, Ok(()));
        assert_eq!(stated, "This destroys the data of /a, which holds swap space. Type /a to go on: ");
        let (verified, _) = asked(&all, &[], Kind::Terminal, "/a\nyes\n");
        assert!(matches!(verified, Err(Refusal::Mistyped { .. })));
        let (verified, stated) = asked(&all, &["/a"], Kind::Plain, "/c\n");
        assert!(matches!(verified, Err(Refusal::NobodyToAsk { .. })));
        assert_eq!(stated, "");
    }
}
