//! A completion lane: completion queues, and the channel on which they announce completions.
//!
//! Promises: queues go before their channel; a queue that stays keeps the channel, the protection domain and the device, and
//! nothing else; the others are released. Does not do: taking completions apart.

use std::fmt;

use lockgate::custody::{Domain, Held, Identity, Native, Owner, Receipt, Unreleased};
use lockgate::{Error, ErrorKind};
use lockgate_verbs_shim::{ChannelHandle, Completion, CqHandle, CqOptions, Errno};

use super::{Context, ProtectionDomain, admit, charge, failed};
use crate::ibverbs::limits::{Beyond, fit_completion_queue, memory_error};
use crate::ibverbs::native::{self, core_errno};

/// The bytes that one entry of a queue is charged: the size of the common drivers' entries.
const ENTRY: u64 = 64;

/// What a lane is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneOptions {
    /// One queue of at least so many entries for each number.
    pub entries: Vec<u32>,
    /// With a channel that announces completions.
    pub events: bool,
    /// What to do with more entries than the device can.
    pub beyond: Beyond,
}

impl LaneOptions {
    /// One queue without events; more entries than the device has are refused.
    #[must_use]
    pub fn one(entries: u32) -> Self {
        Self {
            entries: vec![entries],
            events: false,
            beyond: Beyond::Refuse,
        }
    }
}

/// Completion queues with their channel.
#[derive(Debug)]
pub struct CqLane {
    // The order is that of a quiet drop: queues first.
    queues: Vec<Owner<native::Cq>>,
    channel: Option<Owner<native::Channel>>,
}

impl CqLane {
    /// Makes a lane for queue pairs of a protection domain.
    ///
    /// # Errors
    /// The step that failed; what was made before it is released.
    pub fn create(
        domain: &Domain,
        context: &Context,
        pd: &ProtectionDomain,
        options: &LaneOptions,
    ) -> Result<Self, Error> {
        const CHANNEL: &str = "create completion channel";
        const QUEUE: &str = "create completion queue";
        context.facts().check_process(QUEUE)?;
        let mut lane = Self {
            queues: Vec::with_capacity(options.entries.len()),
            channel: None,
        };
        if options.events {
            let admission = admit(domain, CHANNEL)?;
            let channel = native::Channel::create(context.owner.native())
                .map_err(|errno| failed(CHANNEL, errno))?;
            let parents = vec![context.hold()];
            lane.channel = Some(admission.own(channel, parents, lockgate::custody::Charge::none()));
        }
        for &asked in &options.entries {
            let mut entries = asked;
            fit_completion_queue(context.attributes(), &mut entries, options.beyond)?;
            let admission = admit(domain, QUEUE)?;
            let bytes = u64::from(entries) * ENTRY;
            let charge = charge(domain, QUEUE, bytes)?;
            let wanted = CqOptions {
                entries,
                token: lane.queues.len() as u64,
                ..CqOptions::default()
            };
            let channel = lane.channel.as_ref().map(Owner::native);
            let queue = native::Cq::create(context.owner.native(), channel, wanted)
                .map_err(|errno| memory_error(QUEUE, core_errno(errno), bytes))?;
            let mut parents = vec![context.hold(), pd.hold()];
            parents.extend(lane.channel.as_ref().map(Owner::hold));
            let mut queue = admission.own(queue, parents, charge);
            // Drivers give more entries than were asked for.
            if let Ok(info) = queue.native().info() {
                let _ = queue.raise_charge(u64::from(info.cqe) * ENTRY);
            }
            lane.queues.push(queue);
        }
        Ok(lane)
    }

    /// How many queues it has.
    #[must_use]
    pub fn queues(&self) -> usize {
        self.queues.len()
    }

    /// Which native objects they are, queues first.
    pub fn identities(&self) -> impl Iterator<Item = &Identity> {
        let queues = self.queues.iter().map(Owner::identity);
        queues.chain(self.channel.iter().map(Owner::identity))
    }

    /// Takes completions of one queue; gives how many. The caller has seen that this is not a forked child.
    ///
    /// # Errors
    /// `EIO`: the queue is broken. `EINVAL`: there is no such queue.
    #[inline]
    pub fn poll(&self, queue: usize, into: &mut [Completion]) -> Result<usize, lockgate::Errno> {
        let Some(queue) = self.queues.get(queue) else {
            return Err(lockgate::Errno::INVAL);
        };
        let queue = queue.native();
        if !queue.facts().mark.is_home() {
            return Err(lockgate::Errno::from_raw(libc::ECHILD));
        }
        queue.poll(into).map_err(core_errno)
    }

    /// Asks one queue for one event at its next completion.
    ///
    /// # Errors
    /// The driver's number.
    pub fn notify(&self, queue: usize) -> Result<(), Error> {
        const STEP: &str = "ask for event";
        let native = self.queue(queue, STEP)?.native();
        native.facts().check_process(STEP)?;
        native.notify(false).map_err(|errno| failed(STEP, errno))
    }

    /// Waits for the next event and gives the queue that it is of. Blocks.
    ///
    /// # Errors
    /// The kernel's number; none is ever announced on a lane without events.
    pub fn wait(&self) -> Result<usize, Error> {
        const STEP: &str = "wait for event";
        let Some(channel) = &self.channel else {
            return Err(Error::new(ErrorKind::Capability, STEP)
                .with_detail("the lane was made without events"));
        };
        channel.native().facts().check_process(STEP)?;
        let (_, token) = channel
            .native()
            .event()
            .map_err(|errno| failed(STEP, errno))?;
        let at = usize::try_from(token).unwrap_or(usize::MAX);
        let queue = self.queue(at, STEP)?;
        queue
            .native()
            .acknowledge_one()
            .map_err(|errno| failed(STEP, errno))?;
        Ok(at)
    }

    /// Keeps one queue, and so the whole lane.
    ///
    /// # Errors
    /// There is no such queue.
    pub fn hold(&self, queue: usize) -> Result<std::sync::Arc<Held>, Error> {
        Ok(self.queue(queue, "hold queue")?.hold())
    }

    pub(super) fn queue(
        &self,
        queue: usize,
        step: &'static str,
    ) -> Result<&Owner<native::Cq>, Error> {
        self.queues.get(queue).ok_or_else(|| {
            failed(step, Errno::INVALID)
                .with_object(format!("queue {queue}"))
                .with_detail(format!("the lane has {}", self.queues.len()))
        })
    }

    /// The channel's bare handle; every call on it is `unsafe`, and its caller's to answer for.
    #[must_use]
    pub fn bare_channel(&self) -> Option<ChannelHandle> {
        self.channel
            .as_ref()
            .map(|channel| channel.native().handle())
    }

    /// A queue's bare handle; every call on it is `unsafe`, and its caller's to answer for.
    #[must_use]
    pub fn bare_queue(&self, queue: usize) -> Option<CqHandle> {
        self.queues.get(queue).map(|queue| queue.native().handle())
    }

    /// Closes the queues and then the channel, each with its one native call.
    ///
    /// # Errors
    /// What is left, with the receipts of what was released.
    pub fn close(self) -> Result<LaneReceipts, Box<LaneUnreleased>> {
        let mut receipts = Vec::new();
        let mut queues = Vec::new();
        for queue in self.queues {
            match queue.close() {
                Ok(receipt) => receipts.push(receipt),
                Err(unreleased) => queues.push(unreleased),
            }
        }
        let channel = match self.channel.map(Owner::close) {
            None => None,
            Some(Ok(receipt)) => {
                receipts.push(receipt);
                None
            }
            Some(Err(unreleased)) => Some(unreleased),
        };
        if queues.is_empty() && channel.is_none() {
            return Ok(LaneReceipts(receipts));
        }
        Err(Box::new(LaneUnreleased {
            receipts,
            queues,
            channel,
        }))
    }
}

/// The receipts of a lane: those of its queues, then that of its channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneReceipts(pub Vec<Receipt>);

/// A lane of which something was not released. Dropping it moves that to the quarantine, queues first.
#[derive(Debug)]
pub struct LaneUnreleased {
    /// What was released.
    pub receipts: Vec<Receipt>,
    /// The queues that were not.
    pub queues: Vec<Unreleased<native::Cq>>,
    /// The channel, if it was not.
    pub channel: Option<Unreleased<native::Channel>>,
}

impl fmt::Display for LaneUnreleased {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fn each<N: Native>(
            f: &mut fmt::Formatter<'_>,
            first: &mut bool,
            one: &Unreleased<N>,
        ) -> fmt::Result {
            if !std::mem::take(first) {
                f.write_str("; ")?;
            }
            write!(f, "{one}")
        }
        let mut first = true;
        for queue in &self.queues {
            each(f, &mut first, queue)?;
        }
        if let Some(channel) = &self.channel {
            each(f, &mut first, channel)?;
        }
        Ok(())
    }
}

impl std::error::Error for LaneUnreleased {}
