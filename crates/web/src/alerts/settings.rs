//! Settings of alerts: a TOML file with the channels that notifications go to. Whatever it has that is unknown or does not fit is refused
//! by its name, and the settings before stay in force.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use dolmen_alerts::{CHANNELS_MAX, Envelope, OpenAfter, Policy, Severity};
use serde::Deserialize;

use super::channel::{Channel, Route};
use super::endpoint::Endpoint;
use super::mail::{Mail, MailVia, Security, Smtp};
use super::trust::Trust;
use crate::error::WebError;

/// The file that is read where none is named.
const USUAL_PATH: &str = "/etc/dolmen/alerts.toml";
/// Bytes of the file, and of each file that it names, at most.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// The longest delay.
const DELAY_S_MAX: u64 = 7 * 86_400;
/// Days before the end of the certificate that may be set, at most: those for which the server makes one.
const CERTIFICATE_DAYS_MAX: u64 = 397;
/// Bytes of the name of a channel, at most.
const NAME_BYTES_MAX: usize = 64;

/// Settings in force.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    /// Delays, reminders, names of channels.
    pub policy: Policy,
    /// The channels, each with a name of its own.
    pub channels: Vec<Channel>,
    /// Days before the end of the certificate at which that is an alert.
    pub certificate_days: u64,
}

/// The file, as it is written.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    host: Option<String>,
    least: Option<Severity>,
    heartbeat_at: Option<String>,
    certificate_days: Option<u64>,
    #[serde(default)]
    delays: Delays,
    #[serde(default)]
    mail: Vec<MailTable>,
    #[serde(default)]
    webhook: Vec<WebhookTable>,
    #[serde(default)]
    ntfy: Vec<NtfyTable>,
}

/// Delays, in seconds.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Delays {
    notice_s: Option<u64>,
    warning_s: Option<u64>,
    critical_s: Option<u64>,
    close_s: Option<u64>,
    unanswered_s: Option<u64>,
    reminder_s: Option<u64>,
    retry_s: Option<u64>,
    retry_max_s: Option<u64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct MailTable {
    name: Option<String>,
    from: String,
    to: Vec<String>,
    /// `HOST` or `HOST:PORT`.
    server: Option<String>,
    security: Option<Security>,
    user: Option<String>,
    password_file: Option<PathBuf>,
    ca_file: Option<PathBuf>,
    /// The program that takes the mail in the place of a server.
    sendmail: Option<PathBuf>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WebhookTable {
    name: Option<String>,
    url: String,
    token_file: Option<PathBuf>,
    ca_file: Option<PathBuf>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NtfyTable {
    name: Option<String>,
    url: String,
    topic: String,
    token_file: Option<PathBuf>,
    ca_file: Option<PathBuf>,
}

/// Refuses a setting by its name.
struct Refuse<'a> {
    path: &'a Path,
}

impl Refuse<'_> {
    fn error(&self, why: impl Into<String>) -> WebError {
        WebError::Settings { path: self.path.to_path_buf(), why: why.into() }
    }

    /// Returns an error about a setting that a text names.
    fn of(&self, setting: &str, why: impl std::fmt::Display) -> WebError {
        self.error(format!("{setting}: {why}"))
    }

    /// Returns the first line of a file, without spaces around it.
    fn secret(&self, setting: &str, path: Option<&PathBuf>) -> Result<Option<String>, WebError> {
        let Some(path) = path else { return Ok(None) };
        let shown = path.display();
        let text =
            read(path).map_err(|error| self.of(setting, format!("{shown} cannot be read: {error}")))?;
        let line = text.lines().next().unwrap_or_default().trim();
        if line.is_empty() || line.contains(|c: char| c.is_control()) {
            return Err(self.of(setting, format!("the first line of {shown} holds no secret")));
        }
        Ok(Some(line.to_owned()))
    }

    fn trust(&self, setting: &str, path: Option<&PathBuf>) -> Result<Trust, WebError> {
        Trust::of(path.map(PathBuf::as_path)).map_err(|why| self.of(setting, why))
    }
}

fn read(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(FILE_BYTES_MAX).read_to_string(&mut text)?;
    Ok(text)
}

impl Settings {
    /// Reads the settings: of the file that is named, or of the usual one where there is one. Without a file there is no channel.
    pub(crate) fn read(path: Option<&Path>) -> Result<Self, WebError> {
        let named = path.unwrap_or(Path::new(USUAL_PATH));
        match read(named) {
            Ok(text) => Self::parse(&text, named),
            Err(error) if path.is_none() && error.kind() == io::ErrorKind::NotFound => Self::parse("", named),
            Err(error) => Err(WebError::file("reading the settings of alerts in", named)(error)),
        }
    }

    /// Returns the settings of a text.
    pub(super) fn parse(text: &str, path: &Path) -> Result<Self, WebError> {
        let refuse = Refuse { path };
        let document: Document = toml::from_str(text).map_err(|error| {
            let before = error.span().and_then(|span| text.get(..span.start));
            let line = before.map_or(0, |before| before.matches('\n').count()) + 1;
            refuse.error(format!("line {line}: {}", error.message().trim().replace('\n', "; ")))
        })?;
        let channels = channels(&document, &refuse)?;
        let policy = policy(&document, &channels, &refuse)?;
        let certificate_days = document.certificate_days.unwrap_or(14);
        if !(1..=CERTIFICATE_DAYS_MAX).contains(&certificate_days) {
            let why = format!("{certificate_days} is not between 1 and {CERTIFICATE_DAYS_MAX}");
            return Err(refuse.of("certificate_days", why));
        }
        Ok(Self { policy, channels, certificate_days })
    }

    /// Returns the channel of a name.
    pub(crate) fn channel(&self, name: &str) -> Option<&Channel> {
        self.channels.iter().find(|channel| channel.name == name)
    }
}

fn policy(document: &Document, channels: &[Channel], refuse: &Refuse<'_>) -> Result<Policy, WebError> {
    let usual = Policy::default();
    let delays = &document.delays;
    let delay = |name: &str, set: Option<u64>, usual: u64, least: u64| match set {
        Some(found) if !(least..=DELAY_S_MAX).contains(&found) => {
            let why = format!("{found} is not between {least} and {DELAY_S_MAX} seconds");
            Err(refuse.of(&format!("delays.{name}"), why))
        }
        set => Ok(set.unwrap_or(usual)),
    };
    let heartbeat_at_s = document.heartbeat_at.as_deref().map(|text| {
        second_of_day(text).ok_or_else(|| {
            refuse.of("heartbeat_at", format!("{text:?} is no time of the day in UTC, such as \"07:30\""))
        })
    });
    let own_host = || rustix::system::uname().nodename().to_string_lossy().into_owned();
    let reminder_s = delay("reminder_s", delays.reminder_s, usual.remind_after_s.unwrap_or(0), 0)?;
    let retry_after_s = delay("retry_s", delays.retry_s, usual.retry_after_s, 1)?;
    let retry_after_max_s = delay("retry_max_s", delays.retry_max_s, usual.retry_after_max_s, 1)?;
    if retry_after_max_s < retry_after_s {
        let why = format!("{retry_after_max_s} is less than delays.retry_s, which is {retry_after_s}");
        return Err(refuse.of("delays.retry_max_s", why));
    }
    Ok(Policy {
        host: document.host.clone().unwrap_or_else(own_host),
        channels: channels.iter().map(|channel| channel.name.clone()).collect(),
        least: document.least.unwrap_or(usual.least),
        open_after: OpenAfter {
            notice_s: delay("notice_s", delays.notice_s, usual.open_after.notice_s, 0)?,
            warning_s: delay("warning_s", delays.warning_s, usual.open_after.warning_s, 0)?,
            critical_s: delay("critical_s", delays.critical_s, usual.open_after.critical_s, 0)?,
        },
        close_after_s: delay("close_s", delays.close_s, usual.close_after_s, 0)?,
        unanswered_after_s: delay("unanswered_s", delays.unanswered_s, usual.unanswered_after_s, 0)?,
        remind_after_s: (reminder_s > 0).then_some(reminder_s),
        heartbeat_at_s: heartbeat_at_s.transpose()?,
        retry_after_s,
        retry_after_max_s,
        ..usual
    })
}

/// Returns the second of the day of `HH:MM`.
fn second_of_day(text: &str) -> Option<u64> {
    let (hour, minute) = text.split_once(':')?;
    let number = |digits: &str, below: u64| -> Option<u64> {
        let is_plain = digits.len() == 2 && digits.bytes().all(|byte| byte.is_ascii_digit());
        digits.parse().ok().filter(|number| is_plain && *number < below)
    };
    Some(number(hour, 24)? * 3600 + number(minute, 60)? * 60)
}

fn channels(document: &Document, refuse: &Refuse<'_>) -> Result<Vec<Channel>, WebError> {
    let mut channels: Vec<Channel> = Vec::new();
    for (number, table) in document.mail.iter().enumerate() {
        let (name, at) = named("mail", table.name.as_ref(), number);
        channels.push(Channel { name, route: Route::Mail(mail(table, &at, refuse)?) });
    }
    for (number, table) in document.webhook.iter().enumerate() {
        let (name, at) = named("webhook", table.name.as_ref(), number);
        let endpoint = endpoint(&table.url, table.token_file.as_ref(), table.ca_file.as_ref(), &at, refuse)?;
        channels.push(Channel { name, route: Route::Webhook(endpoint) });
    }
    for (number, table) in document.ntfy.iter().enumerate() {
        let (name, at) = named("ntfy", table.name.as_ref(), number);
        let endpoint = endpoint(&table.url, table.token_file.as_ref(), table.ca_file.as_ref(), &at, refuse)?;
        let topic = table.topic.clone();
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if topic.is_empty() || topic.len() > 64 || !topic.chars().all(is_plain) {
            let why = format!("{topic:?} is none; give 1 to 64 letters, digits, `-` or `_`");
            return Err(refuse.of(&format!("{at}.topic"), why));
        }
        channels.push(Channel { name, route: Route::Ntfy { endpoint, topic } });
    }
    if channels.len() > CHANNELS_MAX {
        let why = format!("there are {} channels, and at most {CHANNELS_MAX} are used", channels.len());
        return Err(refuse.error(why));
    }
    for (index, channel) in channels.iter().enumerate() {
        let name = &channel.name;
        if name.is_empty() || name.len() > NAME_BYTES_MAX || name.contains(char::is_control) {
            return Err(refuse.of("name", format!("{name:?} is no name of a channel")));
        }
        if channels.iter().take(index).any(|other| other.name == *name) {
            return Err(
                refuse.of("name", format!("two channels are called {name:?}; give each a name of its own"))
            );
        }
    }
    Ok(channels)
}

/// Returns the name of a channel, and how messages name its table.
fn named(kind: &str, name: Option<&String>, number: usize) -> (String, String) {
    let usual = if number == 0 { kind.to_owned() } else { format!("{kind}{}", number + 1) };
    (name.cloned().unwrap_or(usual), format!("{kind} {}", number + 1))
}

fn endpoint(
    url: &str,
    token_file: Option<&PathBuf>,
    ca_file: Option<&PathBuf>,
    at: &str,
    refuse: &Refuse<'_>,
) -> Result<Endpoint, WebError> {
    let token = refuse.secret(&format!("{at}.token_file"), token_file)?;
    let trust = refuse.trust(&format!("{at}.ca_file"), ca_file)?;
    Endpoint::new(url, token, trust).map_err(|why| refuse.of(&format!("{at}.url"), why))
}

fn mail(table: &MailTable, at: &str, refuse: &Refuse<'_>) -> Result<Mail, WebError> {
    let envelope = Envelope { from: table.from.clone(), to: table.to.clone() };
    envelope.check().map_err(|error| refuse.of(&format!("{at}: from or to"), error))?;
    let via = match (&table.sendmail, &table.server) {
        (Some(_), Some(_)) | (None, None) => {
            return Err(refuse.error(format!("{at}: give either server or sendmail")));
        }
        (Some(program), None) => {
            let others = [
                ("security", table.security.is_some()),
                ("user", table.user.is_some()),
                ("password_file", table.password_file.is_some()),
                ("ca_file", table.ca_file.is_some()),
            ];
            if let Some((name, _)) = others.iter().find(|(_, is_set)| *is_set) {
                return Err(refuse.of(&format!("{at}.{name}"), "it is for a server, and sendmail is set"));
            }
            if !program.is_absolute() {
                return Err(refuse
                    .of(&format!("{at}.sendmail"), format!("{} is no absolute path", program.display())));
            }
            MailVia::Sendmail(program.clone())
        }
        (None, Some(server)) => MailVia::Smtp(smtp(table, server, at, refuse)?),
    };
    Ok(Mail { envelope, via })
}

fn smtp(table: &MailTable, server: &str, at: &str, refuse: &Refuse<'_>) -> Result<Smtp, WebError> {
    let security = table.security.unwrap_or(Security::Starttls);
    let (host, port) = match server.rsplit_once(':') {
        Some((host, port)) if !host.contains(':') || host.ends_with(']') => {
            let port = port.parse().ok().filter(|port| *port > 0);
            let port =
                port.ok_or_else(|| refuse.of(&format!("{at}.server"), format!("{server:?} names no port")))?;
            (host, port)
        }
        _ => (server, security.port()),
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    if host.is_empty() || host.contains(|c: char| c.is_control() || c.is_whitespace()) {
        return Err(refuse.of(&format!("{at}.server"), format!("{server:?} names no host")));
    }
    let password = refuse.secret(&format!("{at}.password_file"), table.password_file.as_ref())?;
    let credentials = match (table.user.clone(), password) {
        (Some(user), Some(password)) => Some((user, password)),
        (None, None) => None,
        (Some(_), None) => return Err(refuse.of(&format!("{at}.user"), "it needs password_file")),
        (None, Some(_)) => return Err(refuse.of(&format!("{at}.password_file"), "it needs user")),
    };
    if credentials.is_some() && security == Security::None && !is_loopback(host) {
        let why =
            "a password is not sent in clear text over a network; set security to \"starttls\" or \"tls\"";
        return Err(refuse.of(&format!("{at}.security"), why));
    }
    let trust = refuse.trust(&format!("{at}.ca_file"), table.ca_file.as_ref())?;
    Ok(Smtp { host: host.to_owned(), port, security, credentials, trust })
}

/// Returns whether a host is this one, so that nothing that is sent to it passes a network.
pub(super) fn is_loopback(host: &str) -> bool {
    host == "localhost" || host.parse().is_ok_and(|address: std::net::IpAddr| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Settings, String> {
        let settings = Settings::parse(text, Path::new("/etc/dolmen/alerts.toml"));
        settings.map_err(|error| dolmen_causes::in_one_line(&error).to_string())
    }

    const MAIL: &str = "[[mail]]\nfrom = \"a@b\"\nto = [\"c@d\"]\n";

    #[test]
    fn the_shipped_file_sets_nothing_and_its_examples_are_right() {
        let shipped = include_str!("../../../../packaging/alerts.toml");
        assert!(parsed(shipped).unwrap().channels.is_empty());
        let is_example = |line: &&str| line.starts_with('#') && !line.starts_with("# ") && line.len() > 1;
        let examples: Vec<&str> =
            shipped.lines().filter(is_example).map(|line| line.trim_start_matches('#')).collect();
        let examples = examples.join("\n").replace("/etc/dolmen/", "/nonexistent/");
        // The files of secrets that it names are not here.
        let error = parsed(&examples).unwrap_err();
        assert!(error.contains("/nonexistent/") && error.contains("cannot be read"), "{error}");
        let is_file = |line: &&str| line.contains("_file");
        let plain: Vec<&str> =
            examples.lines().filter(|line| !is_file(line) && !line.starts_with("user")).collect();
        let settings = parsed(&plain.join("\n")).unwrap();
        assert_eq!(settings.channels.len(), 4, "{settings:?}");
        assert_eq!(settings.policy.heartbeat_at_s, Some(7 * 3600 + 30 * 60));
    }

    /// Scenario: settings of many kinds that are unknown, out of bounds or contradictory. Each is refused, with its name.
    #[test]
    fn bad_values_are_refused_by_name() {
        for (text, named) in [
            ("leest = \"warning\"", "line 1: unknown field `leest`"),
            ("\nleast = \"loud\"", "line 2: unknown variant `loud`"),
            ("heartbeat_at = \"25:00\"", "heartbeat_at: \"25:00\""),
            ("heartbeat_at = \"7:00\"", "heartbeat_at"),
            ("certificate_days = 0", "certificate_days: 0"),
            ("[delays]\nretry_s = 0", "delays.retry_s: 0"),
            ("[delays]\nwarning_s = 604801", "delays.warning_s: 604801"),
            ("[delays]\nretry_s = 60\nretry_max_s = 30", "delays.retry_max_s: 30"),
            (MAIL, "mail 1: give either server or sendmail"),
            (&format!("{MAIL}server = \"a\"\nsendmail = \"/b\""), "mail 1: give either"),
            (&format!("{MAIL}server = \"a:0\""), "mail 1.server: \"a:0\""),
            (&format!("{MAIL}server = \"a\"\nuser = \"u\""), "mail 1.user: it needs password_file"),
            (&format!("{MAIL}server = \"a\"\nsecurity = \"ssl\""), "unknown variant `ssl`"),
            (
                &format!("{MAIL}server = \"a\"\npassword_file = \"/nonexistent\""),
                "mail 1.password_file: /nonexistent",
            ),
            (&format!("{MAIL}sendmail = \"sendmail\""), "mail 1.sendmail: sendmail"),
            (&format!("{MAIL}sendmail = \"/a\"\nca_file = \"/b\""), "mail 1.ca_file"),
            ("[[mail]]\nfrom = \"a@b\\nBcc: x@y\"\nto = [\"c@d\"]\nserver = \"a\"", "mail 1: from or to"),
            ("[[mail]]\nfrom = \"a@b\"\nto = []\nserver = \"a\"", "mail 1: from or to: the mail has 0"),
            ("[[webhook]]\nurl = \"ftp://a\"", "webhook 1.url"),
            ("[[webhook]]\nurl = \"https://\"", "webhook 1.url"),
            ("[[ntfy]]\nurl = \"https://a\"\ntopic = \"a b\"", "ntfy 1.topic: \"a b\""),
            ("[[ntfy]]\nurl = \"https://a\"", "missing field `topic`"),
            (
                &format!("{MAIL}name = \"x\"\nserver = \"a\"\n[[webhook]]\nname = \"x\"\nurl = \"http://a\""),
                "two channels",
            ),
        ] {
            let error = parsed(text).unwrap_err();
            assert!(error.contains(named) && error.contains("alerts.toml"), "{text:?}: {error}");
        }
    }

    #[test]
    fn a_password_goes_in_clear_text_to_this_host_alone() {
        let folder = tempfile::tempdir().unwrap();
        let password = folder.path().join("password");
        std::fs::write(&password, "secret\n").unwrap();
        let with = |server: &str| {
            parsed(&format!(
                "{MAIL}server = \"{server}\"\nsecurity = \"none\"\nuser = \"u\"\npassword_file = \"{}\"",
                password.display()
            ))
        };
        assert!(with("127.0.0.1:25").is_ok() && with("localhost").is_ok() && with("[::1]:25").is_ok());
        assert!(with("mail.example.com").unwrap_err().contains("mail 1.security"));
    }
}
