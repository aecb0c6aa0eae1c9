//! Shares as people see them.

use dolmen_api::{
    OfferedShare, Share, ShareAccess, ShareAccountKind, ShareDocument, ShareProtocol, ShareSessions,
    ShareState, ShareStep, Shares,
};
use dolmen_units::Bytes;

use crate::terminal::out::Out;
use crate::terminal::table::{Align, Table};
use crate::views::words::{health, health_tone};

/// State over NFS of a share whose rights another host gave.
const HELD: &str = "held";

/// Shows shares.
pub(crate) fn show_shares(shares: &Shares, out: &mut Out<'_>) {
    if shares.shares.is_empty() {
        return out
            .line("no shares; make one with: dolmen share create POOL/NAME --smb NAME --grant USER:rw");
    }
    let mut table = Table::new(&[
        ("VOLUME", Align::Left),
        ("SHARE", Align::Left),
        ("FOLDER", Align::Left),
        ("SMB", Align::Left),
        ("NFS", Align::Left),
        ("WHY", Align::Sentence),
    ])
    .dropping(&["FOLDER"]);
    for share in &shares.shares {
        table.row(vec![
            format!("{}/{}", share.pool, share.volume).into(),
            name(share).into(),
            folder(share).into(),
            state_over(share, ShareProtocol::Smb).into(),
            if share.is_held { HELD } else { state_over(share, ShareProtocol::Nfs) }.into(),
            share.why.join("; ").into(),
        ]);
    }
    out.table(0, &table);
}

/// Shows a share.
pub(crate) fn show_share(document: &ShareDocument, out: &mut Out<'_>) {
    let (share, paint) = (&document.share, out.paint_results);
    let word = paint.tone(health(share.health), health_tone(share.health));
    out.line(format_args!("share {} of volume {}/{}: {word}", name(share), share.pool, share.volume));
    for reason in &share.why {
        out.labelled("  why            ", reason);
    }
    let accounts = share.accounts.iter().map(|grant| {
        let group = if grant.to == ShareAccountKind::Group { "@" } else { "" };
        format!("{group}{}:{}", grant.name, access(grant.access))
    });
    let networks = share.networks.iter().map(|grant| format!("{}:{}", grant.client, access(grant.access)));
    let has_smb = share.protocols.iter().any(|one| one.protocol == ShareProtocol::Smb);
    let encryption = match (has_smb, share.is_encryption_required) {
        (true, true) => "required",
        (true, false) => "not required",
        (false, _) => "",
    };
    let time_machine = share.time_machine_bytes.map(|bytes| format!("{} at most", Bytes(bytes)));
    let mut facts = Table::facts();
    let of = |protocol| share.protocols.iter().find(|one| one.protocol == protocol).map(in_full);
    let over_nfs =
        if share.is_held { Some(HELD.to_owned()) } else { of(ShareProtocol::Nfs) }.unwrap_or_default();
    for (fact, value) in [
        ("folder", folder(share)),
        ("path", share.path.clone().unwrap_or_default()),
        ("over SMB", of(ShareProtocol::Smb).unwrap_or_default()),
        ("accounts", accounts.collect::<Vec<_>>().join(", ")),
        ("encryption", encryption.to_owned()),
        ("Time Machine", time_machine.unwrap_or_default()),
        ("over NFS", over_nfs),
        ("networks", networks.collect::<Vec<_>>().join(", ")),
    ]
    .into_iter()
    .filter(|(_, value)| !value.is_empty())
    {
        facts.row(vec![fact.into(), value.into()]);
    }
    out.facts(2, &facts);
}

/// Shows the clients of a share.
pub(crate) fn show_sessions(found: &ShareSessions, out: &mut Out<'_>) {
    if found.sessions.is_empty() {
        out.line("no clients that its servers list");
    } else {
        let mut table = Table::new(&[
            ("USER", Align::Left),
            ("CLIENT", Align::Left),
            ("OVER", Align::Left),
            ("CIPHER", Align::Left),
            ("SINCE", Align::Left),
            ("OPEN FILES", Align::Right),
        ]);
        for session in &found.sessions {
            table.row(vec![
                session.user.clone().into(),
                session.client.clone().into(),
                session.dialect.clone().into(),
                session.cipher.clone().unwrap_or_else(|| "none".to_owned()).into(),
                session.since.clone().into(),
                session.open_files.to_string().into(),
            ]);
        }
        out.table(0, &table);
    }
    found.unavailable.iter().for_each(|why| out.line(why));
}

fn name(share: &Share) -> String {
    share.name.clone().unwrap_or_else(|| format!("record {}", share.number))
}

fn folder(share: &Share) -> String {
    if share.folder.is_empty() { "all of it".to_owned() } else { share.folder.clone() }
}

fn access(access: ShareAccess) -> &'static str {
    match access {
        ShareAccess::ReadOnly => "ro",
        ShareAccess::ReadWrite => "rw",
    }
}

fn state_over(share: &Share, protocol: ShareProtocol) -> &'static str {
    share
        .protocols
        .iter()
        .find(|one| one.protocol == protocol)
        .map(|one| state(one.state))
        .unwrap_or_default()
}

fn state(state: ShareState) -> &'static str {
    match state {
        ShareState::Unknown => "not looked at",
        ShareState::Up => "up",
        ShareState::Answers => "answers",
        ShareState::Down => "down",
        ShareState::Off => "off",
    }
}

fn in_full(offered: &OfferedShare) -> String {
    let step = offered.step.map(|step| format!(", {}", step_word(step))).unwrap_or_default();
    let finding = offered.finding.as_ref().map(|finding| format!(": {finding}")).unwrap_or_default();
    format!("{}{step}{finding}", state(offered.state))
}

fn step_word(step: ShareStep) -> &'static str {
    match step {
        ShareStep::Change => "change of the server",
        ShareStep::Probe => "look at the server",
        ShareStep::Configuration => "configuration",
        ShareStep::Connection => "connection",
        ShareStep::Protocol => "protocol",
        ShareStep::Listing => "listing",
    }
}
