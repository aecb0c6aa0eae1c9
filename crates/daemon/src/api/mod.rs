//! Requests and answers: the socket, the routes, what carries requests out, and what documents show.

mod api_socket;
mod control;
mod events;
mod figures;
mod job_control;
mod reports;
mod serving;
mod shutdown;
mod why;

pub(crate) use api_socket::ApiSocket;
pub(crate) use control::serve;
pub(crate) use events::EventWatch;
pub(crate) use job_control::JobControl;
pub(crate) use reports::Reports;
pub(crate) use shutdown::Stopping;
pub(crate) use why::Explainer;
