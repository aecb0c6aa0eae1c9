//! Reports of answers that `fio` once gave, recorded on a file.

use crate::fio::Measured;
use crate::plan::tests::plan;
use crate::plan::{Flush, Plan};
use crate::report::{Ending, Facts, Machine, Report};
use crate::run::{Answer, Event, Generator, Halt, Order, measure};
use crate::stats::Verdict;
use crate::{page, table};

const MIXED: &str = include_str!("../../recorded/mixed.json");
const MIXED_LOG: &str = include_str!("../../recorded/mixed_bw.log");
const FILE: &str = include_str!("../../recorded/file.json");
const FAILED: &str = include_str!("../../recorded/failed.json");

/// Hands out one recorded answer, and stops when it has been asked often enough.
struct Recorded {
    answer: Answer,
    orders: Vec<String>,
    stops_after: usize,
}

#[derive(Debug, thiserror::Error)]
#[error("never")]
struct Never;

impl Generator for Recorded {
    type Error = Never;

    fn run(&mut self, order: &Order<'_>) -> Result<Answer, Halt<Never>> {
        if self.orders.len() == self.stops_after {
            return Err(Halt::Interrupted);
        }
        self.orders.push(order.job.to_owned());
        Ok(self.answer.clone())
    }

    fn idle_percent(&mut self) -> Option<f64> {
        Some(3.0)
    }
}

fn recorded(text: &str, log: &str) -> Recorded {
    let answer = Answer { text: text.to_owned(), log: log.to_owned() };
    Recorded { answer, orders: Vec::new(), stops_after: usize::MAX }
}

fn facts(ending: Ending, idle: Vec<Option<f64>>) -> Facts {
    let machine = Machine { processors: 2, memory_bytes: 1 << 30, kernel: "6.1".to_owned() };
    Facts { ending, started_s: 1_700_000_000, command: "dolmen bench '<a>'".to_owned(), machine, idle }
}

/// A report on answers that are all the same but for a factor on the second target.
fn report(plan: &Plan, factor: impl Fn(u32) -> f64) -> Report {
    let outcome = measure(plan, &[], &mut recorded(MIXED, MIXED_LOG), &mut |_| {});
    let scale = |step: &crate::plan::Step, mut measured: Measured| {
        if step.target == 1 {
            measured.ios_per_s *= factor(step.round);
        }
        (*step, measured)
    };
    let runs = outcome.runs.into_iter().map(|(step, measured)| scale(&step, measured)).collect();
    Report::new(plan, runs, facts(Ending::Complete, outcome.idle))
}

/// The recorded answer's figures come out as fio printed them.
#[test]
fn what_fio_answered_is_read_to_the_digit() {
    let plan = plan(&["file-copy"]);
    let report = report(&plan, |_| 1.0);
    let run = &report.runs[0].measured;
    assert_eq!(run.fio_version, "fio-3.33");
    assert_eq!((run.ios, run.bytes_per_s, run.runtime_ms), (18390, 602760891, 2001));
    let (reads, writes) = (run.reads.as_ref().unwrap(), run.writes.as_ref().unwrap());
    assert_eq!(reads.ios + writes.ios, 18390);
    assert_eq!(run.latency.p99_ns, 12386304);
    assert_eq!(run.flushes, 576);
    // N = X · R: 16 I/Os were under way, but for the time that flushes took of it.
    let under_way = run.ios_per_s * run.latency.mean_ns / 1e9;
    assert!(under_way < 16.1, "{under_way}");
    let times: Vec<u64> = run.samples.iter().map(|sample| sample.at_ms).collect();
    assert_eq!(times, [250, 500, 750, 1000, 1250, 1500, 1750, 2000]);
}

/// Two targets, five rounds: curves, comparisons with their verdicts, a page that needs nothing else.
#[test]
fn targets_are_compared_round_by_round() {
    let mut plan = plan(&["file-copy", "restore"]);
    plan.settings.rounds = 5;
    let steady = report(&plan, |_| 2.0);
    assert_eq!(steady.comparisons.len(), 4 * 9);
    assert!(steady.comparisons.iter().all(|comparison| comparison.ratio.verdict == Verdict::Faster));
    assert!(!steady.warnings.iter().any(|warning| warning.contains("too noisy")));
    let noisy = report(&plan, |round| if round == 3 { 0.5 } else { 2.0 });
    assert!(noisy.comparisons.iter().all(|comparison| comparison.ratio.verdict == Verdict::TooNoisy));
    assert!(
        noisy.warnings.iter().any(|warning| warning.contains("too noisy to tell targets apart in 36 of 36"))
    );
    assert!(noisy.points.iter().filter(|point| point.place.target == "b").all(|point| point.is_noisy));
    // The second target's export flushed after each write: whatever the rates say, that is another load.
    let outcome = measure(&plan, &[], &mut recorded(MIXED, MIXED_LOG), &mut |_| {});
    let mut runs = outcome.runs;
    for (step, measured) in &mut runs {
        if step.target == 1 && step.flush != Flush::Never {
            measured.writes_per_flush = Some(1.0);
        }
    }
    let uneven = Report::new(&plan, runs, facts(Ending::Complete, outcome.idle));
    for comparison in &uneven.comparisons {
        let is_same = comparison.place.flush == Flush::Never;
        let expected = if is_same { Verdict::Equal } else { Verdict::OtherFlushes };
        assert_eq!(comparison.ratio.verdict, expected);
    }
    plan.settings.rounds = 2;
    let short = report(&plan, |_| 2.0);
    let warns = |report: &Report, text: &str| report.warnings.iter().any(|warning| warning.contains(text));
    assert!(warns(
        &short,
        "too few rounds to say which target is faster in 36 of 36 comparisons; --rounds 5"
    ));
    // 36 comparisons, each wrong with 1/16.
    assert!(warns(
        &steady,
        "36 of 36 comparisons have a verdict; chance alone makes up to 2.2 of them false"
    ));
    assert!(!warns(&noisy, "chance alone") && !warns(&short, "chance alone"));
}

/// All the rates are the same here, so that every curve is full from its first point on.
#[test]
fn a_page_is_complete_and_needs_nothing_else() {
    let mut plan = plan(&["file-copy", "striping"]);
    plan.targets[1].name = "<i>\"".to_owned();
    let report = report(&plan, |_| 1.0);
    assert_eq!(report.knee("file-copy", "a", Flush::Every(32)), Some(1));
    let page = page::render(&report);
    assert!(
        page.contains("2023-11-14 22:13 UTC: dolmen bench &#39;&lt;a&gt;&#39;</p>"),
        "who made it, and when: {page}"
    );
    // Each profile has throughput, latency on two targets, and throughput over time.
    assert_eq!(page.matches("<svg").count(), 8);
    for foreign in ["<i>", "<script", "src=", "href=", "url(", "@import"] {
        assert!(!page.contains(foreign), "{foreign}");
    }
    assert!(page.contains("&lt;i&gt;&quot;") && page.ends_with("</html>\n"));
    assert!(page.contains("after every 32 writes") && page.contains("Kleinrock"));
    let table = table::render(&report).unwrap();
    assert_eq!(table.lines().count(), 1 + 2 * (9 * 2 + 32));
    assert!(table.starts_with("profile,target,flush,outstanding,"), "{table}");
    let document = serde_json::to_value(&report).unwrap();
    assert_eq!((&document["schema"], &document["is_complete"]), (&1.into(), &true.into()));
    assert_eq!(document["points"][0]["flush"], "none");
    assert_eq!(document["runs"][0]["samples"][0]["at_ms"], 250);
}

/// What was measured before a signal is kept, and said to be a part.
#[test]
fn an_interrupted_run_keeps_what_it_has() {
    let plan = plan(&["restore"]);
    let mut generator = Recorded { stops_after: 5, ..recorded(FILE, "") };
    let mut seen = 0;
    let outcome = measure(&plan, &[], &mut generator, &mut |event| {
        seen += usize::from(matches!(event, Event::Measured { .. }));
    });
    assert!(matches!(outcome.halted, Some(Halt::Interrupted)));
    assert_eq!((outcome.runs.len(), seen), (5, 5));
    let report = Report::new(&plan, outcome.runs, facts(Ending::Interrupted, outcome.idle));
    assert!(!report.is_complete && report.warnings[0].starts_with("interrupted"));
    assert_eq!(report.points.len(), 5);
    assert!(page::render(&report).contains("interrupted"));
}

/// Whoever asked for enough rounds and then stopped is not told to ask for as many.
#[test]
fn an_interrupted_run_does_not_advise_more_rounds() {
    let mut plan = plan(&["restore"]);
    plan.settings.rounds = 5;
    let mut generator = Recorded { stops_after: 50, ..recorded(FILE, "") };
    let outcome = measure(&plan, &[], &mut generator, &mut |_| {});
    let report = Report::new(&plan, outcome.runs, facts(Ending::Interrupted, outcome.idle));
    let few = report.warnings.iter().find(|warning| warning.starts_with("too few rounds")).unwrap();
    assert!(few.ends_with("the run ended before 5 of them were done"), "{few}");
}

/// A target is written once, piece by piece and without a gap, before anything is measured.
#[test]
fn targets_are_filled_without_a_gap() {
    let plan = plan(&["restore"]);
    let mut generator = recorded(FILE, "");
    let outcome = measure(&plan, &[1], &mut generator, &mut |_| {});
    assert!(outcome.halted.is_none());
    let fills: Vec<&String> = generator.orders.iter().take_while(|job| job.contains("\noffset=")).collect();
    let number = |job: &str, name: &str| -> u64 {
        let line = job.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap().parse().unwrap()
    };
    let mut end = 0;
    for job in &fills {
        assert_eq!(number(job, "offset="), end);
        end += number(job, "size=");
    }
    assert_eq!((fills.len(), end), (32, 4 << 30));
}

/// A load that fails ends the run, names the target and keeps what there is.
#[test]
fn a_failed_load_is_named() {
    let outcome = measure(&plan(&["restore"]), &[], &mut recorded(FAILED, ""), &mut |_| {});
    let halted = outcome.halted.unwrap();
    assert_eq!(halted.to_string(), "measuring a failed");
    let cause = std::error::Error::source(&halted).unwrap().to_string();
    assert!(cause.contains("error 28 (No space left on device"), "{cause}");
}
