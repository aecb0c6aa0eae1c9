//! The answer to a request.

use dolmen_api::ErrorBody;

/// The answer to a request, or why there is none.
pub(crate) type Answer<T> = Result<T, ErrorBody>;
