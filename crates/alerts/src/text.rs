//! Subject and body of a notification, in sentences.

use dolmen_api::{Object, ObjectKind, shell_word};

use crate::alert::Alert;
use crate::date;
use crate::evidence::{Evidence, cut_line};
use crate::notification::Kind;
use crate::severity::Severity;

/// Bytes of a subject, at most.
pub const SUBJECT_BYTES_MAX: usize = 200;

/// Subject, body and commands of a notification.
pub(crate) struct Words {
    pub(crate) subject: String,
    pub(crate) body: String,
    pub(crate) commands: Vec<String>,
}

/// What a notification is to say of an alert, beside its content.
pub(crate) struct Report<'a> {
    pub(crate) kind: Kind,
    pub(crate) host: &'a str,
    pub(crate) now_s: u64,
    /// Severity before, of one that is raised or lowered.
    pub(crate) before: Option<Severity>,
}

/// Returns the first letter large, and a full stop at the end: texts of findings have neither.
fn sentence(text: &str) -> String {
    let mut chars = text.chars();
    let first: String = chars.next().map(|first| first.to_uppercase().collect()).unwrap_or_default();
    let end = if text.ends_with(['.', '!', '?', '…']) { "" } else { "." };
    format!("{first}{}{end}", chars.as_str())
}

/// Returns the name of a space or volume in commands.
fn path_of(object: &Object) -> Option<String> {
    let pool = object.pool.as_deref()?;
    (object.kind == ObjectKind::Space).then(|| format!("{pool}/{}", object.name))
}

/// Returns a command with the names of an object in the place of the words in capitals that stand for them.
fn filled(command: &str, object: &Object) -> String {
    let word = |word: &str| -> String {
        let name = match word {
            "POOL" => object.pool.clone(),
            "DISK" if object.kind == ObjectKind::Disk => Some(object.name.clone()),
            "POOL/SPACE" | "SPACE" | "VOLUME" => path_of(object),
            _ => None,
        };
        name.map_or_else(|| word.to_owned(), |name| shell_word(&name).into_owned())
    };
    command.split(' ').map(word).collect::<Vec<_>>().join(" ")
}

/// Returns a text with the names of an object in its commands, and these commands. Commands are between backticks.
fn with_commands(text: &str, object: &Object) -> (String, Vec<String>) {
    let (mut out, mut commands) = (String::new(), Vec::new());
    for (number, part) in text.split('`').enumerate() {
        if number % 2 == 0 {
            out.push_str(part);
            continue;
        }
        let command = cut_line(&filled(part, object), crate::evidence::TEXT_BYTES_MAX);
        out.push_str(&format!("`{command}`"));
        commands.push(command);
    }
    (out, commands)
}

/// Returns the command that explains an object.
fn why_command(object: &Object) -> Option<String> {
    let name = match object.kind {
        ObjectKind::Daemon => return None,
        ObjectKind::Pool | ObjectKind::Job => object.name.clone(),
        ObjectKind::Disk | ObjectKind::Space => format!("{}/{}", object.pool.as_deref()?, object.name),
    };
    Some(cut_line(&format!("dolmen why {}", shell_word(&name)), crate::evidence::TEXT_BYTES_MAX))
}

fn nearest(alert: &Alert) -> impl Iterator<Item = &Evidence> {
    let distance = alert.evidence.first().map_or(0, |one| one.distance);
    alert.evidence.iter().take_while(move |one| one.distance == distance)
}

/// Returns the cause in a few words: the first text, and how many more there are.
fn headline(alert: &Alert) -> String {
    let first = alert.evidence.first().map_or("", |one| one.text.as_str());
    match nearest(alert).count() {
        0 | 1 => first.to_owned(),
        count => format!("{first}, and {} more", count - 1),
    }
}

/// Returns what is new, as the start of the subject and as the first sentence of the body.
fn news(alert: &Alert, report: &Report<'_>) -> (String, Option<String>) {
    let word = alert.severity.word();
    match report.kind {
        Kind::Opened => (word.to_owned(), None),
        Kind::Raised | Kind::Lowered => {
            let before = report.before.map_or("", Severity::word);
            (format!("now {word}"), Some(format!("This alert is {word} now and was {before} before.")))
        }
        Kind::Grown => {
            (format!("more, {word}"), Some("There is more of this than was reported before.".to_owned()))
        }
        Kind::Reminder => (format!("still {word}"), Some("This alert is still open.".to_owned())),
        Kind::Closed => {
            ("over".to_owned(), Some("This alert is over: what it reported holds no more.".to_owned()))
        }
        Kind::Heartbeat => ("heartbeat".to_owned(), None),
        Kind::Test => ("test".to_owned(), None),
    }
}

/// Returns the words of a notification about an alert.
pub(crate) fn of_alert(alert: &Alert, report: &Report<'_>) -> Words {
    let (start, first) = news(alert, report);
    let subject = cut_line(&format!("{start} on {}: {}", report.host, headline(alert)), SUBJECT_BYTES_MAX);
    let mut paragraphs: Vec<String> = first.into_iter().collect();
    let causes: Vec<String> = nearest(alert).map(|one| sentence(&one.text)).collect();
    paragraphs.push(causes.join("\n"));
    paragraphs.push(match report.kind {
        Kind::Closed => {
            format!(
                "It was seen first at {} and was over at {}.",
                date::text(alert.since_s),
                date::text(report.now_s)
            )
        }
        Kind::Opened
        | Kind::Raised
        | Kind::Lowered
        | Kind::Grown
        | Kind::Reminder
        | Kind::Heartbeat
        | Kind::Test => {
            format!("It was seen first at {}.", date::text(alert.since_s))
        }
    });
    let mut rest: Vec<String> =
        alert.evidence.iter().skip(causes.len()).map(|one| format!("- {}", one.text)).collect();
    if alert.left_out > 0 {
        rest.push(format!("- and {} more", alert.left_out));
    }
    if !rest.is_empty() {
        let follows =
            if report.kind == Kind::Closed { "This followed from it:" } else { "This follows from it:" };
        paragraphs.push(format!("{follows}\n{}", rest.join("\n")));
    }
    let mut commands = Vec::new();
    if report.kind != Kind::Closed {
        commands = put_advice(alert, &mut paragraphs);
    }
    Words { subject, body: format!("{}\n", paragraphs.join("\n\n")), commands }
}

/// Adds what Dolmen does and what somebody may do about the cause. Returns the commands.
fn put_advice(alert: &Alert, paragraphs: &mut Vec<String>) -> Vec<String> {
    let mut commands = Vec::new();
    let Some(first) = alert.evidence.first() else { return commands };
    if let Some(explanation) = first.explanation() {
        if explanation.by_itself != "Nothing." {
            paragraphs
                .push(format!("What Dolmen does: {}", with_commands(explanation.by_itself, &first.object).0));
        }
        let (to_do, found) = with_commands(explanation.to_do, &first.object);
        commands.extend(found);
        paragraphs.push(format!("What to do: {to_do}"));
    }
    if let Some(why) = why_command(&first.object) {
        paragraphs.push(format!("`{why}` explains it."));
        commands.push(why);
    }
    let mut known = std::collections::BTreeSet::new();
    commands.retain(|command| known.insert(command.clone()));
    commands
}

/// Open alerts and silences, as a heartbeat counts them.
pub(crate) struct Tally {
    pub(crate) is_answered: bool,
    pub(crate) open: usize,
    pub(crate) silences: usize,
}

/// Returns the words of a heartbeat.
pub(crate) fn of_heartbeat(tally: &Tally, host: &str) -> Words {
    let answers = if tally.is_answered { "the daemon answers" } else { "the daemon does not answer" };
    let (open, silences) = (
        counted(tally.open, "alert is", "alerts are"),
        counted(tally.silences, "silence is", "silences are"),
    );
    let subject = cut_line(&format!("heartbeat of {host}: {answers}, {open} open"), SUBJECT_BYTES_MAX);
    let body = format!(
        "Notifications of {host} arrive here.\n\n{}. {} open, and {} set.\n\n`dolmen status` shows the state of everything.\n",
        sentence(answers).trim_end_matches('.'),
        sentence(&open).trim_end_matches('.'),
        silences
    );
    Words { subject, body, commands: vec!["dolmen status".to_owned()] }
}

/// Returns the words of a test that this user asked for.
pub(crate) fn of_test(author: &str, host: &str) -> Words {
    let subject = cut_line(&format!("test of {host}: notifications arrive"), SUBJECT_BYTES_MAX);
    let author = cut_line(author, crate::evidence::TEXT_BYTES_MAX);
    let body = format!(
        "This is a test of the notifications of {host}, asked for by {author}. Nothing has happened.\n\n`dolmen status` shows the state of everything.\n"
    );
    Words { subject, body, commands: vec!["dolmen status".to_owned()] }
}

/// Advice about an alert, for whoever sees it elsewhere than in a notification.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Advice {
    /// What Dolmen does by itself and what somebody may do, in sentences; commands are between backticks.
    pub text: Vec<String>,
    /// The commands, with names in the place of words in capitals where they are known.
    pub commands: Vec<String>,
}

impl Alert {
    /// Returns its cause as a sentence, without the full stop.
    #[must_use]
    pub fn summary(&self) -> String {
        headline(self)
    }

    /// Returns what to do about it.
    #[must_use]
    pub fn advice(&self) -> Advice {
        let mut text = Vec::new();
        let commands = put_advice(self, &mut text);
        Advice { text, commands }
    }
}

fn counted(count: usize, one: &str, more: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { more })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_name_the_object_and_quote_its_name() {
        let text = "Attach it and `dolmen disk online POOL DISK`; or `dolmen disk replace POOL DISK NEW`.";
        let (filled, commands) = with_commands(text, &Object::disk("my tank", 3));
        assert_eq!(commands, ["dolmen disk online 'my tank' 3", "dolmen disk replace 'my tank' 3 NEW"]);
        assert!(filled.starts_with("Attach it and `dolmen disk online 'my tank' 3`; or"), "{filled}");
        let space = Object::space("tank", "home");
        let (_, commands) =
            with_commands("`dolmen why SPACE` `dolmen space set POOL/SPACE --reserve SIZE`", &space);
        assert_eq!(commands, ["dolmen why tank/home", "dolmen space set tank/home --reserve SIZE"]);
    }

    #[test]
    fn a_text_of_a_finding_becomes_a_sentence() {
        assert_eq!(sentence("disk 3 is absent"), "Disk 3 is absent.");
        assert_eq!(sentence("Done."), "Done.");
        assert_eq!(sentence(""), ".");
    }
}
