//! Bodies of requests to the daemon.
//!
//! Oracle: any bytes are refused with a reason in one line, or are a request of which nothing was passed over: what is asked for is
//! what the JSON says, field by field, as another parser reads it. What is written of it reads as the same, and with a field that
//! nobody knows it is refused.

use std::fmt::Debug;

use dolmen_api::{Change, Verb, VerbVisitor, read_request, visit_verbs};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::script::Script;
use crate::{Reached, named};

/// Judges a body as a request of one type.
type Verdict = fn(&[u8]) -> Reached;

/// Requests of all changes in the table of verbs, each type once, by name.
#[derive(Default)]
struct Requests(Vec<(&'static str, Verdict)>);

impl Requests {
    fn all() -> Self {
        let mut requests = Self::default();
        visit_verbs(&mut requests);
        requests
    }
}

impl VerbVisitor for Requests {
    fn question<V: Verb>(&mut self) {}

    fn change<V: Verb<Answer = Change>>(&mut self) {
        let name = V::DECLARATION.request;
        if !self.0.iter().any(|(known, _)| *known == name) {
            self.0.push((name, verdict::<V::Request>));
        }
    }
}

fn verdict<T: Serialize + DeserializeOwned + PartialEq + Debug>(body: &[u8]) -> Reached {
    let asked = serde_json::from_slice::<Value>(body);
    let request: T = match read_request(body) {
        Ok(request) => request,
        Err(error) => return named(&error),
    };
    let meant = serde_json::to_value(&request).expect("a request is JSON");
    match asked {
        Ok(asked) => expect_all(&asked, &meant),
        Err(error) => assert!(body.is_empty(), "a body that is no JSON is taken: {error}"),
    }
    let text = serde_json::to_string(&request).expect("a request is JSON");
    assert_eq!(read_request::<T>(text.as_bytes()).ok().as_ref(), Some(&request), "{text}");
    let mut more = meant;
    more["nobody knows this"] = Value::Null;
    let more = serde_json::to_vec(&more).expect("a request is JSON");
    assert!(read_request::<T>(&more).is_err(), "a field that nobody knows is passed over");
    Reached::Held
}

/// Everything that was asked for is meant, under its name. What is null was not asked for.
fn expect_all(asked: &Value, meant: &Value) {
    match (asked, meant) {
        (Value::Object(asked), Value::Object(meant)) => {
            for (name, value) in asked.iter().filter(|(_, value)| !is_nothing(value)) {
                expect_all(value, meant.get(name).unwrap_or(&Value::Null));
            }
        }
        // One of several words may also be said as an object with that one name.
        (Value::Object(asked), Value::String(word)) => {
            assert!(asked.len() == 1 && asked.get(word) == Some(&Value::Null), "{asked:?} became {word:?}");
        }
        (Value::Array(asked), Value::Array(meant)) => {
            assert_eq!(asked.len(), meant.len(), "{asked:?} became {meant:?}");
            asked.iter().zip(meant).for_each(|(asked, meant)| expect_all(asked, meant));
        }
        _ => assert_eq!(asked, meant, "what was asked for, and what is meant"),
    }
}

/// What may be left out of what is written.
fn is_nothing(value: &Value) -> bool {
    matches!(value, Value::Null | Value::Bool(false))
}

/// One input: the name of a request, a line break, and a body. Where no request has that name, the first byte chooses one, and the
/// rest is the body.
pub(crate) fn run(input: &[u8]) -> Reached {
    let requests = Requests::all().0;
    let line_end = input.iter().position(|byte| *byte == b'\n');
    let named = line_end.and_then(|end| {
        let (name, body) = (&input[..end], &input[end + 1..]);
        let known = requests.iter().find(|(known, _)| known.as_bytes() == name);
        known.map(|(_, verdict)| verdict(body))
    });
    named.unwrap_or_else(|| {
        let mut script = Script::new(input);
        let (_, verdict) = script.pick(&requests);
        verdict(script.rest())
    })
}

/// Inputs to begin with.
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let bodies = [
        (
            "CreatePool",
            r#"{"name":"tank","disks":["/dev/a","/dev/b"],"destroy":[],"fault_domains":[1,2],"dry_run":true}"#,
        ),
        ("ImportPool", r#"{"pool":"tank","paths":["/d"],"mode":"confirmed"}"#),
        ("Simple", ""),
        ("DrainWriteCache", r#"{"fill_percent":25,"bytes_per_s_max":1048576,"survives":1}"#),
        ("SetRepairAfter", r#"{"seconds":1800}"#),
        ("ResizeWriteCache", r#"{"size_bytes":1073741824,"survives":null}"#),
        ("Destroy", r#"{"destroy":"tank","dry_run":false}"#),
        ("AddDisks", r#"{"disks":["/dev/c"],"stays":true}"#),
        ("ReplaceDisk", r#"{"with":"/dev/d","destroy":["/dev/d"]}"#),
        ("OnlineDisk", r#"{"path":"/dev/e"}"#),
        (
            "CreateSpace",
            r#"{"name":"x","size_bytes":4096,"resiliency":"mirror","copies":3,"integrity":"strict","provisioning":"fixed","columns":2,"interleave_bytes":65536,"row_bytes":8388608,"sector_bytes":512}"#,
        ),
        ("ResizeSpace", r#"{"size_bytes":18446744073709551615}"#),
        ("ConvertSpace", r#"{"resiliency":"parity","parity":2,"columns":0}"#),
        ("RenameSpace", r#"{"name":"y\u0000z"}"#),
        ("SetLimits", r#"{"iops_max":0,"iops_min":7,"bytes_per_s_max":1024}"#),
        ("DeleteSpace", "{}"),
        ("RestoreSpace", r#"{"name":"back"}"#),
        ("PurgeTrash", "{ }"),
        ("AttachSpace", r#"{"transport":"ublk"}"#),
        ("DetachSpace", r#"{"dry_run":true}"#),
        (
            "ServeSpace",
            r#"{"read_only":true,"network":{"listen":"127.0.0.1:10809","tls":{"certificate":"/c","key":"/k","client_ca":"/a"},"allow":["me"]}}"#,
        ),
        ("ServeSpace", r#"{"network":["127.0.0.1:1",null,[]]}"#),
        (
            "CreateVolume",
            r#"{"name":"v","size_bytes":4096,"purpose":"vms","file_system":"xfs","label":"l","mount_point":"/srv/v","resiliency":"simple"}"#,
        ),
        ("MountVolume", r#"{"mount_point":"/a/../b"}"#),
        ("CheckVolume", r#"{"repair":true,"destroy":"v"}"#),
        ("AdoptVolume", r#"{"mount_point":""}"#),
        ("CompactVolume", r#"{"budget_bytes":1}"#),
        ("EstimateDedup", r#"{"sample_bytes":0}"#),
        (
            "EnableDedup",
            r#"{"mode":"background","min_age_days":0,"excluded_folders":["../x"],"excluded_names":["a/b"],"memory_bytes":1,"schedule":"daily 25:00"}"#,
        ),
        ("EnableDedup", r#"{"off":true,"min_age_days":1}"#),
        ("RunDedup", r#"{"mode":"throughput"}"#),
        ("UndoDedup", r#"{"paths":["/a/../b",""]}"#),
        (
            "CreateShare",
            r#"{"name":"docs","folder":"a/../b","protocols":["smb","nfs"],"accounts":[{"to":"group","name":"@x","access":"read_only"}],"networks":[{"client":"*","access":"read_write"}]}"#,
        ),
        ("GrantShare", r#"{"networks":[{"client":"10.0.0.1/8","access":"read_only"}]}"#),
        ("RevokeShare", r#"{"accounts":[{"to":"user","name":""}],"clients":["\u0000"]}"#),
        ("SetQuota", r#"{"folder":"","limit_bytes":0,"limit_files":18446744073709551615}"#),
        ("RemoveQuota", r#"{"folder":"/"}"#),
        ("SetJob", r#"{"priority":"low","latency_limit_ms":20}"#),
        ("Shutdown", r#"{"hand_over":true}"#),
    ];
    bodies.iter().map(|(name, body)| format!("{name}\n{body}").into_bytes()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scenario: the bodies to begin with. Each is read as the request that it is of, or is refused for what it plants.
    #[test]
    fn seeds_reach_the_requests_that_they_are_of() {
        let held = seeds().iter().filter(|seed| matches!(run(seed), Reached::Held)).count();
        assert_eq!(held, seeds().len() - 1, "all but the list in place of an object");
    }
}
