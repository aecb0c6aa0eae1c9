//! Sections that `net conf list` and `testparm -s` print, shares that `smbclient -g -L` lists, and what a server must not allow.

use dolmen_mutation::mutation;

/// A section with its parameters, in the order of the tool.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Section {
    /// Its name.
    pub name: String,
    /// Names of parameters, in lower case, and their values.
    pub parameters: Vec<(String, String)>,
}

impl Section {
    /// Value of a parameter.
    #[must_use]
    pub fn value(&self, parameter: &str) -> Option<&str> {
        self.parameters.iter().find(|(name, _)| name == parameter).map(|(_, value)| value.as_str())
    }
}

/// All sections that a tool printed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Configuration {
    sections: Vec<Section>,
}

/// Output that is no configuration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigurationError {
    /// A line that is no section and no parameter of one.
    #[error(
        "line {line} of the configuration of Samba is {text:?}, expected a section or a parameter; no share was changed: report it"
    )]
    Line {
        /// Number of the line, from 1.
        line: usize,
        /// Line, cut to 200 characters.
        text: String,
    },
    /// Two sections of one name.
    #[error("the configuration of Samba has two sections [{name}]; no share was changed: remove one of them")]
    Twice {
        /// Name of the section.
        name: String,
    },
}

impl Configuration {
    /// Reads what `net conf list` or `testparm -s` wrote to standard output.
    ///
    /// # Errors
    /// Fails at a line that is not understood, and at a second section of one name.
    pub fn parse(text: &str) -> Result<Self, ConfigurationError> {
        let mut sections: Vec<Section> = Vec::new();
        for (at, line) in text.lines().enumerate() {
            let line = line.trim_start_matches(['\t', ' ']);
            if line.trim().is_empty() || line.starts_with('#') {
                continue;
            }
            if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
                if sections.iter().any(|section| section.name.to_lowercase() == name.to_lowercase()) {
                    return Err(ConfigurationError::Twice { name: name.to_owned() });
                }
                sections.push(Section { name: name.to_owned(), parameters: Vec::new() });
                continue;
            }
            let error = || ConfigurationError::Line { line: at + 1, text: line.chars().take(200).collect() };
            let (name, value) = line.split_once('=').ok_or_else(error)?;
            let section = sections.last_mut().ok_or_else(error)?;
            section.parameters.push((name.trim().to_lowercase(), value.trim().to_owned()));
        }
        Ok(Self { sections })
    }

    /// All sections.
    #[must_use]
    pub fn sections(&self) -> &[Section] {
        &self.sections
    }

    /// The section of a name; upper and lower case are one.
    #[must_use]
    pub fn section(&self, name: &str) -> Option<&Section> {
        self.sections.iter().find(|section| section.name.to_lowercase() == name.to_lowercase())
    }
}

/// A setting of the server that Dolmen's shares do not stand.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ServerFault {
    /// Sections of the registry are not read.
    #[error(
        "smb.conf does not read shares from the registry; add the line 'include = registry' to its section [global]"
    )]
    NoRegistry,
    /// Clients may speak a version of the protocol without encryption.
    #[error(
        "Samba accepts clients from {found} on; set 'server min protocol = SMB3' in [global], or remove the line for SMB2_02"
    )]
    OldProtocol {
        /// Oldest version that it accepts.
        found: String,
    },
    /// Clients that give no account, or a wrong password, become a guest.
    #[error(
        "Samba makes guests of clients that it does not know ('map to guest = {found}'); set 'map to guest = Never' in [global]"
    )]
    Guests {
        /// Value of the parameter.
        found: String,
    },
    /// No client can encrypt.
    #[error(
        "Samba has '{parameter} = {found}' in [global], with which no client can encrypt; remove the line"
    )]
    NoEncryption {
        /// Parameter that hinders it.
        parameter: &'static str,
        /// Its value.
        found: String,
    },
    /// A default of all sections grants what no record grants.
    #[error(
        "Samba has '{parameter} = {found}' in [global], which holds for each share; move the line to the shares that need it"
    )]
    Inherited {
        /// Parameter of shares.
        parameter: &'static str,
        /// Its value.
        found: String,
    },
}

/// Parameters of shares that give rights or another identity, and that a section without them takes from [global].
const GRANTING: [&str; 7] =
    ["admin users", "force user", "force group", "write list", "read list", "root preexec", "root postexec"];

/// Versions of the protocol before SMB 2, in lower case.
const OLD_PROTOCOLS: [&str; 6] = ["core", "coreplus", "lanman1", "lanman2", "nt1", "smb1"];

/// Spellings of a switch that is off; `testparm` prints the first.
const SWITCHED_OFF: [&str; 4] = ["no", "off", "false", "0"];

/// Checks the global section that `testparm -s` printed. Defaults are not printed, and those of all supported versions are sound.
#[must_use]
pub fn server_faults(configuration: &Configuration) -> Vec<ServerFault> {
    let global = configuration.section("global");
    let value = |name: &str| global.and_then(|section| section.value(name)).map(str::to_lowercase);
    let mut faults = Vec::new();
    let registry = value("registry shares").as_deref() == Some("yes")
        || value("include").as_deref() == Some("registry")
        || value("config backend").as_deref() == Some("registry");
    if !registry {
        faults.push(ServerFault::NoRegistry);
    }
    let oldest = value("server min protocol").or_else(|| value("min protocol"));
    if let Some(found) = oldest.filter(|found| OLD_PROTOCOLS.contains(&found.as_str())) {
        faults.push(ServerFault::OldProtocol { found: found.to_uppercase() });
    }
    let guests = value("map to guest").filter(|found| found != "never" && !mutation!(GuestMapAccepted));
    faults.extend(guests.map(|found| ServerFault::Guests { found }));
    if let Some(found) = value("server smb encrypt").filter(|found| SWITCHED_OFF.contains(&found.as_str())) {
        faults.push(ServerFault::NoEncryption { parameter: "server smb encrypt", found });
    }
    let newest = value("server max protocol").or_else(|| value("max protocol"));
    let is_old = |found: &String| !found.starts_with("smb3") && found != "default";
    if let Some(found) = newest.filter(is_old) {
        faults.push(ServerFault::NoEncryption {
            parameter: "server max protocol",
            found: found.to_uppercase(),
        });
    }
    for parameter in GRANTING {
        let found = value(parameter).filter(|found| !found.is_empty());
        faults.extend(found.map(|found| ServerFault::Inherited { parameter, found }));
    }
    faults
}

/// Names of the shares of files in what `smbclient -g -L` printed. Other lines are notes of the client.
#[must_use]
pub fn listed_shares(printed: &str) -> Vec<&str> {
    let names = printed.lines().filter_map(|line| line.strip_prefix("Disk|"));
    names.filter_map(|rest| rest.split('|').next()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LISTED: &str = include_str!("../../tests/transcripts/net-conf-list-4.17.12.txt");
    const TESTPARM: &str = include_str!("../../tests/transcripts/testparm-4.17.12.txt");

    #[test]
    fn the_registry_and_the_whole_configuration_are_read() {
        let registry = Configuration::parse(LISTED).unwrap();
        let names: Vec<_> = registry.sections().iter().map(|section| section.name.as_str()).collect();
        assert_eq!(names, ["global", "docs", "photos"]);
        let docs = registry.section("DOCS").unwrap();
        assert_eq!(docs.value("valid users"), Some("\"alice\", \"bob smith\", \"@staff\""));
        assert_eq!(docs.value("server smb encrypt"), Some("required"));
        assert_eq!(docs.value("force user"), None);
        let whole = Configuration::parse(TESTPARM).unwrap();
        assert_eq!(whole.section("docs").unwrap().value("path"), Some("/srv/docs"));
        assert_eq!(server_faults(&whole), []);
    }

    #[test]
    fn a_server_without_the_registry_or_with_smb_1_is_found() {
        let faults = |text: &str| server_faults(&Configuration::parse(text).unwrap());
        assert_eq!(faults("[global]\n\tworkgroup = X\n"), [ServerFault::NoRegistry]);
        assert_eq!(faults(""), [ServerFault::NoRegistry]);
        for (name, found) in [("server min protocol", "NT1"), ("min protocol", "LANMAN1")] {
            let text = format!("[global]\n\tregistry shares = Yes\n\t{name} = {found}\n");
            assert_eq!(faults(&text), [ServerFault::OldProtocol { found: found.to_owned() }]);
        }
        assert_eq!(faults("[global]\n\tinclude = registry\n\tserver min protocol = SMB3\n"), []);
    }

    /// Defaults of Debian map unknown users to a guest; other lines would give each share rights that no record has.
    #[test]
    fn a_server_that_grants_more_than_records_say_is_found() {
        let fault = |line: &str| {
            let text = format!("[global]\n\tregistry shares = Yes\n\t{line}\n");
            let faults = server_faults(&Configuration::parse(&text).unwrap());
            faults.first().map(ToString::to_string).unwrap_or_default()
        };
        for (line, advice) in [
            ("map to guest = Bad User", "set 'map to guest = Never'"),
            ("map to guest = Bad Password", "set 'map to guest = Never'"),
            ("server smb encrypt = off", "no client can encrypt"),
            ("server smb encrypt = No", "no client can encrypt"),
            ("server max protocol = SMB2_10", "no client can encrypt"),
            ("force user = root", "move the line to the shares"),
            ("write list = @staff", "move the line to the shares"),
            ("admin users = bob", "move the line to the shares"),
        ] {
            assert!(fault(line).contains(advice), "{line} was accepted: {:?}", fault(line));
        }
        for line in ["map to guest = Never", "server smb encrypt = desired", "server max protocol = SMB3_11"]
        {
            assert_eq!(fault(line), "", "{line}");
        }
    }

    #[test]
    fn output_that_is_no_configuration_is_shown() {
        let error = Configuration::parse("[a]\n\tpath = /a\nnonsense\n").unwrap_err();
        assert_eq!(error, ConfigurationError::Line { line: 3, text: "nonsense".to_owned() });
        assert!(Configuration::parse("path = /a\n").is_err());
        let twice = Configuration::parse("[a]\n[A]\n").unwrap_err();
        assert_eq!(twice, ConfigurationError::Twice { name: "A".to_owned() });
    }

    #[test]
    fn shares_of_files_are_listed_by_name() {
        let printed = "Anonymous login successful\nDisk|docs|Our | docs\nDisk|a b|\nIPC|IPC$|IPC Service\nSMB1 disabled -- no workgroup available\n";
        assert_eq!(listed_shares(printed), ["docs", "a b"]);
    }

    proptest! {
        #[test]
        fn no_text_stops_the_parsers(text in "(?s).*", lines in "([\\[\\]= \tab|]{0,6}\n){0,6}") {
            for text in [text, lines] {
                if let Ok(configuration) = Configuration::parse(&text) {
                    let _ = server_faults(&configuration);
                }
                let _ = listed_shares(&text);
            }
        }
    }
}
