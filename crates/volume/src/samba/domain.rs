//! Membership of Samba in a domain: lines for `[global]`, which people put into their configuration, and what `testparm` made of them.
//!
//! Accounts of a domain get numbers from their identifiers alone (`rid`), so that the files of a pool keep their owners on another
//! host of the domain.

use super::Configuration;
use std::fmt;
use std::str::FromStr;

/// Characters of the name of a workgroup, at most: the bound of NetBIOS.
const WORKGROUP_CHARS_MAX: usize = 15;
/// Characters of a realm, and of each of its labels, at most: the bounds of DNS.
const REALM_CHARS_MAX: usize = 253;
const LABEL_CHARS_MAX: usize = 63;
/// Numbers of accounts that are of no domain, and those of the domain: above all that a system gives to its own.
const OTHER_RANGE: &str = "2000000-2999999";
const DOMAIN_RANGE: &str = "3000000-999999999";

/// A text that names no domain.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DomainError {
    /// No realm.
    #[error(
        "{text:?} is no realm; write the name of the domain in DNS, such as EXAMPLE.COM, with letters, digits and hyphens"
    )]
    Realm {
        /// Text that was given, cut to 80 characters.
        text: String,
    },
    /// No workgroup.
    #[error(
        "{text:?} is no workgroup; write at most {WORKGROUP_CHARS_MAX} letters, digits and hyphens, such as EXAMPLE"
    )]
    Workgroup {
        /// Text that was given, cut to 80 characters.
        text: String,
    },
}

fn shown(text: &str) -> String {
    text.chars().take(80).collect()
}

fn is_label(label: &str, most: usize) -> bool {
    let is_inner = |c: char| c.is_ascii_alphanumeric() || c == '-';
    (1..=most).contains(&label.len())
        && label.chars().all(is_inner)
        && !label.starts_with('-')
        && !label.ends_with('-')
}

/// The realm of a domain, in upper case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Realm(String);

impl Realm {
    /// Returns the usual short name of the domain: the first label.
    ///
    /// # Errors
    /// Fails if NetBIOS cannot carry that.
    pub fn usual_workgroup(&self) -> Result<Workgroup, DomainError> {
        self.0.split('.').next().unwrap_or_default().parse()
    }
}

impl FromStr for Realm {
    type Err = DomainError;

    fn from_str(text: &str) -> Result<Self, DomainError> {
        let labels: Vec<&str> = text.split('.').collect();
        let is_realm = labels.len() > 1 && labels.iter().all(|label| is_label(label, LABEL_CHARS_MAX));
        match is_realm && text.len() <= REALM_CHARS_MAX {
            true => Ok(Self(text.to_ascii_uppercase())),
            false => Err(DomainError::Realm { text: shown(text) }),
        }
    }
}

impl fmt::Display for Realm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The short name of a domain, or of a group of hosts without one, in upper case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Workgroup(String);

impl FromStr for Workgroup {
    type Err = DomainError;

    fn from_str(text: &str) -> Result<Self, DomainError> {
        match is_label(text, WORKGROUP_CHARS_MAX) {
            true => Ok(Self(text.to_ascii_uppercase())),
            false => Err(DomainError::Workgroup { text: shown(text) }),
        }
    }
}

impl fmt::Display for Workgroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A host of a domain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DomainMember {
    /// Realm of the domain.
    pub realm: Realm,
    /// Short name of the domain.
    pub workgroup: Workgroup,
}

impl DomainMember {
    /// Returns the parameters for `[global]`.
    #[must_use]
    pub fn parameters(&self) -> Vec<(String, String)> {
        let Self { realm, workgroup } = self;
        let own = |parameter: &str| format!("idmap config {workgroup} : {parameter}");
        let lines = [
            ("security".to_owned(), "ADS".to_owned()),
            ("realm".to_owned(), realm.to_string()),
            ("workgroup".to_owned(), workgroup.to_string()),
            ("kerberos method".to_owned(), "secrets and keytab".to_owned()),
            ("dedicated keytab file".to_owned(), "/etc/krb5.keytab".to_owned()),
            ("winbind refresh tickets".to_owned(), "yes".to_owned()),
            ("map to guest".to_owned(), "Never".to_owned()),
            ("idmap config * : backend".to_owned(), "tdb".to_owned()),
            ("idmap config * : range".to_owned(), OTHER_RANGE.to_owned()),
            (own("backend"), "rid".to_owned()),
            (own("range"), DOMAIN_RANGE.to_owned()),
        ];
        lines.into()
    }

    /// Returns the lines for a configuration of Samba.
    #[must_use]
    pub fn configuration(&self) -> String {
        let lines = self.parameters().into_iter().map(|(name, value)| format!("\t{name} = {value}\n"));
        format!("[global]\n{}", lines.collect::<String>())
    }

    /// Returns what `testparm -s` understood otherwise. It prints no parameter that has its usual value.
    #[must_use]
    pub fn faults(&self, tested: &Configuration) -> Vec<String> {
        let global = tested.section("global");
        let found = |name: &str| global.and_then(|section| section.value(name));
        let differs = |(name, value): &(String, String)| match found(&name.to_lowercase()) {
            Some(found) if !found.eq_ignore_ascii_case(value) => {
                Some(format!("{name} is {found:?}, not {value:?}"))
            }
            None if matches!(name.as_str(), "security" | "realm" | "workgroup") => {
                Some(format!("{name} is not there"))
            }
            Some(_) | None => None,
        };
        self.parameters().iter().filter_map(differs).collect()
    }
}

/// Returns the lines of the notes of `testparm` that name a line which it does not understand, or a mistake.
#[must_use]
pub fn complaints(notes: &str) -> Vec<&str> {
    const WORDS: [&str; 3] = ["Unknown parameter", "ERROR:", "Ignoring badly formed line"];
    notes.lines().filter(|line| WORDS.iter().any(|word| line.contains(word))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(realm: &str) -> DomainMember {
        let realm: Realm = realm.parse().unwrap();
        DomainMember { workgroup: realm.usual_workgroup().unwrap(), realm }
    }

    /// Scenario: names from people. Each is a name of DNS or NetBIOS, or is refused: none adds a line to the configuration.
    #[test]
    fn a_name_that_is_no_domain_adds_nothing_to_the_configuration() {
        let member = member("ad.example.com");
        assert_eq!(
            (member.realm.to_string().as_str(), member.workgroup.to_string().as_str()),
            ("AD.EXAMPLE.COM", "AD")
        );
        for text in [
            "",
            "example",
            "a..b",
            "-a.b",
            "a.b-",
            "a.b\nguest ok = yes",
            "a b.c",
            "%U.b",
            &"x".repeat(64),
            "ü.b",
        ] {
            assert!(text.parse::<Realm>().is_err(), "{text:?} was taken for a realm");
        }
        for text in ["", "SIXTEEN-LETTERS-", "1234567890123456", "a.b", "A\nB", "a b"] {
            assert!(text.parse::<Workgroup>().is_err(), "{text:?} was taken for a workgroup");
        }
        assert!("sixteenlettersss.example".parse::<Realm>().unwrap().usual_workgroup().is_err());
        let sections = Configuration::parse(&member.configuration()).unwrap();
        assert_eq!(sections.sections().len(), 1);
        assert_eq!(sections.sections()[0].parameters.len(), member.parameters().len());
    }

    /// Scenario: `testparm` leaves out usual values, changes one, or has never heard of a parameter.
    #[test]
    fn what_samba_understood_otherwise_is_named() {
        let member = member("ad.example.com");
        let tested = |text: &str| member.faults(&Configuration::parse(text).unwrap());
        assert_eq!(tested(&member.configuration()), Vec::<String>::new());
        let usual = "[global]\n\tsecurity = ADS\n\trealm = AD.EXAMPLE.COM\n\tworkgroup = AD\n";
        assert_eq!(tested(usual), Vec::<String>::new());
        assert_eq!(tested(&usual.replace("= ADS", "= USER")), ["security is \"USER\", not \"ADS\""]);
        assert_eq!(
            tested("[global]\n\tsecurity = ADS\n\trealm = AD.EXAMPLE.COM\n"),
            ["workgroup is not there"]
        );
        let notes = "Loaded services file OK.\nUnknown parameter encountered: \"kerberos metod\"\nIgnoring unknown parameter \"kerberos metod\"\n";
        assert_eq!(complaints(notes).len(), 1);
    }
}
