//! Deduplication as people see it.

use dolmen_api::{Dedup, DedupMode, DedupPolicy, DedupRun, DedupWork, duration};
use dolmen_units::Bytes;

use crate::terminal::out::Out;
use crate::terminal::table::Table;
use crate::views::jobs::ago;
use crate::views::words::count;

/// Shows the deduplication of a volume.
pub(crate) fn show_dedup(dedup: &Dedup, out: &mut Out<'_>) {
    let name = format!("{}/{}", dedup.pool, dedup.name);
    let is = match (&dedup.unsupported, &dedup.policy) {
        (Some(why), _) => format!("impossible: {why}"),
        (None, Some(policy)) => format!("on, {}", policy.schedule),
        (None, None) => format!("off; `dolmen dedup estimate {name}` tells what it would save"),
    };
    out.line(format_args!("deduplication of volume {name}: {is}"));
    let mut facts = Table::facts();
    let mut fact = |name: &'static str, value: String| {
        if !value.is_empty() {
            facts.row(vec![name.into(), value.into()]);
        }
    };
    if let Some(policy) = &dedup.policy {
        fact("files", files(policy));
        fact("leaves out", [policy.excluded_folders.as_slice(), &policy.excluded_names].concat().join(", "));
        fact("mode", format!("{}, {} of memory", mode(policy.mode), Bytes(policy.memory_bytes)));
    }
    if let Some(next_s) = dedup.next_s {
        fact("next run", format!("in {}", duration(next_s.saturating_sub(dedup.now_s))));
    }
    match &dedup.last {
        Some(run) => {
            fact("last run", last(run, dedup.now_s));
            fact("saved in the volume", saved(run));
            fact("given back to the pool", Bytes(run.released_bytes).to_string());
            fact("held elsewhere", Bytes(run.held_bytes).to_string());
            if run.undone_bytes > 0 {
                fact("undone since then", Bytes(run.undone_bytes).to_string());
            }
        }
        None => fact("last run", "none".to_owned()),
    }
    fact("at work", dedup.work.as_ref().map(work).unwrap_or_default());
    out.facts(2, &facts);
}

fn files(policy: &DedupPolicy) -> String {
    let days = count(u64::from(policy.min_age_days), "day", "days");
    format!("of {} and more, without a change for {days}", Bytes(policy.min_file_bytes))
}

fn last(run: &DedupRun, now_s: u64) -> String {
    let took = duration(run.ended_s.saturating_sub(run.began_s));
    let ended = if run.is_stopped { "called off" } else { "ended" };
    format!("{ended} {}, took {took}, {}", ago(now_s, run.ended_s), mode(run.mode))
}

fn saved(run: &DedupRun) -> String {
    let saved = Bytes(run.saved_bytes);
    match run.compressed_bytes {
        0 => saved.to_string(),
        _ => format!("{saved} before compression; free room grew by {}", Bytes(run.freed_bytes)),
    }
}

fn work(work: &DedupWork) -> String {
    let mut text = format!("job {}", work.job);
    if let Some(step) = &work.step {
        text.push_str(&format!(", {step}: {}", Bytes(work.done_bytes)));
        if work.total_bytes > 0 {
            text.push_str(&format!(" of {}", Bytes(work.total_bytes)));
        }
        if work.files > 0 {
            text.push_str(&format!(", {}", count(work.files, "file", "files")));
        }
    }
    if work.saved_bytes > 0 {
        text.push_str(&format!(", {} saved", Bytes(work.saved_bytes)));
    }
    if work.is_yielding {
        text.push_str(", yields to clients");
    }
    text
}

fn mode(mode: DedupMode) -> &'static str {
    match mode {
        DedupMode::Background => "background",
        DedupMode::Throughput => "throughput",
    }
}
