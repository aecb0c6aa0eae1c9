//! Changes of the members of an open pool that somebody asks for.
//!
//! Each is one epoch, for which there has to be room in the labels.

use std::rc::Rc;

use dolmen_block_io::sync::Permit;
use dolmen_disk::MemberState;
use dolmen_epoch::SPANS_MAX;
use dolmen_future_pool::pooled;

use crate::changes::change::Changes;
use crate::changes::checkpoints::Checkpoints;
use crate::disks::disk::Disk;
use crate::epochs::change::{Epochs, SPANS_FOR_REQUESTS, plan_of};
use crate::epochs::labels::PoolLabels;
use crate::error::PoolError;
use crate::log::pool_log::PoolLog;
use crate::members::identity::Identity;
use crate::members::table::Members;
use crate::membership::voter_tender::VoterTender;
use crate::room::free_space::FreeSpace;

/// Changes the members of an open pool on request.
pub struct Membership {
    pub(crate) identity: Rc<Identity>,
    pub(crate) members: Rc<Members>,
    pub(crate) log: Rc<PoolLog>,
    pub(crate) free_space: Rc<FreeSpace>,
    pub(crate) labels: Rc<PoolLabels>,
    pub(crate) epochs: Rc<Epochs>,
    pub(crate) checkpoints: Rc<Checkpoints>,
    pub(crate) changes: Rc<Changes>,
    pub(crate) voter_tender: Rc<VoterTender>,
}

impl Membership {
    /// The turn for an epoch that nothing is wrong without: where labels are half full of such that the log names, a checkpoint
    /// comes first. A change for which there is no room stops the pool; so where as many as `spans_max` were named nevertheless,
    /// it is refused.
    ///
    /// # Errors
    /// What the pool says when it cannot be written; [`PoolError::Epoch`] when others came in between, and it can be tried again.
    pub(crate) async fn mutex_for_request(
        self: &Rc<Self>,
        spans_max: usize,
    ) -> Result<Permit<'_>, PoolError> {
        let found = || self.log.spans_needed() + 1;
        if found() > SPANS_MAX / 2 {
            self.checkpoints.checkpoint().await?;
        }
        let mutex = self.epochs.mutex.take().await;
        if found() > spans_max {
            let source = dolmen_epoch::ChangeError::SpansFull { found: found() };
            return Err(PoolError::Epoch { name: self.identity.name.clone(), source });
        }
        Ok(mutex)
    }

    /// Says what a member may fail together with; 0 for nothing. Rows that are there stay where they are.
    ///
    /// # Errors
    /// [`PoolError::NotReplaced`] for what is no member any more; what the pool says when it cannot be written.
    #[pooled]
    pub async fn set_fault_domain(self: &Rc<Self>, disk: &Disk, domain: u32) -> Result<(), PoolError> {
        let mutex = self.mutex_for_request(SPANS_FOR_REQUESTS).await?;
        self.log.writable()?;
        if !self.members.is_member(disk) {
            return Err(self.identity.not_replaced(disk, "it is no member any more"));
        }
        self.epochs
            .change(|generation, _| {
                let mut plan = plan_of(generation);
                let members = plan.members.iter_mut();
                members
                    .filter(|member| member.disk == disk.id())
                    .for_each(|member| member.fault_domain = domain);
                plan
            })
            .await?;
        self.labels.write_other_labels().await;
        drop(mutex);
        self.members.changed.notify_all();
        Ok(())
    }

    /// Changes the state of a member that has no successor, by an epoch. The caller holds the turn of epochs.
    pub(crate) async fn set_state(self: &Rc<Self>, disk: &Disk, state: MemberState) -> Result<(), PoolError> {
        self.epochs
            .change(|generation, _| {
                let mut plan = plan_of(generation);
                let members = plan.members.iter_mut();
                members.filter(|member| member.disk == disk.id()).for_each(|member| member.state = state);
                plan
            })
            .await?;
        self.labels.write_other_labels().await;
        Ok(())
    }
}
