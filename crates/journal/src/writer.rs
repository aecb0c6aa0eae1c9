//! The task that writes batches, one at a time.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use dolmen_block_io::{Action, Command, Durability};
use dolmen_mutation::mutation;

use crate::LogCopy;
use crate::log::Core;
use crate::state::{Flight, FlightState, Hold, Phase, UnderWay};

enum Step {
    Begin,
    End,
}

/// Runs until the log is stopped or lost.
pub(crate) async fn run(core: Rc<Core>) {
    loop {
        provide_buffers(&core).await;
        match core.work.wait_for(|| next_step(&core)).await {
            Step::Begin => begin(&core),
            Step::End => break,
        }
        poll_fn(|cx| poll_flights(&core, cx)).await;
        complete(&core);
    }
    core.end();
}

/// Two buffers: one is collected into while the other is under way. They are taken once and used again.
async fn provide_buffers(core: &Core) {
    if core.state.borrow().collecting.buffer.is_none() {
        let buffer = core.take_buffer().await;
        core.state.borrow_mut().collecting.buffer = Some(buffer);
        core.state.borrow_mut().list_holes();
        core.wake_queues();
    }
    if core.state.borrow().spare.is_none() {
        let buffer = core.take_buffer().await;
        core.state.borrow_mut().spare = Some(buffer);
    }
}

fn next_step(core: &Core) -> Option<Step> {
    let state = core.state.borrow();
    let idle = !state.has_work();
    match state.phase {
        Phase::Lost => Some(Step::End),
        Phase::Stopping if idle => Some(Step::End),
        Phase::Stopping | Phase::Running => state.can_begin().then_some(Step::Begin),
    }
}

/// Seals the batch and gives it to every copy.
fn begin(core: &Core) {
    let mut state = core.state.borrow_mut();
    let state = &mut *state;
    let Some(batch) = state.seal() else { return };
    let through = batch.durable && !mutation!(DurableIsCached);
    let durability = if through { Durability::Durable } else { Durability::Cached };
    let at = state.ring.address(batch.live.position);
    let length = crate::format::size(batch.live.length);
    for copy in &state.copies {
        let action = Action::Write { at, from: batch.bytes.slice(0..length), durability };
        let submission = copy.device.submit(Command { token: state.token, within: None, action });
        state.flights.push(Flight { copy: copy.clone(), state: FlightState::Waiting(submission) });
    }
    let UnderWay { .. } = state.under_way.insert(batch);
    core.wake_queues();
}

/// Ready when every copy that is left has the batch, or the log is lost.
fn poll_flights(core: &Core, cx: &mut Context<'_>) -> Poll<()> {
    let mut state = core.state.borrow_mut();
    let state = &mut *state;
    match &mut state.writer {
        Some(waker) => waker.clone_from(cx.waker()),
        empty => *empty = Some(cx.waker().clone()),
    }
    let (mut waiting, mut failed) = (0, 0);
    for flight in &mut state.flights {
        if let FlightState::Waiting(submission) = &mut flight.state
            && let Poll::Ready(outcome) = Pin::new(submission).poll(cx)
        {
            flight.state = outcome.result.map_or_else(FlightState::Failed, |()| FlightState::Done);
            if let FlightState::Failed(_) = flight.state {
                core.trouble.notify_all();
            }
        }
        match flight.state {
            FlightState::Waiting(_) => waiting += 1,
            FlightState::Failed(_) => failed += 1,
            FlightState::Done => {}
        }
    }
    // A copy that came since was given the batch with the others. While an epoch is being changed, a new one may be about to save
    // what the old ones lost.
    let has_it_already = |copy: &LogCopy| !state.flights.iter().any(|flight| flight.copy.is(copy));
    let is_saved = state.copies.iter().any(has_it_already);
    if failed > 0 && failed == state.flights.len() && state.hold == Hold::Free && !is_saved {
        state.phase = Phase::Lost;
    }
    let one_has_it = state.flights.iter().any(|flight| matches!(flight.state, FlightState::Done));
    let done = (waiting == 0 && failed == 0) || (one_has_it && mutation!(OneVoterIsEnough));
    if done || state.phase == Phase::Lost { Poll::Ready(()) } else { Poll::Pending }
}

fn complete(core: &Core) {
    let lost = core.state.borrow().phase == Phase::Lost;
    if lost {
        return;
    }
    let done = core.state.borrow_mut().complete();
    if let Some(lsn) = done {
        core.notify_of(lsn).notify_all();
    }
}
