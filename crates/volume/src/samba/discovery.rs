//! Discovery of shares on the local network: a service file of Avahi for Macs and Linux, and a unit that starts `wsdd` for Windows.
//!
//! Invariant: no name adds a line, an element or a record to a file.

use super::{ShareName, Workgroup};
use crate::unit::MARK;
use std::fmt::Write as _;

/// Shares that backups of Macs may be offered on, at most: what a service of Avahi holds.
pub const TIME_MACHINES_MAX: usize = 32;
/// Port of SMB.
const SMB_PORT: u16 = 445;
/// Flags of a disk for Time Machine: it is reached over SMB, and backups may go there.
const BACKUP_DISK: &str = "0x82";

/// Returns the lines for `[global]` by which Samba leaves the announcement to the service file: two of one name would disturb clients.
#[must_use]
pub fn quiet_server() -> String {
    "[global]\n\tmulticast dns register = no\n".to_owned()
}

/// Returns the service file of Avahi. It announces SMB, and each share that Time Machine may use.
#[must_use]
pub fn avahi_service(time_machines: &[ShareName]) -> String {
    let mut text = format!(
        "<?xml version=\"1.0\" standalone=\"no\"?>\n<!DOCTYPE service-group SYSTEM \"avahi-service.dtd\">\n<!-- {} -->\n<service-group>\n\
         \t<name replace-wildcards=\"yes\">%h</name>\n{}",
        MARK.trim_start_matches("# "),
        service("_smb._tcp", SMB_PORT, &[])
    );
    if !time_machines.is_empty() {
        let disk = |(number, name): (usize, &ShareName)| format!("dk{number}=adVN={name},adVF={BACKUP_DISK}");
        let all = "sys=waMa=0,adVF=0x100".to_owned();
        let disks = time_machines.iter().take(TIME_MACHINES_MAX).enumerate().map(disk);
        let records: Vec<String> = [all].into_iter().chain(disks).collect();
        text.push_str(&service("_adisk._tcp", 9, &records));
    }
    text.push_str("</service-group>\n");
    text
}

fn service(kind: &str, port: u16, records: &[String]) -> String {
    let mut text = format!("\t<service>\n\t\t<type>{kind}</type>\n\t\t<port>{port}</port>\n");
    for record in records {
        // A string that takes what is written to it does not fail.
        let _ = writeln!(text, "\t\t<txt-record>{}</txt-record>", escaped(record));
    }
    text.push_str("\t</service>\n");
    text
}

/// Returns a text as XML holds it.
fn escaped(text: &str) -> String {
    text.chars().fold(String::new(), |mut escaped, character| {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&apos;"),
            other => escaped.push(other),
        }
        escaped
    })
}

/// Returns a unit that starts `wsdd`, wherever the distribution has put it.
#[must_use]
pub fn wsdd_unit(workgroup: &Workgroup, is_domain: bool) -> String {
    let option = if is_domain { "--domain" } else { "--workgroup" };
    format!(
        "{MARK}: discovery of the shares of this host by Windows.\n[Unit]\nDescription=Discovery of shares by Windows\n\
         Wants=network-online.target\nAfter=network-online.target\nConflicts=wsdd.service wsdd-server.service\n\n\
         [Service]\nExecStart=wsdd --shortlog {option} {workgroup}\nDynamicUser=yes\nRestart=on-failure\n\n\
         [Install]\nWantedBy=multi-user.target\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scenario: names with every sign that a share may have. The file has one record for each, and no more elements.
    #[test]
    fn no_name_adds_an_element_to_the_service_file() {
        let names: Vec<ShareName> =
            ["Backups", "it's & yours", "Größe #1 (alt) {b}"].map(|name| name.parse().unwrap()).into();
        let text = avahi_service(&names);
        assert_eq!((text.matches("<service>").count(), text.matches("<txt-record>").count()), (2, 4));
        assert!(text.contains("<txt-record>dk1=adVN=it&apos;s &amp; yours,adVF=0x82</txt-record>"), "{text}");
        let none = avahi_service(&[]);
        assert_eq!((none.matches("<service>").count(), none.contains("_adisk")), (1, false));
        // A share whose name had a comma or a sign of XML would add a field or an element.
        assert!(
            ["a,adVF=0x100", "a<b", "a>b", "a\"b", "a\nb"]
                .iter()
                .all(|name| name.parse::<ShareName>().is_err())
        );
    }

    #[test]
    fn the_unit_names_a_workgroup_or_a_domain() {
        let workgroup = "example".parse().unwrap();
        assert!(wsdd_unit(&workgroup, false).contains("\nExecStart=wsdd --shortlog --workgroup EXAMPLE\n"));
        assert!(wsdd_unit(&workgroup, true).contains("--domain EXAMPLE\n"));
    }
}
