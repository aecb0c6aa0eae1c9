//! Answers of the daemon against the declarations of the verbs.

use dolmen_api::{Declaration, JobStart, VerbId, VerbKind};
use serde_json::Value;

/// Returns the declaration of the verb that a request is of; a fixed path goes before one with parameters.
pub(crate) fn declaration_of(method: &str, path: &str) -> Option<&'static Declaration> {
    let all = VerbId::ALL.iter().map(|verb| verb.declaration());
    all.filter(|verb| verb.fits(method, path)).min_by_key(|verb| verb.parameters.len())
}

/// Checks an answer of the daemon against the declaration of the verb: only declared errors, and a job only where one is declared.
pub(crate) fn check_declared(method: &str, path: &str, status: u16, answer: &Value) {
    let Some(verb) = declaration_of(method, path) else { return };
    let code = answer["error"]["code"].as_str();
    let declared: Vec<&str> = verb.errors().into_iter().map(|code| code.word()).collect();
    // A path of another form than those of the table may fit by its length alone.
    if let Some(code) = code.filter(|code| *code != "no_such_route") {
        assert!(declared.contains(&code), "{} does not declare {code}: {answer}", verb.name);
    }
    if status == 200 && verb.kind == VerbKind::Change && verb.job == JobStart::Never {
        let is_of_job = verb.parameters.contains(&"job");
        assert!(is_of_job || answer["job"].is_null(), "{} declares no job: {answer}", verb.name);
    }
}
