//! `dolmen-web certificate`.

use super::{Host, date, files_of, print_line};
use crate::arguments::CertificateCommand;
use crate::error::WebError;
use crate::server::facts;

pub(super) fn execute(host: &Host, command: CertificateCommand) -> Result<(), WebError> {
    let CertificateCommand::Show(files) = command;
    let files = files_of(files.certificate, files.key, &host.state);
    let facts = facts(&files)?;
    let pairs: Vec<String> = facts
        .sha256
        .to_uppercase()
        .as_bytes()
        .chunks(2)
        .map(|pair| String::from_utf8_lossy(pair).into_owned())
        .collect();
    print_line(&format!("file         {}", files.certificate.display()));
    print_line(&format!("fingerprint  SHA-256 {}", pairs.join(":")));
    print_line(&format!("names        {}", facts.names.join(", ")));
    print_line(&format!("from         {}", date(facts.from_s)));
    print_line(&format!("until        {}", date(facts.until_s)));
    Ok(())
}
