//! Arguments of `dolmen trash`.

use clap::{Args, Subcommand};
use dolmen_units::Name;

use crate::arguments::common::{DestroyName, DryRun, PoolFilter, Waiting};
use crate::arguments::values::SpaceName;

/// `dolmen trash …`
#[derive(Debug, Subcommand)]
pub(crate) enum TrashCommand {
    /// List what is in the trash
    List(PoolFilter),
    /// Take a space out of the trash, with all that it holds
    Restore(TrashRestore),
    /// Delete spaces in the trash for good, and give their room back
    Purge(TrashPurge),
}

/// `dolmen trash restore`
#[derive(Debug, Args)]
pub(crate) struct TrashRestore {
    /// The space, by the name that it had or by its number
    #[arg(value_name = "POOL/SPACE")]
    pub space: SpaceName,
    /// The name that it is to have, where the one that it had is another's by now
    #[arg(long = "as", value_name = "NAME")]
    pub name: Option<Name>,
    /// Whether to do it.
    #[command(flatten)]
    pub dry: DryRun,
}

/// `dolmen trash purge`
#[derive(Debug, Args)]
#[command(group(clap::ArgGroup::new("what").required(true).args(["spaces", "all"])))]
pub(crate) struct TrashPurge {
    /// The spaces, all of one pool, by the names that they had or by their numbers
    #[arg(value_name = "POOL/SPACE")]
    pub spaces: Vec<SpaceName>,
    /// All that is in the trash of this pool
    #[arg(long, value_name = "POOL")]
    pub all: Option<Name>,
    /// The name again.
    #[command(flatten)]
    pub consent: DestroyName,
    /// Whether to wait.
    #[command(flatten)]
    pub waiting: Waiting,
    /// Whether to do it.
    #[command(flatten)]
    pub dry: DryRun,
}
