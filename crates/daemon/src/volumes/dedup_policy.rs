//! Policies of deduplication: from requests to records, and as the API shows them.

use dolmen_api::{DedupPolicy, EnableDedup, ErrorBody, ErrorCode};
use dolmen_volume::mount_point::Folder;
use dolmen_volume::record::{Deduplication, Schedules};
use dolmen_volume::schedule::Schedule;
use dolmen_worker::protocol::long::MEMORY_BYTES_MIN;

use crate::answer::Answer;
use crate::volumes::words::{mode_of, shown_mode};

/// Schedule of a policy that names none.
const USUAL_SCHEDULE: &str = "weekly sunday 02:00";
/// Folders and patterns of a policy, at most.
const EXCLUDED_MAX: usize = 64;

/// Returns a policy and its schedule as a request changes them; none for both if it takes them away.
///
/// # Errors
/// Fails if a value cannot be one, and names it.
pub(super) fn wanted(
    request: &EnableDedup,
    policy: Option<&Deduplication>,
    schedules: &Schedules,
    name: &str,
) -> Answer<(Option<Deduplication>, Schedule)> {
    let refused = |message: String, hint: &str| {
        Err(ErrorBody::new(ErrorCode::BadRequest, format!("{message}; nothing was changed"))
            .on(name)
            .hint(hint))
    };
    if request.off {
        let only_off = EnableDedup { off: true, dry_run: request.dry_run, ..EnableDedup::default() };
        return match *request == only_off {
            true => Ok((None, Schedule::Never)),
            false => refused(
                "a policy that is taken away has no settings".to_owned(),
                "give --off alone, or the settings without it",
            ),
        };
    }
    let is_new = policy.is_none();
    let mut wanted = policy.cloned().unwrap_or_default();
    if let Some(mode) = request.mode {
        wanted.mode = mode_of(mode);
    }
    wanted.age_days_min = request.min_age_days.unwrap_or(wanted.age_days_min);
    wanted.file_bytes_min = request.min_file_bytes.unwrap_or(wanted.file_bytes_min);
    if let Some(bytes) = request.memory_bytes {
        if bytes < MEMORY_BYTES_MIN {
            let message =
                format!("{bytes} bytes of memory are below the {MEMORY_BYTES_MIN} that a run needs");
            return refused(message, "give 40M or more");
        }
        wanted.memory_bytes = Some(bytes);
    }
    let lists = [request.excluded_folders.as_ref(), request.excluded_names.as_ref()];
    if let Some(list) = lists.into_iter().flatten().find(|list| list.len() > EXCLUDED_MAX) {
        let message = format!("{} entries are excluded, and a policy has {EXCLUDED_MAX} at most", list.len());
        return refused(message, "exclude a folder above them");
    }
    if let Some(folders) = &request.excluded_folders {
        wanted.excluded = folders.iter().map(|folder| folder_of(folder, "", name)).collect::<Answer<_>>()?;
        if wanted.excluded.iter().any(Folder::is_root) {
            return refused(
                "a policy that excludes all folders has no files".to_owned(),
                "`dolmen dedup enable --off` ends deduplication",
            );
        }
    }
    if let Some(names) = &request.excluded_names {
        if let Some(text) = names.iter().find(|text| text.is_empty() || text.contains(['/', '\0'])) {
            let message = format!("{text:?} is no pattern of names");
            return refused(message, "give a name without a slash, such as '*.iso'");
        }
        if let Some(text) = names.iter().find(|text| text.contains(['[', ']', '{', '}', '\\'])) {
            let message = format!(
                "{text:?} is no pattern of names: only * and ? stand for other bytes, and [ ] {{ }} \\ have no meaning"
            );
            return refused(message, "use ? for one byte of any value, such as 'disk?.iso' for disk[1].iso");
        }
        wanted.excluded_names.clone_from(names);
    }
    let usual = if is_new { USUAL_SCHEDULE.parse().unwrap_or_default() } else { schedules.deduplication };
    let schedule = match &request.schedule {
        None => usual,
        Some(text) => match text.parse::<Schedule>() {
            Ok(schedule) => schedule,
            Err(error) => return refused(error.to_string(), "give one of these forms"),
        },
    };
    Ok((Some(wanted), schedule))
}

/// Returns a path within a volume. One below the mount point is one within the volume.
///
/// # Errors
/// Fails if it is no such path.
pub(super) fn folder_of(path: &str, mount_point: &str, name: &str) -> Answer<Folder> {
    let below = path.strip_prefix(mount_point).filter(|_| !mount_point.is_empty());
    let within = match below {
        Some("") => "",
        Some(rest) => rest.strip_prefix('/').unwrap_or(path),
        None => path,
    };
    within.trim_end_matches('/').parse::<Folder>().map_err(|error| {
        let message = format!("{path:?} is no path within volume {name}: {error}; nothing was changed");
        ErrorBody::new(ErrorCode::BadRequest, message)
            .on(name)
            .hint("give it as it is below the mount point, such as projects/old")
    })
}

/// Returns a policy as the API shows it.
pub(super) fn shown_policy(policy: &Deduplication, schedule: Schedule) -> DedupPolicy {
    DedupPolicy {
        mode: shown_mode(policy.mode),
        min_age_days: policy.age_days_min,
        min_file_bytes: policy.file_bytes_min,
        excluded_folders: policy.excluded.iter().map(|folder| folder.as_str().to_owned()).collect(),
        excluded_names: policy.excluded_names.clone(),
        memory_bytes: policy.memory_bytes.unwrap_or(Deduplication::MEMORY_BYTES),
        schedule: schedule.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(
        request: &EnableDedup,
        policy: Option<&Deduplication>,
    ) -> Answer<(Option<Deduplication>, Schedule)> {
        let schedules = Schedules { deduplication: "daily 04:00".parse().unwrap(), ..Schedules::default() };
        wanted(request, policy, &schedules, "tank/home")
    }

    #[test]
    fn what_a_request_leaves_out_is_as_usual_or_stays() {
        let (policy, schedule) = asked(&EnableDedup::default(), None).unwrap();
        assert_eq!(policy, Some(Deduplication::default()));
        assert_eq!(schedule.to_string(), USUAL_SCHEDULE);
        let before = Deduplication { age_days_min: 9, ..Deduplication::default() };
        let request = EnableDedup { min_file_bytes: Some(1), ..EnableDedup::default() };
        let (policy, schedule) = asked(&request, Some(&before)).unwrap();
        assert_eq!(policy, Some(Deduplication { file_bytes_min: 1, ..before }));
        assert_eq!(schedule.to_string(), "daily 04:00");
    }

    #[test]
    fn off_takes_all_away_and_takes_no_settings() {
        let off = EnableDedup { off: true, ..EnableDedup::default() };
        assert_eq!(asked(&off, Some(&Deduplication::default())), Ok((None, Schedule::Never)));
        let both = EnableDedup { min_age_days: Some(1), ..off };
        assert_eq!(asked(&both, None).unwrap_err().code, ErrorCode::BadRequest);
    }

    #[test]
    fn values_that_no_run_could_use_are_refused_by_name() {
        let list = |text: &str| Some(vec![text.to_owned()]);
        for (request, named) in [
            (EnableDedup { memory_bytes: Some(1 << 20), ..EnableDedup::default() }, "1048576"),
            (EnableDedup { excluded_folders: list("../etc"), ..EnableDedup::default() }, "../etc"),
            (EnableDedup { excluded_folders: list(""), ..EnableDedup::default() }, "all folders"),
            (EnableDedup { excluded_names: list("a/b"), ..EnableDedup::default() }, "a/b"),
            (EnableDedup { excluded_names: list("["), ..EnableDedup::default() }, "only * and ?"),
            (EnableDedup { excluded_names: list("*.{iso,img}"), ..EnableDedup::default() }, "only * and ?"),
            (EnableDedup { schedule: Some("often".to_owned()), ..EnableDedup::default() }, "often"),
            (
                EnableDedup { excluded_names: Some(vec!["x".to_owned(); 65]), ..EnableDedup::default() },
                "65 entries",
            ),
        ] {
            let error = asked(&request, None).unwrap_err();
            assert!(error.message.contains(named), "{named}: {}", error.message);
        }
    }

    #[test]
    fn a_path_below_the_mount_point_is_one_within_the_volume() {
        let of =
            |path: &str| folder_of(path, "/srv/home", "tank/home").map(|folder| folder.as_str().to_owned());
        for (path, within) in
            [("/srv/home/a/b", "a/b"), ("/srv/home", ""), ("/srv/home/", ""), ("a/b/", "a/b")]
        {
            assert_eq!(of(path).as_deref(), Ok(within), "{path}");
        }
        assert!(of("/srv/homes/a").is_err(), "another folder");
    }
}
