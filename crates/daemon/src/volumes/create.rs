//! Creation of a volume: what it takes, and the request.

use std::path::PathBuf;
use std::rc::Rc;

use dolmen_api::{
    Change, CreateSpace, CreateVolume, ErrorBody, ErrorCode, MissingPackage, ResiliencyKind, VolumePlan,
    VolumePurpose,
};
use dolmen_space::{Provisioning, SpaceSpec, THIN_ROWS_MAX};
use dolmen_units::Bytes;
use dolmen_volume::file_system::FileSystemUuid;
use dolmen_volume::making::Making;
use dolmen_volume::mount_point::MountPoint;
use dolmen_volume::profile::{
    self, Host, Missing, Profile, ProfileError, ProfileRequest, Redundancy, SpaceShape, Stripe,
};
use dolmen_volume::record::{DesiredVolume, Schedules, Unknown, VolumeRecord, VolumeState};
use dolmen_volume::version::Version;

use crate::answer::Answer;
use crate::open_pool::{OpenPool, key_of};
use crate::plan::{made, planned};
use crate::spaces::plan_new_space;
use crate::state::VolumeUse;
use crate::volumes::claiming::claim_place;
use crate::volumes::records::attribute;
use crate::volumes::service::{Volumes, pool_to_change};
use crate::volumes::words::{file_system_of, kind_of, purpose_of};
use crate::volumes::{host, places};

/// Length of rows of a thin space for files.
const SHORT_ROW_BYTES: Bytes = Bytes::mib(4);
/// Folder for volumes that are given no mount point.
pub(super) const MOUNT_FOLDER: &str = "/srv";

/// Creation of volumes.
pub(crate) struct VolumeCreations {
    volumes: Rc<Volumes>,
}

impl VolumeCreations {
    pub(crate) fn new(volumes: &Rc<Volumes>) -> Self {
        Self { volumes: Rc::clone(volumes) }
    }

    pub(crate) async fn create_volume(&self, pool: String, request: CreateVolume) -> Answer<Change> {
        let pool = pool_to_change(&self.volumes.pools, &pool)?;
        let exclusive = self.volumes.pools.lock_for_change(&pool).await?;
        let name = format!("{}/{}", pool.name(), request.name);
        let new = plan_new_space(&pool, &space_of(&request));
        let new = new.map_err(|error| self.hint_at_namesake(error, &pool, &request.name, &name))?;
        let (record, shown) = self.choose(&name, &request, &new.spec).await?;
        // It ends when the record is written, or nothing was made.
        let _claim = claim_place(&self.volumes, &record.mount_point, &name).await?;
        self.check_place(&record.mount_point, &name).await?;
        let mut plan = new.plan;
        plan.steps.extend(steps_of(&name, &shown));
        plan.undo = Some(format!("dolmen volume delete {name}"));
        if request.dry_run {
            let message = format!(
                "volume {name} would be made, {} mounted at {}",
                record.file_system, record.mount_point
            );
            let mut change = planned(plan, message);
            change.warnings.extend(new.warning);
            change.warnings.extend(shown.missing.iter().map(|missing| missing_in_words(missing, &request)));
            change.volume_plan = Some(shown);
            return Ok(change);
        }
        self.volumes.pool_jobs.check_job_room(&pool)?;
        let attributes = vec![attribute(&record, &name)?];
        let space =
            pool.spaces.create_with(new.spec, attributes).await.map_err(|error| pool.lacks_room(&error))?;
        self.volumes.uses.note(key_of(&pool, &space), Some(VolumeUse::Making));
        drop(exclusive);
        let job = self.volumes.start_making(&pool, &space, None).await;
        let message = format!(
            "volume {name} is being made, {} for {}, job {}",
            record.file_system, record.mount_point, job.id
        );
        let mut change = made(plan, message);
        change.job = Some(job);
        change.warnings.extend(new.warning);
        change.warnings.extend(shown.missing.iter().map(|missing| missing_in_words(missing, &request)));
        change.space = Some(self.volumes.views.view_space(&pool, &space).await?);
        change.volume_plan = Some(shown);
        Ok(change)
    }

    /// Says what to do where a volume that was not made to its end has the name.
    fn hint_at_namesake(&self, error: ErrorBody, pool: &OpenPool, space: &str, name: &str) -> ErrorBody {
        let found = pool.space(space).ok().filter(|_| error.code == ErrorCode::NameTaken);
        match found {
            Some(space) if self.volumes.uses.is_unmade(key_of(pool, &space)) => error.hint(format!(
                "it is a volume that was not made to the end: `dolmen volume mount {name}` goes on with it, \
                 `dolmen volume delete {name}` deletes it"
            )),
            Some(_) | None => error,
        }
    }

    /// Refuses a mount point that the mount would refuse once all is made.
    async fn check_place(&self, wanted: &MountPoint, name: &str) -> Answer<()> {
        let place = PathBuf::from(wanted.as_str());
        let obstacle = self.volumes.looks.run(move || Ok(places::obstacle(&place))).await;
        let obstacle = obstacle.unwrap_or_else(|error| Some(format!("it cannot be looked at: {error}")));
        let Some(obstacle) = obstacle else { return Ok(()) };
        let message = format!("volume {name} cannot be mounted at {wanted}: {obstacle}; nothing was made");
        let hint = "choose an empty folder, or one that does not exist, with --mount";
        Err(ErrorBody::new(ErrorCode::BadRequest, message).on(name).hint(hint))
    }

    /// Chooses file system and options.
    async fn choose(
        &self,
        name: &str,
        request: &CreateVolume,
        spec: &SpaceSpec,
    ) -> Answer<(VolumeRecord, VolumePlan)> {
        let oldest_kernel = oldest_kernel_of(request, name)?;
        let host = self.volumes.looks.run(|| Ok(host::look())).await;
        let host = host.map(|host| Host { oldest_kernel, ..host });
        let host = host.map_err(|error| {
            ErrorBody::new(ErrorCode::Io, format!("the tools of this host cannot be looked at: {error}"))
                .on(name)
                .hint("nothing was made; try again when the host is less busy")
        })?;
        let uuid = FileSystemUuid(random_uuid(self.volumes.seams.entropy.next_id()));
        let asked = ProfileRequest {
            purpose: purpose_of(request.purpose),
            file_system: request.file_system.map(file_system_of),
            label: request.label.clone(),
            uuid,
        };
        let refused = |error: &ProfileError| {
            let message = format!("volume {name} cannot be made: {error}; nothing was made");
            ErrorBody::new(code_of(error), message).on(name)
        };
        let profile = Profile::choose(&asked, &host, shape_of(spec)).map_err(|error| refused(&error))?;
        let mount_point = match &request.mount_point {
            Some(path) => parse_mount_point(path, name)?,
            None => parse_mount_point(&format!("{MOUNT_FOLDER}/{name}"), name)?,
        };
        let device = self.volumes.links.join(name);
        let mkfs =
            profile.mkfs(&device.display().to_string(), Making::Make).map_err(|error| refused(&error))?;
        let shown = VolumePlan {
            file_system: kind_of(profile.file_system),
            mkfs: mkfs.unwrap_or_default(),
            mount_options: profile.mount_options.iter().map(ToString::to_string).collect(),
            mount_point: mount_point.to_string(),
            reasons: profile
                .reasons
                .iter()
                .cloned()
                .chain(own_reasons(request, &mount_point, spec))
                .collect(),
            missing: profile.missing.iter().map(shown_missing).collect(),
        };
        let record = VolumeRecord {
            state: VolumeState::Making,
            desired: DesiredVolume::Mounted,
            file_system: profile.file_system,
            uuid,
            label: request.label.clone(),
            purpose: Some(asked.purpose),
            mkfs_options: profile.mkfs_options,
            is_mkfs_begun: false,
            is_growing: false,
            mount_options: profile.mount_options,
            mount_point,
            placed_by: Some(self.volumes.shares.host),
            oldest_kernel,
            schedules: Schedules::default(),
            deduplication: None,
            unknown: Unknown::new(),
        };
        Ok((record, shown))
    }
}

/// Reads a mount point.
pub(super) fn parse_mount_point(path: &str, name: &str) -> Answer<MountPoint> {
    MountPoint::chosen(path).map_err(|error| {
        ErrorBody::new(ErrorCode::BadRequest, format!("volume {name}: {error}; nothing was changed")).on(name)
    })
}

/// Reads the oldest kernel that is to mount a volume.
fn oldest_kernel_of(request: &CreateVolume, name: &str) -> Answer<Option<Version>> {
    let parsed = request.oldest_kernel.as_deref().map(str::parse::<Version>).transpose();
    parsed.map_err(|error| {
        let message = format!("volume {name} cannot be made: {error}; nothing was made");
        ErrorBody::new(ErrorCode::BadRequest, message).on(name)
    })
}

/// Returns the space that a volume is made on, as it is asked for.
fn space_of(request: &CreateVolume) -> CreateSpace {
    CreateSpace {
        name: request.name.clone(),
        size_bytes: request.size_bytes,
        resiliency: request.resiliency,
        copies: request.copies,
        parity: request.parity,
        columns: request.columns,
        interleave_bytes: request.interleave_bytes,
        row_bytes: row_bytes_of(request),
        provisioning: request.provisioning,
        integrity: request.integrity,
        sector_bytes: request.sector_bytes,
        dry_run: request.dry_run,
    }
}

/// Returns the length of rows, if it is another one than that of spaces. XFS puts inodes, 64 at a time, among the content of files. No
/// call moves them, and they keep their row claimed when deduplication has emptied the rest of it. So rows of a thin space for files
/// are as short as the map has room for.
fn row_bytes_of(request: &CreateVolume) -> Option<u64> {
    let is_for_files = matches!(request.purpose, VolumePurpose::Files | VolumePurpose::Documents);
    let is_thin = request.provisioning == dolmen_api::Provisioning::Thin;
    let is_usual = request.resiliency != ResiliencyKind::Parity
        && request.columns.is_none()
        && request.interleave_bytes.is_none();
    let is_small = request.size_bytes.div_ceil(THIN_ROWS_MAX) <= SHORT_ROW_BYTES.0;
    let shorter = (is_for_files && is_thin && is_usual && is_small).then_some(SHORT_ROW_BYTES.0);
    request.row_bytes.or(shorter)
}

fn shape_of(spec: &SpaceSpec) -> SpaceShape {
    let stripe = |columns: u8| Stripe { interleave_bytes: spec.interleave.0, data_columns: columns.into() };
    SpaceShape {
        bytes: spec.size.0,
        provisioning: match spec.provisioning {
            Provisioning::Thin => profile::Provisioning::Thin,
            Provisioning::Fixed => profile::Provisioning::Fixed,
        },
        redundancy: if spec.resiliency.redundancy() > 0 { Redundancy::Present } else { Redundancy::Absent },
        stripe: spec.columns.filter(|_| spec.resiliency.parity_columns() > 0).map(stripe),
        sector_bytes: u32::try_from(spec.sector.0).unwrap_or(u32::MAX),
    }
}

/// Makes 128 random bits a UUID of version 4.
fn random_uuid(bits: [u8; 16]) -> [u8; 16] {
    let mut uuid = u128::from_be_bytes(bits);
    uuid = uuid & !(0xf << 76) | (4 << 76);
    uuid = uuid & !(0x3 << 62) | (2 << 62);
    uuid.to_be_bytes()
}

fn code_of(error: &ProfileError) -> ErrorCode {
    match error {
        ProfileError::Tools { .. } | ProfileError::NotMountable { .. } => ErrorCode::Missing,
        ProfileError::TooSmall { .. } => ErrorCode::BadSize,
        ProfileError::Kernel { .. }
        | ProfileError::Sector { .. }
        | ProfileError::Label(_)
        | ProfileError::Device { .. } => ErrorCode::BadRequest,
    }
}

fn shown_missing(missing: &Missing) -> MissingPackage {
    MissingPackage {
        package: missing.package.to_owned(),
        needed: missing.needed.to_string(),
        found: missing.found.map(|found| found.to_string()),
        lost: missing.lost.clone(),
    }
}

fn missing_in_words(missing: &MissingPackage, request: &CreateVolume) -> String {
    if let (Some(oldest), "kernel") = (&request.oldest_kernel, missing.package.as_str()) {
        let (needed, lost) = (&missing.needed, &missing.lost);
        return format!("kernel {needed} or later would be needed, and {oldest} is to mount it: {lost}");
    }
    let found = missing.found.as_deref().unwrap_or("none");
    format!(
        "{} {} or later would be needed, and {found} is here: {}",
        missing.package, missing.needed, missing.lost
    )
}

/// Returns why a volume has its mount point and its protection.
fn own_reasons(request: &CreateVolume, mount_point: &MountPoint, spec: &SpaceSpec) -> [String; 2] {
    let place = match request.mount_point {
        Some(_) => format!("The mount point {mount_point} was asked for."),
        None => format!("Without --mount, a volume is at {MOUNT_FOLDER}/POOL/NAME: {mount_point}."),
    };
    let survives = match spec.resiliency.redundancy() {
        0 => "no lost disk; a mirror on two disks would survive one".to_owned(),
        1 => "the loss of 1 disk".to_owned(),
        disks => format!("the loss of {disks} disks"),
    };
    [
        place,
        format!(
            "Its space is a {}, which survives {survives}; --resiliency chooses another.",
            spec.resiliency
        ),
    ]
}

fn steps_of(name: &str, plan: &VolumePlan) -> Vec<String> {
    let options = plan.mount_options.join(",");
    vec![
        format!("attach {name} and discard all of it"),
        format!("make its file system: {}", plan.mkfs.join(" ")),
        format!("mount it at {} with {options}, now and whenever its pool is opened", plan.mount_point),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows_of(body: &str) -> Option<u64> {
        let resiliency = if body.contains("resiliency") { "" } else { r#", "resiliency": "mirror""# };
        let text = format!(r#"{{"name": "v", {body}{resiliency}}}"#);
        row_bytes_of(&serde_json::from_str(&text).unwrap())
    }

    /// Scenario: volumes of several purposes, sizes and layouts are asked for. Rows are short where files are shared and the map has
    /// room for them, and as asked for where they are asked for.
    #[test]
    fn rows_for_files_are_short_while_the_map_has_room_for_them() {
        let short = Some(4 << 20);
        let tib: u64 = 1 << 40;
        for purpose in ["files", "documents"] {
            let of = |more: &str| rows_of(&format!(r#""purpose": "{purpose}", {more}"#));
            assert_eq!(of(&format!(r#""size_bytes": {tib}"#)), short);
            assert_eq!(of(&format!(r#""size_bytes": {}"#, tib + (1 << 20))), None);
            assert_eq!(of(r#""size_bytes": 1048576, "row_bytes": 8388608"#), Some(8 << 20));
            assert_eq!(of(r#""size_bytes": 1048576, "provisioning": "fixed""#), None);
            assert_eq!(of(r#""size_bytes": 1048576, "columns": 4"#), None);
            assert_eq!(of(r#""size_bytes": 1048576, "resiliency": "parity""#), None);
        }
        for purpose in ["vms", "database", "backup"] {
            assert_eq!(rows_of(&format!(r#""purpose": "{purpose}", "size_bytes": 1048576"#)), None);
        }
    }

    #[test]
    fn a_drawn_uuid_says_that_it_is_random() {
        for bits in [[0; 16], [0xff; 16]] {
            let text = FileSystemUuid(random_uuid(bits)).to_string();
            assert_eq!((text.get(14..15), text.len()), (Some("4"), 36), "{text}");
            assert!(matches!(text.get(19..20), Some("8" | "b")), "{text}");
        }
    }
}
