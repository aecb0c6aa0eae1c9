//! The promises of the documents: stable names, strict requests, tolerant answers.

use std::collections::BTreeSet;

use dolmen_api::{
    CreateSpace, ErrorBody, ErrorCode, ErrorDocument, ExitCode, Health, ResiliencyKind, Shutdown,
};

#[test]
fn an_error_reads_back_as_it_was_written_and_keeps_its_names() {
    let error =
        ErrorBody::new(ErrorCode::NoSuchPool, "no pool tank is open").hint("dolmen pool list").on("tank");
    let document = ErrorDocument::from(error);
    let text = serde_json::to_string(&document).unwrap();
    let expected = r#"{"schema":1,"error":{"code":"no_such_pool","message":"no pool tank is open","causes":[],"hint":"dolmen pool list","object":"tank"}}"#;
    assert_eq!(text, expected);
    assert_eq!(serde_json::from_str::<ErrorDocument>(&text).unwrap(), document);
}

#[test]
fn an_answer_with_fields_of_a_later_version_is_read() {
    let text = r#"{"schema":1,"error":{"code":"busy","message":"m","severity":"high"},"trace":7}"#;
    assert_eq!(serde_json::from_str::<ErrorDocument>(text).unwrap().error.code, ErrorCode::Busy);
}

#[test]
fn a_request_with_a_field_nobody_knows_is_refused() {
    assert!(serde_json::from_str::<Shutdown>(r#"{"hand_over":true,"at_once":true}"#).is_err());
    assert_eq!(serde_json::from_str::<Shutdown>("{}").unwrap(), Shutdown::default());
}

#[test]
fn a_space_needs_only_name_size_and_resiliency() {
    let text = r#"{"name":"x","size_bytes":4096,"resiliency":"mirror"}"#;
    let request: CreateSpace = serde_json::from_str(text).unwrap();
    assert_eq!(request.resiliency, ResiliencyKind::Mirror);
    assert!(!request.dry_run && request.copies.is_none());
    for wrong in ["-1", "1.5", "\"10G\"", "18446744073709551616"] {
        let text = text.replace("4096", wrong);
        assert!(serde_json::from_str::<CreateSpace>(&text).is_err(), "{wrong}");
    }
}

#[test]
fn every_exit_code_has_its_own_number() {
    let numbers: BTreeSet<u8> = ExitCode::ALL.iter().map(|code| code.number()).collect();
    assert_eq!(numbers.len(), ExitCode::ALL.len());
}

#[test]
fn the_worst_health_is_the_maximum() {
    assert_eq!(
        [Health::Warning, Health::Healthy, Health::Unhealthy].into_iter().max(),
        Some(Health::Unhealthy)
    );
}

#[test]
fn causes_are_printed_once_and_in_order() {
    #[derive(Debug)]
    struct Outer(std::num::ParseIntError);
    impl std::fmt::Display for Outer {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("reading a number")
        }
    }
    impl std::error::Error for Outer {
        fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
            Some(&self.0)
        }
    }
    let error = Outer("x".parse::<u8>().unwrap_err());
    let body = ErrorBody::new(ErrorCode::BadRequest, error.to_string()).caused_by(&error);
    assert_eq!(body.to_string(), "reading a number: invalid digit found in string");
}
