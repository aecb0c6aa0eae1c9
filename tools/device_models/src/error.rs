//! What can be wrong with what a model is made of.

/// A parameter that describes no device.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field} is {found}, but {must}")]
pub struct ParameterError {
    /// The field of the parameters.
    pub field: &'static str,
    /// What it holds.
    pub found: u64,
    /// What would do.
    pub must: String,
}

impl ParameterError {
    pub(crate) fn new(field: &'static str, found: u64, must: impl Into<String>) -> Self {
        Self { field, found, must: must.into() }
    }
}

/// Checks that a field is between two bounds, both allowed.
pub(crate) fn within(field: &'static str, found: u64, least: u64, most: u64) -> Result<(), ParameterError> {
    if (least..=most).contains(&found) {
        return Ok(());
    }
    Err(ParameterError::new(field, found, format!("must be between {least} and {most}")))
}

/// Why the catalogue has no such model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no {kind} model {name:?}; known are {known}")]
pub struct UnknownModel {
    /// What was looked for: a device or a link.
    pub kind: &'static str,
    /// The name.
    pub name: String,
    /// The names that there are.
    pub known: String,
}
