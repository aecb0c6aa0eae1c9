//! Requests and answers: the sockets, the routes, what carries requests out, and what documents show.

mod admission;
mod api_socket;
mod control;
mod events;
mod figures;
mod history;
mod job_control;
mod recent_slab_maps;
mod reports;
mod serving;
mod shutdown;
mod slab_map;
mod web_user;
mod why;

pub(crate) use api_socket::ApiSocket;
pub(crate) use control::serve;
pub(crate) use events::EventWatch;
pub(crate) use job_control::JobControl;
pub(crate) use reports::Reports;
pub(crate) use shutdown::Stopping;
pub(crate) use web_user::WebUser;
pub(crate) use why::Explainer;
