//! Limits of spaces: shown, and set while clients use them (docs/design/0017).

use dolmen_api::SetLimits;
use dolmen_space::Limits;
use dolmen_units::Bytes;

/// What they become by a request: what it does not name stays, and what is zero goes.
pub(super) fn changed(before: Limits, request: &SetLimits) -> Limits {
    let one =
        |asked: Option<u64>, before| asked.map_or(before, |asked| Some(asked).filter(|asked| *asked > 0));
    let rate = |asked: Option<u64>, before: Option<Bytes>| one(asked, before.map(|rate| rate.0)).map(Bytes);
    Limits {
        iops_max: one(request.iops_max, before.iops_max),
        iops_min: one(request.iops_min, before.iops_min),
        rate_max: rate(request.bytes_per_s_max, before.rate_max),
        rate_min: rate(request.bytes_per_s_min, before.rate_min),
    }
}

/// What a space has of its pool's disks, in words.
pub(super) fn in_words(limits: Limits) -> String {
    let part = |iops: Option<u64>, rate: Option<Bytes>| {
        let parts = [iops.map(|iops| format!("{iops} I/Os")), rate.map(|rate| rate.to_string())];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        (!parts.is_empty()).then(|| format!("{} a second", parts.join(" and ")))
    };
    let most = part(limits.iops_max, limits.rate_max).map(|most| format!("at most {most}"));
    let least = part(limits.iops_min, limits.rate_min).map(|least| format!("{least} left to it by others"));
    let all: Vec<String> = most.into_iter().chain(least).collect();
    if all.is_empty() { "no limits".to_owned() } else { all.join(", and ") }
}

/// The command that sets limits to what they were.
pub(super) fn undo_of(name: &str, before: Limits, after: Limits) -> String {
    let bytes = |rate: Option<Bytes>| rate.map(|rate| rate.0);
    let options = [
        ("--iops-max", before.iops_max, after.iops_max),
        ("--iops-min", before.iops_min, after.iops_min),
        ("--rate-max", bytes(before.rate_max), bytes(after.rate_max)),
        ("--rate-min", bytes(before.rate_min), bytes(after.rate_min)),
    ];
    let mut command = format!("dolmen space set {name}");
    for (option, before, _) in options.iter().filter(|(_, before, after)| before != after) {
        let value = before.map_or_else(|| "none".to_owned(), |before| before.to_string());
        command.push_str(&format!(" {option} {value}"));
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_named_stays_and_zero_takes_away() {
        let before = Limits { iops_max: Some(5), rate_min: Some(Bytes::mib(1)), ..Limits::default() };
        let request = SetLimits { iops_min: Some(2), bytes_per_s_min: Some(0), ..SetLimits::default() };
        let after = changed(before, &request);
        assert_eq!(after, Limits { iops_max: Some(5), iops_min: Some(2), ..Limits::default() });
        assert_eq!(in_words(after), "at most 5 I/Os a second, and 2 I/Os a second left to it by others");
        assert_eq!(in_words(Limits::default()), "no limits");
        let undo = undo_of("tank/x", before, after);
        assert_eq!(undo, "dolmen space set tank/x --iops-min none --rate-min 1048576");
    }
}
