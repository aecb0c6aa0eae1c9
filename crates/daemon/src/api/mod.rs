//! Requests and answers: the socket, the routes, what carries requests out, and what documents show.

mod api_socket;
mod control;
mod events;
mod figures;
mod job_control;
mod serving;
mod shutdown;
mod view;
mod why;

pub(crate) use api_socket::ApiSocket;
pub(crate) use control::serve;
