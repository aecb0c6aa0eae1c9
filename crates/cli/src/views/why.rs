//! Why something is as it is: a chain of causes, down to what to do.

use dolmen_api::{Cause, ObjectKind, Why, duration};

use crate::terminal::out::Out;
use crate::views::words::{date, health_tone};

/// Causes of causes that are shown, at most.
const DEPTH_MAX: usize = 8;

/// Shows why.
pub(crate) fn show_why(why: &Why, out: &mut Out<'_>) {
    let state = out.paint_results.tone(&why.state, health_tone(why.health));
    out.line(state);
    if why.causes.is_empty() && why.object.kind != ObjectKind::Job {
        out.line("  nothing is the matter with it");
    }
    let mut reported = Vec::new();
    why.causes.iter().for_each(|cause| show_cause(cause, why.now_s, 1, &mut reported, out));
    for (at, doing) in why.doing.iter().enumerate() {
        out.labelled(if at == 0 { "doing  " } else { "       " }, doing);
    }
}

/// A cause below what it is the cause of. What to do is told once, also where several things come from one.
fn show_cause(cause: &Cause, now_s: u64, depth: usize, reported: &mut Vec<String>, out: &mut Out<'_>) {
    let indent = "  ".repeat(depth);
    let since = cause.since_s.map(|at| since(now_s, at)).unwrap_or_default();
    let code = cause.code.map(|code| format!(" [{}]", code.word())).unwrap_or_default();
    out.labelled(&format!("{indent}because "), &format!("{}{since}{code}", cause.text));
    if depth < DEPTH_MAX {
        cause.causes.iter().for_each(|below| show_cause(below, now_s, depth + 1, reported, out));
    }
    for todo in cause.todo.iter().filter(|todo| !reported.contains(todo)).cloned().collect::<Vec<_>>() {
        out.labelled(&format!("{indent}  to do   "), &todo);
        reported.push(todo);
    }
}

fn since(now_s: u64, at_s: u64) -> String {
    format!(", since {} ({})", date(at_s), duration(now_s.saturating_sub(at_s)))
}
