//! Disks that get another part in their pool.

use dolmen_api::{DiskRole, SetDiskRole};

use crate::args_disk::{DiskRetire, DiskSet};
use crate::change::Session;
use crate::command::disk_path;
use crate::error::CliError;

/// `dolmen disk set`
pub(crate) fn disk_set(session: &mut Session<'_, '_>, arguments: &DiskSet) -> Result<(), CliError> {
    let role = match (arguments.spare, arguments.member) {
        (true, _) => DiskRole::Spare,
        (false, true) => DiskRole::Member,
        (false, false) => return Ok(()),
    };
    let path = format!("{}/role", disk_path(&arguments.pool, &arguments.disk));
    let request = SetDiskRole { role, dry_run: false };
    let change = session.change(&path, &request, arguments.dry.intent())?;
    session.wait_for(&change, &arguments.waiting)
}

/// `dolmen disk retire`
pub(crate) fn disk_retire(session: &mut Session<'_, '_>, arguments: &DiskRetire) -> Result<(), CliError> {
    let role = if arguments.cancel { DiskRole::Member } else { DiskRole::Retired };
    let path = format!("{}/role", disk_path(&arguments.pool, &arguments.disk));
    let request = SetDiskRole { role, dry_run: false };
    let change = session.change(&path, &request, arguments.dry.intent())?;
    session.wait_for(&change, &arguments.waiting)
}
