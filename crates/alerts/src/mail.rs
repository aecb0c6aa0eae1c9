//! Notifications as mail (RFC 5322, RFC 2045, RFC 2047).
//!
//! Invariant: no text of a document ends a header. Subjects are printable ASCII or encoded words, addresses are checked, and the body is
//! quoted-printable below an empty line.

use std::fmt::Write;

use thiserror::Error;

use crate::date;
use crate::evidence::one_line;
use crate::notification::{Kind, Notification};
use crate::severity::Severity;

/// Recipients of one mail, at most.
pub const RECIPIENTS_MAX: usize = 64;
/// Bytes of an address, at most.
const ADDRESS_BYTES_MAX: usize = 254;
/// Bytes of text in one encoded word: as base64 with its frame they are 72 characters of the 75 allowed.
const WORD_BYTES_MAX: usize = 45;
/// Characters of a subject that is not encoded.
const PLAIN_SUBJECT_MAX: usize = 68;
/// Characters of a line of the body.
const LINE_MAX: usize = 76;

/// Sender and recipients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Envelope {
    /// Address of the sender.
    pub from: String,
    /// Addresses of the recipients.
    pub to: Vec<String>,
}

/// An envelope that is refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum MailError {
    /// An address is none.
    #[error("{address:?} is no mail address; give NAME@HOST in ASCII, without spaces, quotes and brackets")]
    Address {
        /// It.
        address: String,
    },
    /// There are too few or too many recipients.
    #[error("the mail has {found} recipients; give 1 to {RECIPIENTS_MAX}")]
    Recipients {
        /// How many there are.
        found: usize,
    },
}

impl Envelope {
    /// Checks the addresses.
    ///
    /// # Errors
    /// One is no address, or there are too few or too many.
    pub fn check(&self) -> Result<(), MailError> {
        if self.to.is_empty() || self.to.len() > RECIPIENTS_MAX {
            return Err(MailError::Recipients { found: self.to.len() });
        }
        match std::iter::once(&self.from).chain(&self.to).find(|address| !is_address(address)) {
            Some(address) => Err(MailError::Address { address: one_line(address) }),
            None => Ok(()),
        }
    }
}

/// Whether a text is an address that needs no quotes.
fn is_address(text: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-/=?^_`{|}~.".contains(c);
    let is_host = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.';
    let is_dotted = |part: &str| part.split('.').all(|label| !label.is_empty());
    match text.split_once('@') {
        Some((name, host)) => {
            let is_short = text.len() <= ADDRESS_BYTES_MAX;
            is_short
                && name.chars().all(is_plain)
                && host.chars().all(is_host)
                && is_dotted(name)
                && is_dotted(host)
        }
        None => false,
    }
}

/// Returns a notification as a mail, with CRLF at the ends of its lines. The sender doubles leading dots for SMTP.
///
/// # Errors
/// The envelope has something that is no address.
pub fn mail(notification: &Notification, envelope: &Envelope) -> Result<String, MailError> {
    envelope.check()?;
    let host = host_of(&notification.host);
    let own = format!("<notification.{}.{}@{host}>", notification.id, notification.at_s);
    let thread =
        notification.alert.as_ref().map(|alert| format!("<alert.{}.{}@{host}>", alert.id, alert.since_s));
    // The mail of an opening is what the later ones of its alert answer to.
    let (id, answered) = match (notification.kind, thread) {
        (Kind::Opened, Some(thread)) => (thread, None),
        (_, thread) => (own, thread),
    };
    let mut mail = String::new();
    let mut header = |name: &str, value: &str| {
        // Writing to a text cannot fail.
        let _ = write!(mail, "{name}: {value}\r\n");
    };
    header("From", &format!("Dolmen <{}>", envelope.from));
    header("To", &envelope.to.join(",\r\n "));
    header("Date", &date::of_mail(notification.at_s));
    header("Message-ID", &id);
    if let Some(answered) = answered {
        header("In-Reply-To", &answered);
        header("References", &answered);
    }
    header("Subject", &subject(&notification.subject));
    header("Auto-Submitted", "auto-generated");
    if notification.severity == Severity::Critical {
        header("Importance", "high");
    }
    header("MIME-Version", "1.0");
    header("Content-Type", "text/plain; charset=utf-8");
    header("Content-Transfer-Encoding", "quoted-printable");
    mail.push_str("\r\n");
    mail.push_str(&quoted_printable(&notification.body));
    Ok(mail)
}

/// Returns the name of a host as a message id may have it.
fn host_of(host: &str) -> String {
    let is_plain = |c: &char| c.is_ascii_alphanumeric() || *c == '-';
    let name: String = host.chars().filter(is_plain).take(63).collect();
    if name.is_empty() { "dolmen.invalid".to_owned() } else { format!("{name}.dolmen.invalid") }
}

/// Returns a subject as a header has it: as it is, or as encoded words on lines of their own.
fn subject(text: &str) -> String {
    let text = one_line(text);
    let is_plain = text.chars().all(|c| c == ' ' || c.is_ascii_graphic());
    if is_plain
        && text.len() <= PLAIN_SUBJECT_MAX
        && !text.contains("=?")
        && text.trim() == text
        && !text.is_empty()
    {
        return text;
    }
    let mut words = vec![String::new()];
    for c in text.chars() {
        let is_full = words.last().is_some_and(|word| word.len() + c.len_utf8() > WORD_BYTES_MAX);
        if is_full {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut() {
            word.push(c);
        }
    }
    let encoded = words.iter().map(|word| format!("=?utf-8?B?{}?=", base64(word.as_bytes())));
    encoded.collect::<Vec<_>>().join("\r\n ")
}

/// Returns bytes as base64.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digit = |bits: u32| DIGITS.get((bits & 63) as usize).map_or('=', |digit| char::from(*digit));
    let mut out = String::new();
    for chunk in bytes.chunks(3) {
        let at = |index: usize| u32::from(chunk.get(index).copied().unwrap_or(0));
        let bits = at(0) << 16 | at(1) << 8 | at(2);
        out.push(digit(bits >> 18));
        out.push(digit(bits >> 12));
        out.push(if chunk.len() > 1 { digit(bits >> 6) } else { '=' });
        out.push(if chunk.len() > 2 { digit(bits) } else { '=' });
    }
    out
}

/// Returns a text as quoted-printable, with CRLF at the ends of its lines.
fn quoted_printable(text: &str) -> String {
    let mut out = String::new();
    for line in text.split('\n') {
        let mut length = 0;
        let mut bytes = line.bytes().peekable();
        while let Some(byte) = bytes.next() {
            let is_last = bytes.peek().is_none();
            let is_plain =
                matches!(byte, b'!'..=b'<' | b'>'..=b'~') || (matches!(byte, b' ' | b'\t') && !is_last);
            let written = if is_plain { char::from(byte).to_string() } else { format!("={byte:02X}") };
            // One character of the line stays for the sign that it goes on.
            if length + written.len() >= LINE_MAX {
                out.push_str("=\r\n");
                length = 0;
            }
            length += written.len();
            out.push_str(&written);
        }
        out.push_str("\r\n");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_padded() {
        let encoded = ["", "f", "fo", "foo", "foob"].map(|text| base64(text.as_bytes()));
        assert_eq!(encoded, ["", "Zg==", "Zm8=", "Zm9v", "Zm9vYg=="]);
    }

    #[test]
    fn addresses_with_spaces_line_feeds_or_brackets_are_refused() {
        for good in ["root@localhost", "a.b+c@mail.example.com"] {
            assert!(is_address(good), "{good}");
        }
        for bad in
            ["", "root", "a@b@c", "a b@c", "a@b\r\nBcc: x@y", "<a@b>", "a@", "@b", "a,b@c", "a@b..c", ".a@b"]
        {
            assert!(!is_address(bad), "{bad:?}");
        }
    }

    #[test]
    fn long_or_foreign_subjects_are_encoded_words() {
        assert_eq!(subject("warning on a: b"), "warning on a: b");
        assert_eq!(subject("ü"), "=?utf-8?B?w7w=?=");
        let long = subject(&"ü".repeat(60));
        assert!(
            long.split("\r\n ").count() == 3 && long.split("\r\n ").all(|word| word.len() <= 75),
            "{long}"
        );
        assert!(subject("a\r\nBcc: x@y").eq("a  Bcc: x@y"));
        assert!(subject("=?utf-8?B?w7w=?=").starts_with("=?utf-8?B?PT91"));
    }

    #[test]
    fn lines_of_the_body_are_short_and_ascii() {
        let body = quoted_printable(&format!("ä = {} \n.\n", "x".repeat(200)));
        assert!(body.split("\r\n").all(|line| line.len() <= LINE_MAX && line.is_ascii()), "{body}");
        assert!(body.starts_with("=C3=A4 =3D xxx") && body.contains("=20\r\n.\r\n"), "{body}");
    }
}
