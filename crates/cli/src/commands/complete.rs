//! Names for completion: of pools, spaces, disks, jobs and codes, as the daemon has them.
//!
//! Shells call `dolmen completion SHELL -- WORDS…` for each TAB, with the words behind the program up to the cursor. The words are
//! read by the definition of the command line. Without a daemon, or with one that does not answer at once, there are no names.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Arg, Command, CommandFactory};
use dolmen_api::{all_codes, verb};
use dolmen_check::EXPLAINED;

use crate::arguments::Arguments;
use crate::commands::daemon;
use crate::http::Peer;
use crate::session::client::{Client, call};

/// Time that the daemon has for an answer: a person waits at the prompt.
const WAIT_MAX: Duration = Duration::from_secs(1);

/// Kind of name that an argument takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NameKind {
    Pool,
    Space,
    /// A space that is to be made, of which the pool is known.
    NewSpace,
    Trashed,
    /// A disk of the pool before it.
    Disk,
    Job,
    Code,
    /// A pool, a space or a disk.
    Object,
    /// The same, or a job.
    ObjectOrJob,
}

/// Place of the cursor in a line.
#[derive(Debug, Default)]
struct Place {
    kind: Option<NameKind>,
    /// Values before it that belong to no option.
    given: Vec<String>,
    socket: Option<PathBuf>,
}

/// Returns the names that may stand at the end of a line.
pub(crate) fn names(line: &[String]) -> Vec<String> {
    let Some((current, typed)) = line.split_last() else { return Vec::new() };
    let mut root = Arguments::command();
    root.build();
    let place = place(&root, typed, current);
    let Some(kind) = place.kind else { return Vec::new() };
    let socket = daemon::socket_or_usual(place.socket, daemon::socket_asked());
    let client = Client::new(Peer { socket, limit: WAIT_MAX });
    let mut names = named(kind, place.given.first().map(String::as_str), &client);
    // A name with a line break would be two.
    names.retain(|name| name.starts_with(current.as_str()) && !name.contains('\n'));
    names
}

/// Reads a line by the definition of the command line.
fn place(root: &Command, typed: &[String], current: &str) -> Place {
    let (mut command, mut path, mut place) = (root, Vec::new(), Place::default());
    let mut pending: Option<&Arg> = None;
    let mut are_options_over = false;
    for word in typed {
        if let Some(option) = pending.take() {
            if option.get_id() == "socket" {
                place.socket = Some(word.into());
            }
        } else if are_options_over {
            place.given.push(word.clone());
        } else if word == "--" {
            are_options_over = true;
        } else if word.starts_with('-') && word.len() > 1 {
            pending = option_of(command, word);
            if let Some(socket) = word.strip_prefix("--socket=") {
                place.socket = Some(socket.into());
            }
        } else if let Some(found) = command.find_subcommand(word).filter(|_| place.given.is_empty()) {
            command = found;
            path.push(found.get_name());
        } else {
            place.given.push(word.clone());
        }
    }
    let at_cursor = match pending {
        Some(option) => Some(option),
        None if current.starts_with('-') && !are_options_over => None,
        None => value_of(command, place.given.len()),
    };
    place.kind = at_cursor.and_then(|argument| kind_of(&path, argument));
    place
}

/// Returns the option that a word is, if its value is the next word.
fn option_of<'a>(command: &'a Command, word: &str) -> Option<&'a Arg> {
    let is_meant = |option: &&Arg| match word.strip_prefix("--") {
        Some(long) => option.get_long() == Some(long),
        None => option.get_short().is_some_and(|short| word.ends_with(short)),
    };
    let takes_value = |option: &&Arg| {
        option.get_action().takes_values() && option.get_num_args().is_none_or(|count| count.min_values() > 0)
    };
    command.get_arguments().find(is_meant).filter(takes_value)
}

/// Returns the argument that the next value is of, behind so many.
fn value_of(command: &Command, before: usize) -> Option<&Arg> {
    let takes_more = |argument: &&Arg| argument.get_num_args().is_some_and(|count| count.max_values() > 1);
    let usual = || command.get_positionals().filter(|argument| !argument.is_last_set());
    usual().nth(before).or_else(|| usual().last().filter(takes_more))
}

/// Returns the kind of name that an argument takes, if it takes one.
fn kind_of(path: &[&str], argument: &Arg) -> Option<NameKind> {
    let values = argument.get_value_names().unwrap_or_default();
    let value = values.first().map_or("", |name| name.as_str());
    Some(match (path, argument.get_id().as_str(), value) {
        // What is made or opened has no name yet, and files are for the shell.
        (["pool", "create" | "import"], ..) => return None,
        (["space", "create"], "space", _) | (["volume", "create"], "volume", _) => NameKind::NewSpace,
        (["trash", ..], "space" | "spaces", _) => NameKind::Trashed,
        (["image", ..], "volume", _) => NameKind::Space,
        (_, "disk" | "old", _) => NameKind::Disk,
        (_, "job", _) => NameKind::Job,
        (_, "code", _) => NameKind::Code,
        (["why"], "object", _) => NameKind::ObjectOrJob,
        (_, "words" | "objects", _) => NameKind::Object,
        (_, "targets", _) | (_, _, "POOL/SPACE") => NameKind::Space,
        (_, _, "POOL") => NameKind::Pool,
        _ => return None,
    })
}

/// Returns all names of a kind; none of what the daemon does not tell.
fn named(kind: NameKind, pool: Option<&str>, client: &Client) -> Vec<String> {
    match kind {
        NameKind::Pool => pools(client),
        NameKind::NewSpace => pools(client).into_iter().map(|pool| pool + "/").collect(),
        NameKind::Space => spaces(client),
        NameKind::Trashed => trashed(client),
        NameKind::Disk => pool.map(|pool| disks(client, pool)).unwrap_or_default(),
        NameKind::Job => jobs(client),
        NameKind::Code => {
            let codes = all_codes().map(|(_, code, _)| code.to_owned());
            codes.chain(EXPLAINED.iter().map(|code| code.name.to_owned())).collect()
        }
        NameKind::Object | NameKind::ObjectOrJob => {
            let pools = pools(client);
            let of_pools: Vec<String> = pools.iter().flat_map(|pool| disks(client, pool)).collect();
            let jobs = if kind == NameKind::ObjectOrJob { jobs(client) } else { Vec::new() };
            [pools, spaces(client), of_pools, jobs].concat()
        }
    }
}

fn pools(client: &Client) -> Vec<String> {
    let pools = client.look(&call::<verb::ListPools>([]));
    pools.map(|found| found.value.pools.into_iter().map(|pool| pool.name).collect()).unwrap_or_default()
}

fn spaces(client: &Client) -> Vec<String> {
    let spaces = client.look(&call::<verb::ListAllSpaces>([]));
    let name = |space: dolmen_api::Space| format!("{}/{}", space.pool, space.name);
    spaces.map(|found| found.value.spaces.into_iter().map(name).collect()).unwrap_or_default()
}

fn trashed(client: &Client) -> Vec<String> {
    let spaces = client.look(&call::<verb::ListAllTrash>([]));
    let name = |space: dolmen_api::TrashedSpace| format!("{}/{}", space.pool, space.name);
    spaces.map(|found| found.value.spaces.into_iter().map(name).collect()).unwrap_or_default()
}

/// Returns the disks of a pool by their paths; an absent one by the path that it had.
fn disks(client: &Client, pool: &str) -> Vec<String> {
    let disks = client.look(&call::<verb::ListDisks>([pool]));
    let path = |disk: dolmen_api::Disk| disk.path.or(disk.last_path).unwrap_or(disk.id);
    disks.map(|found| found.value.disks.into_iter().map(path).collect()).unwrap_or_default()
}

fn jobs(client: &Client) -> Vec<String> {
    let jobs = client.look(&call::<verb::ListJobs>([]));
    jobs.map(|found| found.value.jobs.into_iter().map(|job| job.id.to_string()).collect()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(line: &str) -> Option<NameKind> {
        let mut root = Arguments::command();
        root.build();
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let (current, typed) = words.split_last().unwrap();
        place(&root, typed, current).kind
    }

    #[test]
    fn the_cursor_is_at_the_argument_that_the_parser_would_read() {
        // Scenario: lines up to the cursor. Expected: the kind of name that the parser reads there.
        let cases = [
            ("", None),
            ("po", None),
            ("pool ", None),
            ("pool show ", Some(NameKind::Pool)),
            ("pool show ta", Some(NameKind::Pool)),
            ("pool show tank ", None),
            ("pool show -", None),
            ("pool create ", None),
            ("pool create tank ", None),
            ("pool remove tank ", Some(NameKind::Disk)),
            ("pool remove -n tank ", Some(NameKind::Disk)),
            ("pool remove --no-wait tank /d", Some(NameKind::Disk)),
            ("disk replace tank ", Some(NameKind::Disk)),
            ("disk replace tank old ", None),
            ("disk list ", Some(NameKind::Pool)),
            ("space create ", Some(NameKind::NewSpace)),
            ("space create tank/x --size ", None),
            ("space create --size 1G ", Some(NameKind::NewSpace)),
            ("space delete --destroy ", None),
            ("space attach ", Some(NameKind::Space)),
            ("-o json space attach ", Some(NameKind::Space)),
            ("-ojson space attach tank", Some(NameKind::Space)),
            ("--socket /s space attach ", Some(NameKind::Space)),
            ("trash restore ", Some(NameKind::Trashed)),
            ("trash purge tank/a ", Some(NameKind::Trashed)),
            ("trash purge --all ", Some(NameKind::Pool)),
            ("trash list ", Some(NameKind::Pool)),
            ("jobs ", Some(NameKind::Job)),
            ("job pause ", Some(NameKind::Job)),
            ("job set 7 --priority ", None),
            ("events --pool ", Some(NameKind::Pool)),
            ("why ", Some(NameKind::ObjectOrJob)),
            ("explain d", Some(NameKind::Code)),
            ("iostat tank ", Some(NameKind::Object)),
            ("top ", Some(NameKind::Object)),
            ("bench ", Some(NameKind::Space)),
            ("image add ", Some(NameKind::Space)),
            ("image add tank/vms ", None),
            ("image clone ", None),
            ("check ", None),
            ("completion ", None),
            ("no such words ", None),
        ];
        for (line, expected) in cases {
            assert_eq!(kind(line), expected, "{line:?}");
        }
    }

    #[test]
    fn codes_need_no_daemon_and_without_one_there_are_no_other_names() {
        let names = |line: &str| {
            let line = format!("--socket /nowhere/socket {line}");
            names(&line.split(' ').map(str::to_owned).collect::<Vec<_>>())
        };
        assert!(names("explain disk_").iter().any(|code| code == "disk_absent"));
        for line in ["pool show ", "space show ", "disk offline tank ", "jobs ", "why ", "trash restore "] {
            assert_eq!(names(line), Vec::<String>::new(), "{line}");
        }
    }
}
