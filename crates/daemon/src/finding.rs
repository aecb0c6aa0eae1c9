//! A finding, as findings are made everywhere.

use dolmen_api::{Finding, FindingCode, Health, Object};

/// A finding of which there cannot be more or less.
pub(crate) fn found(code: FindingCode, health: Health, object: Object, text: String) -> Finding {
    Finding { code, health, object, text, amount: 0 }
}
