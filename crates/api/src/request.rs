//! How the body of a request becomes a document, for whoever is asked.
//!
//! Any bytes are refused with a reason, or are a document of which nothing was passed over: fields that nobody knows, fields given
//! twice and values without names are refused, because whoever sent them meant something by it.

use std::fmt;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

/// The request of a question that needs none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct Nothing {}

/// Why a body is no request.
#[derive(Debug)]
pub enum RequestError {
    /// A list of values, which names no fields, would be taken for an object with as many.
    List,
    /// No JSON, or not that of the document.
    Json(serde_json::Error),
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::List => f.write_str("it has a list where an object with named fields has to be"),
            // It repeats what was sent, line breaks and all, and ends up in terminals and logs.
            Self::Json(error) => error.to_string().chars().try_for_each(|letter| {
                if letter.is_control() {
                    write!(f, "{}", letter.escape_default())
                } else {
                    write!(f, "{letter}")
                }
            }),
        }
    }
}

impl std::error::Error for RequestError {}

/// The document in a body; an empty body stands for one without any field.
///
/// # Errors
/// Why it is none.
pub fn read_request<T: DeserializeOwned + Serialize>(body: &[u8]) -> Result<T, RequestError> {
    let text: &[u8] = if body.is_empty() { b"{}" } else { body };
    let request: T = serde_json::from_slice(text).map_err(RequestError::Json)?;
    let asked: Value = serde_json::from_slice(text).map_err(RequestError::Json)?;
    let meant = serde_json::to_value(&request).map_err(RequestError::Json)?;
    if has_list_for_object(&asked, &meant) { Err(RequestError::List) } else { Ok(request) }
}

/// Whether an object, at any depth, was said as a list of its values.
fn has_list_for_object(asked: &Value, meant: &Value) -> bool {
    match (asked, meant) {
        (Value::Array(_), Value::Object(_)) => true,
        (Value::Array(asked), Value::Array(meant)) => {
            asked.iter().zip(meant).any(|(asked, meant)| has_list_for_object(asked, meant))
        }
        (Value::Object(asked), Value::Object(meant)) => asked
            .iter()
            .any(|(name, asked)| meant.get(name).is_some_and(|meant| has_list_for_object(asked, meant))),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ServeSpace, Simple};

    #[test]
    fn an_empty_body_is_a_document_without_fields() {
        for body in ["", "{}", " { } "] {
            assert_eq!(read_request::<Simple>(body.as_bytes()).unwrap(), Simple::default());
        }
    }

    /// Scenario: values without names stand where an object belongs, at the outside or within. Nobody knows what they mean.
    #[test]
    fn a_list_is_no_object_at_any_depth() {
        for body in
            ["[true]", r#"{"network":["127.0.0.1:1",null,[]]}"#, r#"[true,["127.0.0.1:1",null,[]],true]"#]
        {
            let read = read_request::<ServeSpace>(body.as_bytes());
            assert!(matches!(read, Err(RequestError::List)), "{body}: {read:?}");
        }
        let body = r#"{"network":{"listen":"127.0.0.1:1","allow":["me"]}}"#;
        assert!(read_request::<ServeSpace>(body.as_bytes()).is_ok());
    }

    /// Scenario: a client sends a field whose name has a line break and a terminal's escape in it.
    #[test]
    fn a_reason_is_one_line_whatever_was_sent() {
        let error = read_request::<Simple>(br#"{"a\nb\u001b[2J":1}"#).unwrap_err().to_string();
        assert!(error.contains(r"a\nb\u{1b}[2J") && !error.contains(char::is_control), "{error}");
    }
}
