//! Changes of what is set of pools, as a service.

use std::rc::Rc;

use crate::base::Base;
use crate::open_pools::OpenPools;
use crate::views::Views;

/// Changes of what is set of pools.
pub(crate) struct Settings {
    pub(super) pools: Rc<OpenPools>,
    pub(super) views: Rc<Views>,
}

impl Settings {
    pub(crate) fn new(base: &Base) -> Self {
        Self { pools: Rc::clone(&base.pools), views: Rc::clone(&base.views) }
    }
}
