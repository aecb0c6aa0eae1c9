//! Numbers of the spaces that nobody made: those of write caches, shadow rows and conversion shadows.

use dolmen_units::SpaceId;

/// Numbers of write caches: the highest, so that their rows are locked behind those of all others.
pub(crate) const CACHES_FROM: u64 = u64::MAX - 255;

/// What numbers of spaces of shadow rows have, beside that of the space whose rows they are the shadow rows of.
pub(crate) const OF_SHADOWS: u64 = 1 << 63;

/// What those of conversion shadows have besides.
pub(crate) const OF_CONVERSION_SHADOWS: u64 = OF_SHADOWS | 1 << 62;

/// Whether a space is one that nobody made.
pub(crate) fn is_hidden(id: SpaceId) -> bool {
    id.0 >= OF_SHADOWS
}

/// The number of the hidden space in which the shadow rows of a space's rows are.
pub(crate) fn shadows_of(id: SpaceId) -> SpaceId {
    SpaceId(id.0 | OF_SHADOWS)
}

/// Whether a space is one of shadow rows.
pub(crate) fn is_of_shadows(id: SpaceId) -> bool {
    (OF_SHADOWS..OF_CONVERSION_SHADOWS).contains(&id.0)
}

/// The number of the hidden space in which the conversion shadow rows are.
pub(crate) fn conversion_shadows_of(id: SpaceId) -> SpaceId {
    SpaceId(id.0 | OF_CONVERSION_SHADOWS)
}

/// Whether a space is one of conversion shadows.
pub(crate) fn is_of_conversion_shadows(id: SpaceId) -> bool {
    (OF_CONVERSION_SHADOWS..CACHES_FROM).contains(&id.0)
}

/// The space that people see which a space is, or whose rows are about to be replaced by its own.
pub(crate) fn seen_as(id: SpaceId) -> SpaceId {
    match id {
        id if is_of_shadows(id) => SpaceId(id.0 & !OF_SHADOWS),
        id if is_of_conversion_shadows(id) => SpaceId(id.0 & !OF_CONVERSION_SHADOWS),
        id => id,
    }
}

/// The number of the space that the write cache for spaces of a redundancy lies in.
pub(crate) fn cache_id(redundancy: u8) -> SpaceId {
    SpaceId(CACHES_FROM + u64::from(redundancy))
}

/// Whether a space is one that a write cache lies in.
pub(crate) fn is_of_cache(id: SpaceId) -> bool {
    id.0 >= CACHES_FROM
}

/// The counter that row ids come from.
pub(crate) const COUNTER_ROW: u64 = 1;

/// The counter that space ids come from.
pub(crate) const COUNTER_SPACE: u64 = 2;
