//! Every scene in all of its orders, or in many that are drawn.

use dolmen_interleavings::{orders, weak};

/// Orders that are drawn where there are too many to run them all.
const DRAWN: usize = 20_000;

#[test]
fn a_slot_is_one_threads_at_a_time_and_nobody_waits_for_ever() {
    shuttle::check_random(orders::share_a_slot, DRAWN);
    shuttle::check_pct(orders::share_a_slot, DRAWN, 3);
}

#[test]
fn whoever_waits_for_a_slot_is_sent_away_when_they_are_closed() {
    shuttle::check_dfs(orders::close_slots, None);
}

#[test]
fn no_result_is_left_to_a_thread_that_sleeps() {
    shuttle::check_dfs(orders::post_and_sleep, None);
}

#[test]
fn no_message_is_left_to_a_runtime_that_rests() {
    shuttle::check_dfs(orders::post_and_rest, None);
}

#[test]
fn a_task_that_is_woken_sees_why_or_runs_again() {
    weak::wake_a_task();
}

/// A control: the model finds who waits for ever.
#[test]
#[should_panic(expected = "deadlock")]
fn slots_that_ask_who_waits_first_leave_somebody_waiting() {
    shuttle::check_dfs(orders::ask_who_waits_first, None);
}

/// A control: the model finds the wake-up that is lost.
#[test]
#[should_panic(expected = "woken in vain")]
fn a_poll_that_begins_with_a_store_loses_a_wake_up() {
    weak::begin_with_a_store();
}
