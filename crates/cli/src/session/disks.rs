//! Disks and paths of a command line, as requests name them.

use std::path::PathBuf;

use crate::confirm::Refusal;
use crate::error::CliError;

/// Disks of a command line, with the consent to overwrite some of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Disks {
    /// All of them, absolute.
    pub absolute: Vec<String>,
    /// As they were given.
    given: Vec<String>,
    /// Those that may be overwritten, absolute.
    pub consented: Vec<String>,
}

impl Disks {
    /// Reads them; consent to a disk that is none of them is refused, because somebody meant another disk.
    pub(crate) fn read(disks: &[PathBuf], consent: &[PathBuf]) -> Result<Self, CliError> {
        let rooted =
            |paths: &[PathBuf]| paths.iter().map(absolute).collect::<Result<Vec<String>, CliError>>();
        let (absolute, consented) = (rooted(disks)?, rooted(consent)?);
        if let Some(found) = consented.iter().find(|disk| !absolute.contains(disk)) {
            return Err(Refusal::NoneOfThese { found: found.clone() }.into());
        }
        let given = disks.iter().map(|disk| disk.display().to_string()).collect();
        Ok(Self { absolute, given, consented })
    }

    /// The disk that the daemon speaks of: as it is in requests, and as the person calls it. The daemon may have followed
    /// a link to it.
    pub(crate) fn given_as(&self, object: &str) -> Option<(String, String)> {
        let leads_there = |path: &str| {
            path == object || std::fs::canonicalize(path).is_ok_and(|found| found.as_os_str() == object)
        };
        let mut pairs = self.absolute.iter().zip(&self.given);
        pairs
            .find(|(absolute, _)| leads_there(absolute))
            .map(|(absolute, given)| (absolute.clone(), given.clone()))
    }
}

/// The path from the root, links and all: the daemon has another working folder.
pub(crate) fn absolute(path: &PathBuf) -> Result<String, CliError> {
    let unusable = |source| CliError::Path { path: path.clone(), source };
    let absolute = std::path::absolute(path).map_err(unusable)?;
    let text = absolute.into_os_string().into_string();
    text.map_err(|_| {
        unusable(std::io::Error::new(
            std::io::ErrorKind::InvalidInput,
            "it is not UTF-8, which the API cannot carry",
        ))
    })
}
