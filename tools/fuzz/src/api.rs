//! Bodies of requests to the daemon.
//!
//! Oracle: any bytes are refused with a reason in one line, or are a request of which nothing was passed over: what is asked for is
//! what the JSON says, field by field, as another parser reads it. What is written of it reads as the same, and with a field that
//! nobody knows it is refused.

use std::fmt::Debug;

use dolmen_api::{
    AddDisks, AttachSpace, ConvertSpace, CreatePool, CreateSpace, DeleteSpace, Destroy, DetachSpace,
    DrainWriteCache, ImportPool, LocateDisk, OnlineDisk, PurgeTrash, RenameSpace, ReplaceDisk, ResizeSpace,
    ResizeWriteCache, RestoreSpace, ServeSpace, SetAlertAt, SetDisk, SetDiskRole, SetEnclosure, SetJob,
    SetKeepRoom, SetLimits, SetRepairAfter, SetReserve, Shutdown, Simple, read_request,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::script::Script;
use crate::{Reached, named};

/// Every document that may be a body.
const REQUESTS: [fn(&[u8]) -> Reached; 30] = [
    verdict::<CreatePool>,
    verdict::<ImportPool>,
    verdict::<Simple>,
    verdict::<DrainWriteCache>,
    verdict::<SetRepairAfter>,
    verdict::<SetKeepRoom>,
    verdict::<SetDiskRole>,
    verdict::<SetAlertAt>,
    verdict::<SetEnclosure>,
    verdict::<ResizeWriteCache>,
    verdict::<Destroy>,
    verdict::<AddDisks>,
    verdict::<ReplaceDisk>,
    verdict::<OnlineDisk>,
    verdict::<LocateDisk>,
    verdict::<SetDisk>,
    verdict::<CreateSpace>,
    verdict::<ResizeSpace>,
    verdict::<ConvertSpace>,
    verdict::<RenameSpace>,
    verdict::<SetLimits>,
    verdict::<SetReserve>,
    verdict::<DeleteSpace>,
    verdict::<RestoreSpace>,
    verdict::<PurgeTrash>,
    verdict::<AttachSpace>,
    verdict::<DetachSpace>,
    verdict::<ServeSpace>,
    verdict::<SetJob>,
    verdict::<Shutdown>,
];

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

/// One input.
pub(crate) fn run(input: &[u8]) -> Reached {
    let mut script = Script::new(input);
    let verdict = script.pick(&REQUESTS);
    verdict(script.rest())
}

/// Inputs to begin with.
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let bodies = [
        r#"{"name":"tank","disks":["/dev/a","/dev/b"],"destroy":[],"fault_domains":[1,2],"dry_run":true}"#,
        r#"{"pool":"tank","paths":["/d"],"mode":"confirmed"}"#,
        "",
        r#"{"fill_percent":25,"bytes_per_s_max":1048576,"survives":1}"#,
        r#"{"seconds":1800}"#,
        r#"{"size_bytes":1073741824,"survives":null}"#,
        r#"{"destroy":"tank","dry_run":false}"#,
        r#"{"disks":["/dev/c"],"stays":true}"#,
        r#"{"with":"/dev/d","destroy":["/dev/d"]}"#,
        r#"{"path":"/dev/e"}"#,
        r#"{"name":"x","size_bytes":4096,"resiliency":"mirror","copies":3,"integrity":"strict","provisioning":"fixed","columns":2,"interleave_bytes":65536,"row_bytes":8388608,"sector_bytes":512}"#,
        r#"{"size_bytes":18446744073709551615}"#,
        r#"{"resiliency":"parity","parity":2,"columns":0}"#,
        r#"{"name":"y\u0000z"}"#,
        r#"{"iops_max":0,"iops_min":7,"bytes_per_s_max":1024}"#,
        "{}",
        r#"{"name":"back"}"#,
        "{ }",
        r#"{"transport":"ublk"}"#,
        r#"{"dry_run":true}"#,
        r#"{"read_only":true,"network":{"listen":"127.0.0.1:10809","tls":{"certificate":"/c","key":"/k","client_ca":"/a"},"allow":["me"]}}"#,
        r#"{"priority":"low","latency_limit_ms":20}"#,
        r#"{"hand_over":true}"#,
    ];
    let list = [&[20][..], br#"{"network":["127.0.0.1:1",null,[]]}"#].concat();
    let seeds = bodies.iter().zip(0..).map(|(body, kind)| [&[kind][..], body.as_bytes()].concat());
    seeds.chain([list]).collect()
}
