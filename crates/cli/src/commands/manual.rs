//! The manual pages and completion scripts, made of the same definition as the parser.

use std::path::Path;

use clap::CommandFactory;

use crate::arguments::Arguments;
use crate::error::CliError;

/// The completion script of a shell.
pub(crate) fn completion(shell: clap_complete::Shell) -> String {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), "dolmen", &mut script);
    String::from_utf8_lossy(&script).into_owned()
}

/// Writes a page for each command into a folder.
pub(crate) fn write_pages(folder: &Path) -> Result<(), CliError> {
    let unwritable = |source| CliError::Write { path: folder.to_path_buf(), source };
    std::fs::create_dir_all(folder).map_err(unwritable)?;
    clap_mangen::generate_to(Arguments::command(), folder).map_err(unwritable)
}
