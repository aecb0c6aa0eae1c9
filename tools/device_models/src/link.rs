//! Links between hosts: what a message costs at its ends, on the wire, and behind other messages.
//!
//! The sender works on each message for a while, then its frames cross the wire one behind the other, framing included;
//! the receiver works on it once the last frame is there. The two directions do not disturb each other. With remote
//! direct memory access the hosts' processors do nothing; instead the adapter fetches what does not fit into the command
//! itself, and each frame crosses the bus of either host.
//!
//! Not modelled: lost frames, switches with more than one sender for a port, and congestion control.

use crate::device::{Server, earlier};
use crate::error::{ParameterError, within};
use crate::time::{Time, mul_div, span_ns};
use std::collections::VecDeque;

/// A link and the adapters at its ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkParameters {
    /// The wire, in bits a second, each way.
    pub bits_per_second: u64,
    /// What one frame carries, in bytes.
    pub frame_payload_bytes: u64,
    /// What one frame needs beside it, in bytes: headers, checksum, preamble and gap.
    pub frame_overhead_bytes: u64,
    /// From one adapter to the other, for the shortest message, in nanoseconds.
    pub latency_ns: u64,
    /// What a host works for each message that it sends, in nanoseconds, one after another.
    pub send_ns: u64,
    /// What a host works for each message that it receives, in nanoseconds, one after another.
    pub receive_ns: u64,
    /// What the adapter needs to begin fetching a message from memory, in nanoseconds.
    pub fetch_ns: u64,
    /// Messages up to here travel inside the command, in bytes, and are not fetched.
    pub inline_bytes: u64,
    /// The bus of each host, in bytes a second.
    pub bus_bytes_per_second: u64,
}

impl LinkParameters {
    /// What messages of any length carry at most in a second, in bytes.
    #[must_use]
    pub fn payload_bytes_per_second(&self) -> u64 {
        let frame = self.frame_payload_bytes.saturating_add(self.frame_overhead_bytes);
        mul_div(self.bits_per_second / 8, self.frame_payload_bytes, frame)
    }

    fn check(&self) -> Result<(), ParameterError> {
        within("bits_per_second", self.bits_per_second, 1_000_000, 1 << 50)?;
        within("frame_payload_bytes", self.frame_payload_bytes, 1, 1 << 20)?;
        within("frame_overhead_bytes", self.frame_overhead_bytes, 0, 1 << 16)?;
        within("latency_ns", self.latency_ns, 0, 10_000_000_000)?;
        within("send_ns", self.send_ns, 0, 1_000_000_000)?;
        within("receive_ns", self.receive_ns, 0, 1_000_000_000)?;
        within("fetch_ns", self.fetch_ns, 0, 1_000_000_000)?;
        within("bus_bytes_per_second", self.bus_bytes_per_second, 1_000_000, 1 << 50)
    }

    /// How long a message occupies the wire.
    fn wire_ns(&self, bytes: u64) -> u64 {
        let frames = bytes.div_ceil(self.frame_payload_bytes).max(1);
        let carried = bytes.saturating_add(frames.saturating_mul(self.frame_overhead_bytes));
        span_ns(carried.saturating_mul(8), self.bits_per_second)
    }
}

/// Which way a message goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Direction {
    /// From the first host to the second.
    There,
    /// From the second host to the first.
    Back,
}

/// A message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message {
    /// Which way.
    pub direction: Direction,
    /// How long, in bytes.
    pub bytes: u64,
}

/// A message that has arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delivery {
    /// Counted over both directions, in the order of sending.
    pub number: u64,
    /// What it was.
    pub message: Message,
    /// When it was sent.
    pub sent: Time,
    /// When the receiver had it.
    pub received: Time,
}

/// Why a message is not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// Virtual time only goes forward.
    #[error("a message was sent at {now}, but the link was already asked about {latest}")]
    TimeWentBack {
        /// The time of the call.
        now: Time,
        /// The latest time of an earlier call.
        latest: Time,
    },
}

#[derive(Debug, Clone, Default)]
struct Lane {
    sender: Server,
    wire: Server,
    receiver: Server,
    /// In the order of arrival, which is that of sending.
    arriving: VecDeque<Delivery>,
}

/// A link in virtual time. It draws nothing at random.
#[derive(Debug, Clone)]
pub struct Link {
    parameters: LinkParameters,
    clock: Time,
    sent: u64,
    there: Lane,
    back: Lane,
}

impl Link {
    /// A link without traffic.
    ///
    /// # Errors
    /// When a parameter describes no link.
    pub fn new(parameters: LinkParameters) -> Result<Self, ParameterError> {
        parameters.check()?;
        Ok(Self { parameters, clock: Time::ZERO, sent: 0, there: Lane::default(), back: Lane::default() })
    }

    /// What it is made of.
    #[must_use]
    pub const fn parameters(&self) -> &LinkParameters {
        &self.parameters
    }

    /// Sends a message, and says its number.
    ///
    /// # Errors
    /// When the clock went back. Nothing is sent then.
    pub fn send(&mut self, now: Time, message: Message) -> Result<u64, SendError> {
        if now < self.clock {
            return Err(SendError::TimeWentBack { now, latest: self.clock });
        }
        self.clock = now;
        let number = self.sent;
        self.sent += 1;
        let parameters = self.parameters;
        let lane = match message.direction {
            Direction::There => &mut self.there,
            Direction::Back => &mut self.back,
        };
        let handed = lane.sender.serve(now, parameters.send_ns);
        let first = message.bytes.min(parameters.frame_payload_bytes);
        // The first frame waits for the fetch and the sender's bus, the last one for the receiver's.
        let (fetch_ns, bus_ns) = if message.bytes > parameters.inline_bytes {
            (parameters.fetch_ns, span_ns(first, parameters.bus_bytes_per_second))
        } else {
            (0, 0)
        };
        let crossed = lane.wire.serve(handed.after(fetch_ns + bus_ns), parameters.wire_ns(message.bytes));
        let there = crossed.after(parameters.latency_ns + bus_ns);
        let received = lane.receiver.serve(there, parameters.receive_ns);
        lane.arriving.push_back(Delivery { number, message, sent: now, received });
        Ok(number)
    }

    /// When the next message arrives.
    #[must_use]
    pub fn next_event(&self) -> Option<Time> {
        let first = |lane: &Lane| lane.arriving.front().map(|delivery| delivery.received);
        earlier(first(&self.there), first(&self.back))
    }

    /// The next message that arrived at `now` or before, in the order of arrival.
    pub fn poll(&mut self, now: Time) -> Option<Delivery> {
        self.clock = self.clock.max(now);
        let key = |lane: &Lane| lane.arriving.front().map(|delivery| (delivery.received, delivery.number));
        let lane = match (key(&self.there), key(&self.back)) {
            (Some(there), Some(back)) if back < there => &mut self.back,
            (None, _) => &mut self.back,
            (Some(_), _) => &mut self.there,
        };
        lane.arriving.pop_front_if(|delivery| delivery.received <= now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::SECOND_NS;

    const GIGABIT: LinkParameters = LinkParameters {
        bits_per_second: 1_000_000_000,
        frame_payload_bytes: 1_448,
        frame_overhead_bytes: 90,
        latency_ns: 20_000,
        send_ns: 3_000,
        receive_ns: 3_000,
        fetch_ns: 0,
        inline_bytes: u64::MAX,
        bus_bytes_per_second: 1_000_000_000,
    };

    /// Keeps so many messages under way for a second; bytes received in that second, and the mean time of a message.
    fn flood(parameters: LinkParameters, bytes: u64, depth: usize) -> (u64, u64) {
        let mut link = Link::new(parameters).unwrap();
        let message = Message { direction: Direction::There, bytes };
        for _ in 0..depth {
            link.send(Time::ZERO, message).unwrap();
        }
        let (mut received, mut count, mut spent) = (0, 0, 0);
        while let Some(now) = link.next_event().filter(|now| now.ns() < SECOND_NS) {
            let delivery = link.poll(now).unwrap();
            received += delivery.message.bytes;
            count += 1;
            spent += delivery.received.since(delivery.sent);
            link.send(now, message).unwrap();
        }
        (received, spent / count)
    }

    #[test]
    fn a_gigabit_carries_what_its_frames_leave() {
        // A thousand million bits a second and frames of 1,538 bytes for 1,448 leave 117.7 MB/s.
        assert_eq!(GIGABIT.payload_bytes_per_second() / 100_000, 1_176);
        for bytes in [65_536, 1 << 20] {
            let (received, _) = flood(GIGABIT, bytes, 16);
            let most = GIGABIT.payload_bytes_per_second();
            assert!(received <= most && received * 100 > most * 97, "{received} of {most}");
        }
    }

    #[test]
    fn one_message_at_a_time_costs_all_of_its_parts() {
        let (_, mean) = flood(GIGABIT, 1_448, 1);
        assert_eq!(mean, 3_000 + 12_304 + 20_000 + 3_000);
    }

    #[test]
    fn more_messages_under_way_never_carry_less() {
        let carried: Vec<u64> =
            [1, 2, 4, 8, 16, 32].iter().map(|depth| flood(GIGABIT, 4_096, *depth).0).collect();
        assert!(carried.is_sorted(), "{carried:?}");
    }

    #[test]
    fn the_two_directions_do_not_disturb_each_other() {
        let mut link = Link::new(GIGABIT).unwrap();
        for direction in [Direction::There, Direction::Back] {
            link.send(Time::ZERO, Message { direction, bytes: 1 << 20 }).unwrap();
        }
        let first = link.poll(Time::from_ns(SECOND_NS)).unwrap();
        let second = link.poll(Time::from_ns(SECOND_NS)).unwrap();
        assert_eq!(first.received, second.received);
        assert_eq!((first.number, second.number), (0, 1));
    }

    #[test]
    fn nonsense_names_its_field() {
        let wrong = LinkParameters { frame_payload_bytes: 0, ..GIGABIT };
        assert_eq!(Link::new(wrong).unwrap_err().field, "frame_payload_bytes");
        let mut link = Link::new(GIGABIT).unwrap();
        assert_eq!(link.poll(Time::from_ns(9)), None);
        let message = Message { direction: Direction::There, bytes: 1 };
        assert!(link.send(Time::from_ns(8), message).unwrap_err().to_string().contains("already asked"));
    }
}
