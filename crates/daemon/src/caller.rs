//! How other threads have something done on the engine's thread.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

use dolmen_api::{ErrorBody, ErrorCode};
use dolmen_block_linux::{Mailbox, PostError};

use crate::engine::Engine;

/// The answer to a request, or why there is none.
pub(crate) type Answer<T> = Result<T, ErrorBody>;
/// What the engine is to do.
pub(crate) type Work = Box<dyn FnOnce(Rc<Engine>) -> Pin<Box<dyn Future<Output = ()>>> + Send>;

/// The way to the engine. The engine ends when the last of these is gone.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    mailbox: Mailbox<Work>,
}

impl Caller {
    pub(crate) fn new(mailbox: Mailbox<Work>) -> Self {
        Self { mailbox }
    }

    /// Has `make` carried out by the engine, and waits for its answer. The work goes on when the wait is given up.
    pub(crate) async fn ask<T, F, A>(&self, make: F) -> Answer<T>
    where
        T: Send + 'static,
        F: FnOnce(Rc<Engine>) -> A + Send + 'static,
        A: Future<Output = Answer<T>> + 'static,
    {
        let posted = self.mailbox.ask(|reply| -> Work {
            Box::new(move |engine| Box::pin(async move { reply.send(make(engine).await) }))
        });
        let awaited = match posted {
            Ok(awaited) => awaited,
            Err(PostError::Full(_)) => {
                let error = ErrorBody::new(
                    ErrorCode::Busy,
                    "the engine has too many requests already; nothing was done",
                );
                return Err(error.hint("try again in a moment"));
            }
            Err(PostError::Closed(_)) => return Err(lost()),
        };
        awaited.await.unwrap_or_else(|_| Err(lost()))
    }
}

fn lost() -> ErrorBody {
    ErrorBody::new(ErrorCode::Stopping, "the daemon is ending; the request was not finished")
        .hint("ask again when it has been started anew")
}
