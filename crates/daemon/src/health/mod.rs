//! The one judgement of what is the matter, and what to do about it.

mod diagnosis;
mod findings;
mod growth;
mod status;

pub(crate) use diagnosis::Diagnosis;
pub(crate) use findings::{
    absent_names, absent_with, errors_text, findings_at_a_glance, lost_labels_text, may_have_part, only_on,
    pool_findings, reduction_of, slow_disks, space_health, summed, to_attach_absent, unseen_errors,
    without_labels,
};
pub(crate) use status::{advice, doing, not_open, to_open, to_resume, version};
