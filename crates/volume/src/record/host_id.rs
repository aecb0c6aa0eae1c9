//! The identity of a host as a text, in fields that may be absent.

use dolmen_units::HostId;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serializer};

#[expect(clippy::ref_option, reason = "serde gives the field by reference")]
pub(super) fn serialize<S: Serializer>(host: &Option<HostId>, into: S) -> Result<S::Ok, S::Error> {
    match host {
        Some(host) => into.collect_str(host),
        None => into.serialize_none(),
    }
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<HostId>, D::Error> {
    let text = Option::<String>::deserialize(from)?;
    text.map(|text| text.parse().map_err(D::Error::custom)).transpose()
}
