//! Several futures side by side, for the few places where every copy is worked on at once.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

enum Part<F: Future> {
    Running(Pin<Box<F>>),
    Finished(F::Output),
}

/// Runs all to their ends and gives what they gave, in their order.
pub(crate) async fn all<F: Future>(futures: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut parts: Vec<Part<F>> = futures.map(|future| Part::Running(Box::pin(future))).collect();
    poll_fn(|cx| {
        let mut waiting = false;
        for part in &mut parts {
            let Part::Running(future) = part else { continue };
            match future.as_mut().poll(cx) {
                Poll::Ready(output) => *part = Part::Finished(output),
                Poll::Pending => waiting = true,
            }
        }
        if waiting { Poll::Pending } else { Poll::Ready(()) }
    })
    .await;
    parts
        .into_iter()
        .filter_map(|part| if let Part::Finished(output) = part { Some(output) } else { None })
        .collect()
}
