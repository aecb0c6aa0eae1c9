//! How other threads have something done on the engine's thread.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::Poll;

use dolmen_api::{Change, ErrorBody, ErrorCode};
use dolmen_block_linux::{Mailbox, PostError, Reply};

pub(crate) use crate::answer::Answer;
use crate::engine::Engine;
use crate::state::Asked;

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
        self.post(|reply| Box::new(move |engine| Box::pin(async move { reply.send(make(engine).await) })))
            .await
    }

    /// Has a change made, and an event of it where no other one shows it. What its plan says of room is computed before, on
    /// another thread.
    pub(crate) async fn change<F, A>(&self, asked: Asked, make: F) -> Answer<Change>
    where
        F: FnOnce(Rc<Engine>) -> A + Send + 'static,
        A: Future<Output = Answer<Change>> + 'static,
    {
        self.ask(async move |engine| {
            engine.base.pools.know_rooms().await;
            let answer = make(Rc::clone(&engine)).await;
            if let Ok(change) = &answer
                && change.is_changed
            {
                engine.base.events.report_change(&asked, &change.message).await;
            }
            answer
        })
        .await
    }

    /// Has a question answered, which changes nothing: the engine abandons it when the wait is given up.
    pub(crate) async fn question<T, F, A>(&self, make: F) -> Answer<T>
    where
        T: Send + 'static,
        F: FnOnce(Rc<Engine>) -> A + Send + 'static,
        A: Future<Output = Answer<T>> + 'static,
    {
        self.post(|reply| Box::new(move |engine| Box::pin(answer_if_wanted(reply, move || make(engine)))))
            .await
    }

    async fn post<T: Send + 'static>(&self, work: impl FnOnce(Reply<Answer<T>>) -> Work) -> Answer<T> {
        let posted = self.mailbox.ask(work);
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

/// Answers as long as somebody waits for it.
async fn answer_if_wanted<T: Send, A: Future<Output = T>>(reply: Reply<T>, make: impl FnOnce() -> A) {
    if !reply.is_wanted() {
        return;
    }
    let mut answering = pin!(make());
    let answer = poll_fn(|cx| match reply.is_wanted() {
        true => answering.as_mut().poll(cx).map(Some),
        false => Poll::Ready(None),
    });
    if let Some(answer) = answer.await {
        reply.send(answer);
    }
}

fn lost() -> ErrorBody {
    ErrorBody::new(ErrorCode::Stopping, "the daemon is ending; the request was not finished")
        .hint("ask again when it has been started again")
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::task::{Context, Waker};

    use dolmen_block_linux::reply;

    use super::*;

    /// Scenario: a requester ends before its request is begun, another while it is being answered, and a third waits. The first question
    /// is not begun, the second is abandoned when it could go on, and the third is answered.
    #[test]
    fn a_question_whose_caller_has_disconnected_is_abandoned() {
        let steps = Cell::new(0);
        let question = || async {
            for _ in 0..3 {
                steps.set(steps.get() + 1);
                let mut is_first = true;
                poll_fn(|_| if std::mem::take(&mut is_first) { Poll::Pending } else { Poll::Ready(()) })
                    .await;
            }
            7
        };
        for (polls_before, expected) in [(0, 0), (1, 1), (9, 3)] {
            steps.set(0);
            let (answer, awaited) = reply::<u32>();
            let mut awaited = Some(awaited);
            let mut answering = pin!(answer_if_wanted(answer, question));
            let mut polls = 0;
            loop {
                if polls == polls_before {
                    awaited = None;
                }
                polls += 1;
                if answering.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready() {
                    break;
                }
            }
            assert_eq!(steps.get(), expected, "gone behind {polls_before} polls");
            assert_eq!(awaited.map(|awaited| awaited.wait().unwrap()), (expected == 3).then_some(7));
        }
    }
}
