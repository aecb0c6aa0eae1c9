//! `dolmen volume`.

use dolmen_api::{
    AdoptVolume, CheckVolume, CompactVolume, CreateVolume, MountVolume, ResizeSpace, Simple, verb,
};

use crate::arguments::volume::{FileSystemWord, VolumeCheck, VolumeCommand, VolumeCreate};
use crate::commands::quota::quota;
use crate::commands::space::{new_space, space_words};
use crate::confirm::Danger;
use crate::error::CliError;
use crate::session::change::Session;
use crate::session::client::call;
use crate::views::volumes::{show_volume, show_volume_check, show_volumes};

/// `dolmen volume`
pub(crate) fn volume(session: &mut Session<'_, '_>, command: VolumeCommand) -> Result<(), CliError> {
    match command {
        VolumeCommand::Create(arguments) => volume_create(session, &arguments),
        VolumeCommand::List(filter) => {
            let document = match &filter.pool {
                Some(pool) => session.client.look(&call::<verb::ListVolumes>([pool.as_str()]))?,
                None => session.client.look(&call::<verb::ListAllVolumes>([]))?,
            };
            session.show(&document, show_volumes);
            Ok(())
        }
        VolumeCommand::Show(target) => {
            let document = session.client.look(&call::<verb::ShowVolume>(space_words(&target.space)))?;
            session.show(&document, show_volume);
            Ok(())
        }
        VolumeCommand::Mount(arguments) => {
            let request = MountVolume { mount_point: arguments.mount, dry_run: false };
            let asked = call::<verb::MountVolume>(space_words(&arguments.volume));
            session.change(&asked, &request, arguments.dry.intent()).map(drop)
        }
        VolumeCommand::Unmount(arguments) => {
            let asked = call::<verb::UnmountVolume>(space_words(&arguments.volume));
            session.change(&asked, &Simple::default(), arguments.dry.intent()).map(drop)
        }
        VolumeCommand::Grow(arguments) => {
            let request = ResizeSpace { size_bytes: arguments.size.0, dry_run: false };
            let asked = call::<verb::GrowVolume>(space_words(&arguments.volume));
            session.change(&asked, &request, arguments.dry.intent()).map(drop)
        }
        VolumeCommand::Trim(arguments) => {
            let asked = call::<verb::TrimVolume>(space_words(&arguments.volume));
            session.change(&asked, &Simple::default(), arguments.dry.intent()).map(drop)
        }
        VolumeCommand::Compact(arguments) => {
            let request = CompactVolume { budget_bytes: arguments.budget.map(|size| size.0), dry_run: false };
            let asked = call::<verb::CompactVolume>(space_words(&arguments.volume));
            let change = session.change(&asked, &request, arguments.dry.intent())?;
            session.wait_for(&change, &arguments.waiting)
        }
        VolumeCommand::Check(arguments) if arguments.report => {
            let asked = call::<verb::ShowVolumeCheck>(space_words(&arguments.volume));
            let document = session.client.look(&asked)?;
            let name = arguments.volume.to_string();
            session.show(&document, |document, out| show_volume_check(&name, document, out));
            Ok(())
        }
        VolumeCommand::Check(arguments) => volume_check(session, &arguments),
        VolumeCommand::Adopt(arguments) => {
            let request = AdoptVolume { mount_point: arguments.mount, dry_run: false };
            let asked = call::<verb::AdoptVolume>(space_words(&arguments.space));
            session.change(&asked, &request, arguments.dry.intent()).map(drop)
        }
        VolumeCommand::Quota(command) => quota(session, &command),
        VolumeCommand::Delete(arguments) => {
            let asked = call::<verb::DeleteVolume>(space_words(&arguments.volume));
            session.change(&asked, &Simple::default(), arguments.dry.intent()).map(drop)
        }
    }
}

fn volume_check(session: &mut Session<'_, '_>, arguments: &VolumeCheck) -> Result<(), CliError> {
    let asked = call::<verb::CheckVolume>(space_words(&arguments.volume));
    let change = if arguments.repair {
        let full = arguments.volume.to_string();
        let object = format!("files of volume {full} that cannot be repaired");
        let danger = Danger { object: &object, name: &full, alias: Some(arguments.volume.space.as_str()) };
        let given = arguments.consent.destroy.as_deref();
        let drop_log = arguments.drop_log;
        let request = |destroy| CheckVolume { repair: true, drop_log, destroy, dry_run: false };
        session.destroy(&asked, &danger, given, request, arguments.dry.intent())?
    } else {
        session.change(&asked, &CheckVolume::default(), arguments.dry.intent())?
    };
    session.wait_for(&change, &arguments.waiting)
}

fn volume_create(session: &mut Session<'_, '_>, arguments: &VolumeCreate) -> Result<(), CliError> {
    let space = new_space(&arguments.volume, &arguments.new);
    let request = CreateVolume {
        name: space.name,
        size_bytes: space.size_bytes,
        purpose: arguments.purpose.purpose(),
        file_system: arguments.file_system.map(FileSystemWord::kind),
        label: arguments.label.clone(),
        oldest_kernel: arguments.oldest_kernel.clone(),
        mount_point: arguments.mount.clone(),
        resiliency: space.resiliency,
        copies: space.copies,
        parity: space.parity,
        columns: space.columns,
        interleave_bytes: space.interleave_bytes,
        row_bytes: space.row_bytes,
        provisioning: space.provisioning,
        integrity: space.integrity,
        sector_bytes: space.sector_bytes,
        dry_run: space.dry_run,
    };
    let asked = call::<verb::CreateVolume>([arguments.volume.pool.as_str()]);
    let change = session.change(&asked, &request, arguments.dry.intent())?;
    session.wait_for(&change, &arguments.waiting)
}
