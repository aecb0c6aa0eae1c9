//! What is to be known before anything is concluded from a report.

use super::{Ending, FLUSHES_FACTOR, Report, TargetDocument};
use crate::plan::Flush;
use crate::stats::{NOISY_PERCENT, ROUNDS_FOR_VERDICT, Verdict};

/// Others may use so much of the machine, in per cent, before it is called busy.
const BUSY_PERCENT: f64 = 10.0;

/// Everything that is to be said, in this order.
pub(super) fn of(report: &Report) -> Vec<String> {
    let mut warnings = Vec::new();
    match &report.ending {
        Ending::Complete => {}
        Ending::Interrupted => {
            warnings
                .push("interrupted: what was measured until then is here, the rest is missing".to_owned());
        }
        Ending::Failed { why } => warnings.push(format!("ended early: {why}; the rest is missing")),
    }
    let busy = report.idle.iter().filter_map(|idle| idle.others_percent);
    let busiest = busy.fold(0.0, f64::max);
    if busiest > BUSY_PERCENT {
        warnings.push(format!(
            "others used up to {busiest:.0} % of this machine's processors while nothing was measured: figures are lower, and differ more, than on a quiet machine"
        ));
    }
    let noisy = report.points.iter().filter(|point| point.is_noisy).count();
    if noisy > 0 {
        warnings.push(format!(
            "{noisy} of {} points have rounds that lie more than {NOISY_PERCENT:.0} % apart; they are marked with ~",
            report.points.len()
        ));
    }
    for target in &report.targets {
        let name = &target.name;
        warnings.extend(target.notes.iter().map(|note| format!("{name}: {note}")));
        warnings.extend(too_many_flushes(report, target));
    }
    warnings.extend(verdicts(report));
    warnings
}

/// Some versions of `fio` repeat a flush after each read that comes before the next write, and with some engines after
/// each write that ends before it; what happened is counted.
fn too_many_flushes(report: &Report, target: &TargetDocument) -> Option<String> {
    let of_target = report.points.iter().filter(|point| point.place.target == target.name);
    let worst = of_target.filter_map(|point| match (point.place.flush, point.writes_per_flush) {
        (Flush::Every(asked), Some(found)) if found * FLUSHES_FACTOR < f64::from(asked) => {
            Some((asked, found))
        }
        _ => None,
    });
    let (asked, found) = worst.min_by(|a, b| a.1.total_cmp(&b.1))?;
    Some(format!(
        "{}: {} with its engine {} sent a flush after each {found:.1} writes where {asked} were asked for; figures with flushes are those of what it did, which the column W/FLUSH has",
        target.name,
        report.fio_version.as_deref().unwrap_or("fio"),
        target.engine
    ))
}

fn verdicts(report: &Report) -> Vec<String> {
    let count = |verdicts: &[Verdict]| {
        report.comparisons.iter().filter(|comparison| verdicts.contains(&comparison.ratio.verdict)).count()
    };
    let all = report.comparisons.len();
    let mut message = Vec::new();
    let few = count(&[Verdict::TooFewRounds]);
    if few > 0 {
        message.push(format!(
            "too few rounds to say which target is faster in {few} of {all} comparisons; {}",
            why_few(report)
        ));
    }
    let noisy = count(&[Verdict::TooNoisy]);
    if noisy > 0 {
        message.push(format!("the machine was too noisy to tell targets apart in {noisy} of {all} comparisons; more --rounds or a longer --runtime may help"));
    }
    let verified = count(&[Verdict::Faster, Verdict::Slower, Verdict::Equal]);
    if verified > 0 {
        let could = [Verdict::Faster, Verdict::Slower, Verdict::Equal, Verdict::TooNoisy];
        let tried = report.comparisons.iter().filter(|comparison| could.contains(&comparison.ratio.verdict));
        let expected: f64 = tried.map(|comparison| comparison.ratio.chance_of_error()).sum();
        message.push(format!("{verified} of {all} comparisons have a verdict; chance alone makes up to {expected:.1} of them false, fewer with more --rounds"));
    }
    message
}

/// Why rounds are missing: they were not asked for, not come to, or brought nothing.
fn why_few(report: &Report) -> String {
    if usize::try_from(report.rounds).is_ok_and(|rounds| rounds < ROUNDS_FOR_VERDICT) {
        format!("--rounds {ROUNDS_FOR_VERDICT} or more is needed")
    } else if report.is_complete {
        format!("a round in which a target moved nothing does not count, and {ROUNDS_FOR_VERDICT} are needed")
    } else {
        format!("the run ended before {ROUNDS_FOR_VERDICT} of them were done")
    }
}
