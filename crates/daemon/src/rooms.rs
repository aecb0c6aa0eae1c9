//! Room that spaces can still take: computed on a thread of its own, kept as long as the pool is what it was, and shared by all
//! who ask at the same time.
//!
//! How much room a space has is what the placer reaches on the free allocation units of all disks: a simulated filling of the pool,
//! tens of milliseconds with a hundred disks. Clients would wait for each of these if the engine's thread computed them. A question
//! takes the offers of the disks once, as plain data; each kind of row is computed once for them, however many spaces have such
//! rows.
//!
//! Invariant: what is known is known of exactly these offers. A question that finds others computes again.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use dolmen_block_io::sync::Notify;
use dolmen_placement::{Offer, Placer, Request};
use dolmen_space::{SpaceSpec, slab_units};
use dolmen_units::Bytes;

use crate::io_worker::IoWorker;

/// Results that are kept, at most.
const KNOWN_MAX: usize = 256;

thread_local! {
    /// Rooms of the engine on this thread; none in unit tests.
    static OF_ENGINE: RefCell<Option<Rc<Rooms>>> = const { RefCell::new(None) };
    /// Simulated fillings on this thread.
    static FILLINGS: Cell<u64> = const { Cell::new(0) };
}

/// Returns the number of simulated fillings on this thread so far.
pub(crate) fn fillings_here() -> u64 {
    FILLINGS.get()
}

/// Kind of rows, as far as the placer asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Kind {
    request: Request,
    interleave: Bytes,
    parity: u32,
}

impl Kind {
    fn of(spec: &SpaceSpec) -> Option<Self> {
        let request = spec.check().ok()?;
        let parity = u32::from(spec.resiliency.parity_columns());
        Some(Self { request, interleave: spec.interleave, parity })
    }

    fn fill(self, offers: &[Offer]) -> Bytes {
        FILLINGS.set(FILLINGS.get() + 1);
        Placer::new(self.request, slab_units(self.interleave, self.parity)).usable(offers).data
    }
}

/// A result, or one that is being computed.
struct Known {
    kind: Kind,
    offers: Rc<[Offer]>,
    /// None while it is being computed.
    data: Option<Bytes>,
}

/// What is known of room.
pub(crate) struct Rooms {
    worker: Rc<IoWorker>,
    /// The one that was asked for last is last.
    known: RefCell<Vec<Known>>,
    notify: Notify,
    computed: Cell<u64>,
}

/// A computation whose requester still waits.
struct UnderWay<'a> {
    rooms: &'a Rooms,
    kind: Kind,
    offers: Rc<[Offer]>,
    is_abandoned: Arc<AtomicBool>,
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        // Of one that has ended, nothing is left to be taken away.
        self.is_abandoned.store(true, Ordering::Relaxed);
        let is_this = |one: &Known| one.kind == self.kind && one.offers == self.offers;
        self.rooms.known.borrow_mut().retain(|one| one.data.is_some() || !is_this(one));
        self.rooms.notify.notify_all();
    }
}

impl Rooms {
    pub(crate) fn new(worker: Rc<IoWorker>) -> Rc<Self> {
        let (known, notify, computed) = (RefCell::default(), Notify::new(), Cell::default());
        Rc::new(Self { worker, known, notify, computed })
    }

    /// Makes it the one that this thread asks.
    pub(crate) fn serve_this_thread(self: &Rc<Self>) {
        OF_ENGINE.set(Some(Rc::clone(self)));
    }

    fn find(&self, kind: Kind, offers: &[Offer]) -> Option<Option<Bytes>> {
        let mut known = self.known.borrow_mut();
        let at = known.iter().position(|one| one.kind == kind && *one.offers == *offers)?;
        let found = known.remove(at);
        let data = found.data;
        known.push(found);
        Some(data)
    }

    fn forget_oldest(&self) {
        let mut known = self.known.borrow_mut();
        let surplus = known.len().saturating_sub(KNOWN_MAX);
        let mut left = surplus;
        known.retain(|one| {
            let goes = left > 0 && one.data.is_some();
            left -= usize::from(goes);
            !goes
        });
    }

    /// Returns what the placer reaches on these offers, computed on the other thread unless it is known. Whoever asks for the same
    /// meanwhile waits for that; what nobody waits for any more is not computed.
    async fn filled(&self, kind: Kind, offers: &Rc<[Offer]>) -> Bytes {
        loop {
            let changed = self.notify.wait();
            match self.find(kind, offers) {
                Some(Some(data)) => return data,
                Some(None) => changed.await,
                None => break,
            }
        }
        self.known.borrow_mut().push(Known { kind, offers: Rc::clone(offers), data: None });
        let is_abandoned = Arc::new(AtomicBool::new(false));
        let under_way = UnderWay {
            rooms: self,
            kind,
            offers: Rc::clone(offers),
            is_abandoned: Arc::clone(&is_abandoned),
        };
        let plain = offers.to_vec();
        let computed = self.worker.run(move || {
            let is_wanted = !is_abandoned.load(Ordering::Relaxed);
            Ok(if is_wanted { kind.fill(&plain) } else { Bytes::ZERO })
        });
        // The worker takes no more while too much waits, and as little at the end of the daemon.
        let data = computed.await.unwrap_or_else(|_| kind.fill(offers));
        self.computed.set(self.computed.get() + 1);
        if let Some(one) =
            self.known.borrow_mut().iter_mut().find(|one| one.kind == kind && one.offers == *offers)
        {
            one.data = Some(data);
        }
        drop(under_way);
        self.forget_oldest();
        data
    }
}

/// Returns what a space with such rows could take on these disks, without a filling on the engine's thread.
pub(crate) async fn usable_for(offers: &Rc<[Offer]>, spec: &SpaceSpec) -> Bytes {
    let Some(kind) = Kind::of(spec) else { return Bytes::ZERO };
    let rooms = OF_ENGINE.with_borrow(Clone::clone);
    match rooms {
        Some(rooms) => rooms.filled(kind, offers).await,
        None => kind.fill(offers),
    }
}

/// Returns the same at once: from what is known, else by a filling on this thread.
pub(crate) fn usable_now(offers: &[Offer], spec: &SpaceSpec) -> Bytes {
    let Some(kind) = Kind::of(spec) else { return Bytes::ZERO };
    let rooms = OF_ENGINE.with_borrow(Clone::clone);
    let known = rooms.and_then(|rooms| rooms.find(kind, offers)).flatten();
    known.unwrap_or_else(|| kind.fill(offers))
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::Pin;
    use std::task::{Context, Poll, Waker};

    use dolmen_disk::Extent;
    use dolmen_space::Resiliency;

    use super::*;
    use crate::plan::offer_of;

    fn offers(count: u16) -> Rc<[Offer]> {
        let extent = Extent::of(Bytes::gib(40)).unwrap();
        (0..count).map(|slot| offer_of(slot, &extent, 0)).collect()
    }

    fn spec(copies: u8, size: Bytes) -> SpaceSpec {
        SpaceSpec::usual("x".parse().unwrap(), size, Resiliency::Mirror { copies })
    }

    fn poll<T>(future: &mut Pin<Box<dyn Future<Output = T> + '_>>) -> Option<T> {
        match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(value) => Some(value),
            Poll::Pending => None,
        }
    }

    fn ended<T>(mut future: Pin<Box<dyn Future<Output = T> + '_>>) -> T {
        loop {
            if let Some(value) = poll(&mut future) {
                return value;
            }
            std::thread::yield_now();
        }
    }

    fn served() -> Rc<Rooms> {
        let rooms = Rooms::new(Rc::new(IoWorker::start("rooms").unwrap()));
        rooms.serve_this_thread();
        rooms
    }

    /// Scenario: forty spaces of two kinds of rows are asked for, by four requests at once, and once more later; then an allocation
    /// unit is claimed. Each kind is computed once for each state of the disks, on the other thread, and says what a filling here
    /// says.
    #[test]
    fn each_kind_of_rows_is_computed_once_for_all_spaces_and_askers_and_never_here() {
        let rooms = served();
        let offers = offers(12);
        let specs: Vec<SpaceSpec> = (0..40).map(|one| spec(2 + one % 2, Bytes::gib(1))).collect();
        let ask = |offers: Rc<[Offer]>| {
            let specs = specs.clone();
            async move {
                let mut found = Vec::new();
                for spec in &specs {
                    found.push(usable_for(&offers, spec).await);
                }
                found
            }
        };
        let mut requests: Vec<Pin<Box<dyn Future<Output = _>>>> = Vec::new();
        for _ in 0..4 {
            requests.push(Box::pin(ask(Rc::clone(&offers))));
        }
        let mut answers = Vec::new();
        while !requests.is_empty() {
            requests.retain_mut(|request| poll(request).map(|answer| answers.push(answer)).is_none());
        }
        assert_eq!((rooms.computed.get(), fillings_here()), (2, 0));
        let expected: Vec<Bytes> = specs.iter().map(|spec| Kind::of(spec).unwrap().fill(&offers)).collect();
        assert!(answers.iter().all(|answer| *answer == expected));
        assert_eq!(ended(Box::pin(ask(Rc::clone(&offers)))), expected);
        assert_eq!(rooms.computed.get(), 2);
        let mut fewer = offers.to_vec();
        fewer[0].free_units -= 1;
        ended(Box::pin(ask(fewer.into())));
        assert_eq!((rooms.computed.get(), fillings_here()), (4, 40));
    }

    /// Scenario: one of two requests of the same goes before it is computed, and then both of another. The one that stays is answered;
    /// what nobody waits for is not computed, and can be asked for again.
    #[test]
    fn what_nobody_waits_for_is_abandoned_and_others_are_answered() {
        let rooms = served();
        let gate = Arc::new(std::sync::Barrier::new(2));
        let closed = Arc::clone(&gate);
        let held = rooms.worker.run(move || {
            closed.wait();
            Ok(())
        });
        let (two, three) = (spec(2, Bytes::gib(1)), spec(3, Bytes::gib(1)));
        let offers = offers(6);
        let ask = |spec: &SpaceSpec| -> Pin<Box<dyn Future<Output = Bytes>>> {
            let (offers, spec) = (Rc::clone(&offers), spec.clone());
            Box::pin(async move { usable_for(&offers, &spec).await })
        };
        let (mut goes, mut stays) = (ask(&two), ask(&two));
        let mut others = [ask(&three), ask(&three)];
        assert!(poll(&mut goes).is_none() && poll(&mut stays).is_none());
        assert!(others.iter_mut().all(|other| poll(other).is_none()));
        drop((goes, others));
        gate.wait();
        ended(Box::pin(held)).unwrap();
        assert_eq!(ended(stays), Kind::of(&two).unwrap().fill(&offers));
        assert_eq!(rooms.computed.get(), 1);
        assert_eq!(ended(ask(&three)), Kind::of(&three).unwrap().fill(&offers));
    }

    /// Scenario: more is asked for than is kept. What was asked for last stays, and nothing grows.
    #[test]
    fn what_is_kept_is_bounded() {
        let rooms = served();
        let mut offers = offers(3).to_vec();
        let last = spec(2, Bytes::gib(1));
        for _ in 0..KNOWN_MAX + 20 {
            offers[0].free_units -= 1;
            let these: Rc<[Offer]> = offers.clone().into();
            ended(Box::pin(usable_for(&these, &last)));
        }
        assert_eq!(rooms.known.borrow().len(), KNOWN_MAX);
        let here = fillings_here();
        usable_now(&offers, &last);
        assert_eq!(fillings_here(), here);
    }
}
