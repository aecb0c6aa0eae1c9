//! Resiliency as documents of the API name it.

use dolmen_api::ResiliencyKind;
use dolmen_space::{Integrity, Resiliency};

pub(crate) fn integrity_of(integrity: Integrity) -> dolmen_api::Integrity {
    match integrity {
        Integrity::Relaxed => dolmen_api::Integrity::Relaxed,
        Integrity::Strict => dolmen_api::Integrity::Strict,
    }
}

pub(crate) fn resiliency_of(resiliency: Resiliency) -> ResiliencyKind {
    match resiliency {
        Resiliency::Simple => ResiliencyKind::Simple,
        Resiliency::Span => ResiliencyKind::Span,
        Resiliency::Mirror { .. } => ResiliencyKind::Mirror,
        Resiliency::Parity { .. } => ResiliencyKind::Parity,
    }
}
