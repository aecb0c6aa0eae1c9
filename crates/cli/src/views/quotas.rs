//! Quotas as people see them.

use dolmen_api::{Quota, Quotas};
use dolmen_units::Bytes;

use crate::terminal::out::Out;
use crate::terminal::table::{Align, Table};

/// Shows quotas.
pub(crate) fn show_quotas(quotas: &Quotas, out: &mut Out<'_>) {
    if quotas.quotas.is_empty() {
        return out.line("no quotas; set one with: dolmen volume quota set POOL/NAME FOLDER SIZE");
    }
    let mut table = Table::new(&[
        ("FOLDER", Align::Left),
        ("USED", Align::Right),
        ("LIMIT", Align::Right),
        ("FILES", Align::Right),
        ("LIMIT OF FILES", Align::Right),
        ("WHY", Align::Sentence),
    ]);
    for quota in &quotas.quotas {
        let bytes = |bytes: Option<u64>, none: &str| {
            bytes.map_or_else(|| none.to_owned(), |bytes| Bytes(bytes).to_string())
        };
        let number = |number: Option<u64>, none: &str| {
            number.map_or_else(|| none.to_owned(), |number| number.to_string())
        };
        table.row(vec![
            folder(quota).into(),
            bytes(quota.used_bytes, "").into(),
            bytes(quota.limit_bytes, "none").into(),
            number(quota.used_files, "").into(),
            number(quota.limit_files, "none").into(),
            quota.why.join("; ").into(),
        ]);
    }
    out.table(0, &table);
    quotas.unavailable.iter().for_each(|why| out.line(format_args!("nothing is counted: {why}")));
}

fn folder(quota: &Quota) -> String {
    if quota.folder.is_empty() && quota.project_id.is_some() { ".".to_owned() } else { quota.folder.clone() }
}
