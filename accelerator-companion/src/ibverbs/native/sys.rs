//! The calls on native objects.
//!
//! Promises: a method is called on a live handle only. A value is made with a live handle; custody releases it through
//! [`Native::release`], which needs the value for itself, and holds its parents until then; after the release, and after a failure
//! that may have released it, no method uses the handle. Does not do: anything that custody or the owners do.
#![allow(unsafe_code)]

use std::sync::Arc;

use lockgate::Errno;
use lockgate::custody::{Alive, Evidence, Identity, Native, Release};
use lockgate_verbs_shim::{
    self as shim, AsyncEvent, ChannelHandle, Completion, ContextHandle, ContextInfo, CqHandle,
    CqOptions, DeviceAttributes, FlowHandle, FlowRule, GidEntry, MrHandle, MrInfo, MrOptions,
    MwHandle, MwInfo, Partial, PdHandle, PortAttributes, QpAttributes, QpHandle, QpInfo, QpOptions,
    QpState, RecvRequest, SendRequest, WindowType, qp_fields,
};

use super::{Facts, Proof, Standing, receipt, settle};

/// What a call in a child of the opening process would be refused with: no child of that process has a device.
const ECHILD: Errno = Errno::from_raw(10);
/// What a call with a handle that is gone is refused with.
const GONE: Errno = Errno::from_raw(9);

/// Defines a thin handle with its one release call.
macro_rules! native {
    (
        $(#[$doc:meta])*
        $name:ident($handle:ty) $kind:literal, $call:literal = $destroy:path, $proof:expr
    ) => {
        $(#[$doc])*
        ///
        /// Made and used by the owners; from outside only what custody asks can be asked of it.
        #[derive(Debug)]
        pub struct $name {
            handle: $handle,
            facts: Arc<Facts>,
            numbers: Vec<(&'static str, u64)>,
            standing: Standing,
        }

        impl $name {
            fn made(handle: $handle, facts: &Arc<Facts>) -> Self {
                Self {
                    handle,
                    facts: Arc::clone(facts),
                    numbers: vec![("address", handle.address())],
                    standing: Standing::Live,
                }
            }

            #[allow(dead_code, reason = "not every kind has children")]
            pub(crate) fn facts(&self) -> &Arc<Facts> {
                &self.facts
            }

            /// The bare handle, for calls that are the caller's to answer for.
            #[allow(dead_code, reason = "nothing is done with a bare flow")]
            pub(crate) fn handle(&self) -> $handle {
                self.handle
            }
        }

        impl Native for $name {
            fn identity(&self) -> Identity {
                self.facts.identity($kind, &self.numbers)
            }

            fn release(&mut self) -> Release {
                if !self.facts.mark.is_home() {
                    return Release::NothingDone(ECHILD);
                }
                if self.standing != Standing::Live {
                    return Release::Ambiguous(GONE);
                }
                // SAFETY:
                // - The handle is live: it was when the value was made, and no release has succeeded or may have.
                // - No other call on it runs, since the value is borrowed for this one alone.
                let answer = unsafe { $destroy(self.handle) };
                let facts = &self.facts;
                let numbers = &self.numbers;
                settle(answer, $proof, &mut self.standing, || {
                    receipt(facts, facts.identity($kind, numbers), $call)
                })
            }

            fn release_call(&self) -> &'static str {
                $call
            }

            fn evidence(&self) -> Evidence {
                if !self.facts.mark.is_home() {
                    return Evidence::new(Alive::Unknown, "asked in a child of the process that opened the device");
                }
                self.ask()
            }
        }
    };
}

native! {
    /// An open device.
    Context(ContextHandle) "device", "ibv_close_device" = ContextHandle::close, Proof::Nothing
}
native! {
    /// A protection domain.
    Pd(PdHandle) "PD", "ibv_dealloc_pd" = PdHandle::deallocate, Proof::Busy
}
native! {
    /// A completion channel.
    Channel(ChannelHandle) "completion channel", "ibv_destroy_comp_channel" = ChannelHandle::destroy, Proof::Busy
}
native! {
    /// A completion queue.
    Cq(CqHandle) "CQ", "ibv_destroy_cq" = CqHandle::destroy, Proof::Busy
}
native! {
    /// A queue pair.
    Qp(QpHandle) "QP", "ibv_destroy_qp" = QpHandle::destroy, Proof::Busy
}
native! {
    /// A memory region.
    Mr(MrHandle) "MR", "ibv_dereg_mr" = MrHandle::deregister, Proof::Busy
}
native! {
    /// A memory window.
    Mw(MwHandle) "MW", "ibv_dealloc_mw" = MwHandle::deallocate, Proof::Nothing
}
native! {
    /// A rule that steers packets.
    Flow(FlowHandle) "flow", "ibv_destroy_flow" = FlowHandle::destroy, Proof::Nothing
}

/// A shim call on the live handle of `self`, whose only conditions are that it and what it refers to are live.
macro_rules! live {
    ($($(#[$doc:meta])* $vis:vis $name:ident($($arg:ident: $kind:ty),*) -> $result:ty = $call:path),+ $(,)?) => {$(
        $(#[$doc])*
        $vis fn $name(&self, $($arg: $kind),*) -> Result<$result, shim::Errno> {
            // SAFETY:
            // - The handle is live: a value that an owner shares has not been released.
            unsafe { $call(self.handle, $($arg),*) }
        }
    )+};
}

impl Context {
    /// Takes an open device. Its event descriptor doesn't block from here on.
    pub(crate) fn new(handle: ContextHandle, facts: &Arc<Facts>) -> Self {
        let mut context = Self::made(handle, facts);
        if let Ok(info) = context.info() {
            let descriptor = u64::from(info.cmd_fd.unsigned_abs());
            context.numbers.push(("command descriptor", descriptor));
            set_nonblocking(info.async_fd);
        }
        context
    }

    live! {
        pub(crate) info() -> ContextInfo = ContextHandle::info,
        pub(crate) attributes() -> DeviceAttributes = ContextHandle::attributes,
        pub(crate) port(port: u8) -> PortAttributes = ContextHandle::port,
        pub(crate) gid(port: u8, index: u32) -> GidEntry = ContextHandle::gid,
        pub(crate) async_event() -> AsyncEvent = ContextHandle::async_event,
    }

    fn ask(&self) -> Evidence {
        match self.standing {
            Standing::Live => match self.attributes() {
                Ok(_) => Evidence::new(Alive::Yes, "ibv_query_device_ex answers"),
                Err(errno) => unproven("ibv_query_device_ex", errno),
            },
            // The library frees the context also where a driver's close fails, so its address proves and allows nothing.
            standing => settled(standing),
        }
    }
}

/// Acknowledges an event right after it was taken.
pub(crate) fn acknowledge(event: AsyncEvent) -> Result<(), shim::Errno> {
    // SAFETY:
    // - The object of the event is live: its destroy call waits until all its events are acknowledged.
    unsafe { event.acknowledge() }
}

fn set_nonblocking(descriptor: i32) {
    // SAFETY:
    // - Changes a flag of a descriptor that the open device owns.
    // - A failure leaves it blocking, and nobody reads it without a poll before.
    let _ = unsafe { libc::fcntl(descriptor, libc::F_SETFL, libc::O_NONBLOCK) };
}

impl Pd {
    pub(crate) fn allocate(context: &Context) -> Result<Self, shim::Errno> {
        // SAFETY:
        // - The context is live, and the owner holds it until this is deallocated.
        let handle = unsafe { PdHandle::allocate(context.handle) }?;
        let mut pd = Self::made(handle, &context.facts);
        // A number is for reports only: without it the object is the same.
        if let Ok(number) = pd.kernel_handle() {
            pd.numbers.push(("handle", number.into()));
        }
        Ok(pd)
    }

    live! { kernel_handle() -> u32 = PdHandle::kernel_handle }

    fn ask(&self) -> Evidence {
        no_query(self.standing)
    }
}

impl Channel {
    pub(crate) fn create(context: &Context) -> Result<Self, shim::Errno> {
        // SAFETY:
        // - The context is live, and the owner holds it until this is destroyed.
        let handle = unsafe { ChannelHandle::create(context.handle) }?;
        let mut channel = Self::made(handle, &context.facts);
        if let Ok(descriptor) = channel.descriptor() {
            let descriptor = u64::from(descriptor.unsigned_abs());
            channel.numbers.push(("descriptor", descriptor));
        }
        Ok(channel)
    }

    live! {
        pub(crate) descriptor() -> i32 = ChannelHandle::descriptor,
        pub(crate) event() -> (CqHandle, u64) = ChannelHandle::event,
    }

    fn ask(&self) -> Evidence {
        let descriptor = self.numbers.iter().find(|(what, _)| *what == "descriptor");
        match (self.standing, descriptor) {
            (Standing::Live, Some((_, number))) => {
                let path = format!("/proc/self/fd/{number}");
                match std::fs::read_link(&path) {
                    Ok(target) => {
                        let target = target.display();
                        Evidence::new(Alive::Yes, format!("descriptor {number} is open: {target}"))
                    }
                    Err(error) => Evidence::new(Alive::No, format!("{path}: {error}")),
                }
            }
            (standing, _) => no_query(standing),
        }
    }
}

impl Cq {
    pub(crate) fn create(
        context: &Context,
        channel: Option<&Channel>,
        mut options: CqOptions,
    ) -> Result<Self, shim::Errno> {
        options.channel = channel.map(|channel| channel.handle);
        // SAFETY:
        // - Context and channel are live, and the owner holds both until this is destroyed.
        let handle = unsafe { CqHandle::create(context.handle, &options) }?;
        let mut cq = Self::made(handle, &context.facts);
        if let Ok(info) = cq.info() {
            cq.numbers.push(("handle", info.handle.into()));
            cq.numbers.push(("entries", info.cqe.into()));
        }
        Ok(cq)
    }

    live! {
        pub(crate) info() -> shim::CqInfo = CqHandle::info,
        pub(crate) notify(solicited_only: bool) -> () = CqHandle::notify,
    }

    #[inline]
    pub(crate) fn poll(&self, into: &mut [Completion]) -> Result<usize, shim::Errno> {
        // SAFETY:
        // - The handle is live: a value that an owner shares has not been released.
        unsafe { self.handle.poll(into) }
    }

    /// Acknowledges one event that was just taken for this queue.
    pub(crate) fn acknowledge_one(&self) -> Result<(), shim::Errno> {
        // SAFETY:
        // - The handle is live, and the caller has just taken one event for it.
        unsafe { self.handle.acknowledge(1) }
    }

    fn ask(&self) -> Evidence {
        no_query(self.standing)
    }
}

impl Qp {
    pub(crate) fn create(
        pd: &Pd,
        send: &Cq,
        receive: &Cq,
        options: &QpOptions,
    ) -> Result<(Self, QpInfo), shim::Errno> {
        // SAFETY:
        // - All three are live and of one device, as the owner checks, and it holds them until this is destroyed.
        let (handle, info) =
            unsafe { QpHandle::create(pd.handle, send.handle, receive.handle, options) }?;
        let mut qp = Self::made(handle, &pd.facts);
        qp.numbers.push(("handle", info.handle.into()));
        qp.numbers.push(("qpn", info.qp_num.into()));
        Ok((qp, info))
    }

    live! {
        pub(crate) modify(attributes: &QpAttributes, fields: u32) -> () = QpHandle::modify,
        pub(crate) query(fields: u32) -> QpAttributes = QpHandle::query,
    }

    /// # Safety
    /// As for [`QpHandle::post_send`], but for the queue pair itself.
    pub(crate) unsafe fn post_send(&self, requests: &[SendRequest<'_>]) -> Result<(), Partial> {
        // SAFETY:
        // - The handle is live; the caller promises the rest.
        unsafe { self.handle.post_send(requests) }
    }

    /// # Safety
    /// As for [`QpHandle::post_receive`], but for the queue pair itself.
    pub(crate) unsafe fn post_receive(
        &self,
        requests: &mut [RecvRequest<'_>],
    ) -> Result<(), Partial> {
        // SAFETY:
        // - The handle is live; the caller promises the rest.
        unsafe { self.handle.post_receive(requests) }
    }

    fn ask(&self) -> Evidence {
        match self.standing {
            Standing::Live => {}
            Standing::Unknown if self.facts.keeps_failed() => {}
            standing => return settled(standing),
        }
        match self.query(qp_fields::STATE) {
            Ok(attributes) => {
                let state = QpState::from(attributes.qp_state);
                Evidence::new(Alive::Yes, format!("ibv_query_qp: {state:?}"))
            }
            Err(errno) => unproven("ibv_query_qp", errno),
        }
    }
}

impl Mr {
    /// # Safety
    /// - The memory that the options name stays mapped until this is deregistered, and nothing relies on its content meanwhile.
    pub(crate) unsafe fn register(pd: &Pd, options: &MrOptions) -> Result<Self, shim::Errno> {
        // SAFETY:
        // - The domain is live, and the owner holds it until this is deregistered.
        // - The caller promises what concerns the memory.
        let handle = unsafe { MrHandle::register(pd.handle, options) }?;
        let mut mr = Self::made(handle, &pd.facts);
        if let Ok(info) = mr.info() {
            mr.numbers.push(("handle", info.handle.into()));
            mr.numbers.push(("lkey", info.lkey.into()));
            mr.numbers.push(("rkey", info.rkey.into()));
        }
        Ok(mr)
    }

    live! { pub(crate) info() -> MrInfo = MrHandle::info }

    fn ask(&self) -> Evidence {
        no_query(self.standing)
    }
}

impl Mw {
    pub(crate) fn allocate(pd: &Pd, kind: WindowType) -> Result<Self, shim::Errno> {
        // SAFETY:
        // - The domain is live, and the owner holds it until this is deallocated.
        let handle = unsafe { MwHandle::allocate(pd.handle, kind) }?;
        let mut mw = Self::made(handle, &pd.facts);
        if let Ok(info) = mw.info() {
            mw.numbers.push(("handle", info.handle.into()));
            mw.numbers.push(("rkey", info.rkey.into()));
        }
        Ok(mw)
    }

    live! { pub(crate) info() -> MwInfo = MwHandle::info }

    fn ask(&self) -> Evidence {
        no_query(self.standing)
    }
}

impl Flow {
    pub(crate) fn create(qp: &Qp, rule: &FlowRule) -> Result<Self, shim::Errno> {
        // SAFETY:
        // - The queue pair is live, and the owner holds it until this is destroyed.
        let handle = unsafe { FlowHandle::create(qp.handle, rule) }?;
        let mut flow = Self::made(handle, &qp.facts);
        if let Ok(number) = flow.kernel_handle() {
            flow.numbers.push(("handle", number.into()));
        }
        Ok(flow)
    }

    live! { kernel_handle() -> u32 = FlowHandle::kernel_handle }

    fn ask(&self) -> Evidence {
        no_query(self.standing)
    }
}

/// A queue pair's membership in a multicast group.
///
/// Made and used by the owners; from outside only what custody asks can be asked of it.
#[derive(Debug)]
pub struct Multicast {
    qp: QpHandle,
    group: [u8; 16],
    lid: u16,
    facts: Arc<Facts>,
    standing: Standing,
}

impl Multicast {
    const CALL: &'static str = "ibv_detach_mcast";

    pub(crate) fn attach(qp: &Qp, group: [u8; 16], lid: u16) -> Result<Self, shim::Errno> {
        // SAFETY:
        // - The queue pair is live.
        unsafe { qp.handle.attach(&group, lid) }?;
        Ok(Self {
            qp: qp.handle,
            group,
            lid,
            facts: Arc::clone(&qp.facts),
            standing: Standing::Live,
        })
    }
}

impl Native for Multicast {
    fn identity(&self) -> Identity {
        let half = |at: usize| {
            let bytes = self.group[at..at + 8].iter();
            bytes.fold(0, |number, byte| number << 8 | u64::from(*byte))
        };
        let numbers = [
            ("QP address", self.qp.address()),
            ("GID high", half(0)),
            ("GID low", half(8)),
        ];
        self.facts.identity("multicast attachment", &numbers)
    }

    fn release(&mut self) -> Release {
        if !self.facts.mark.is_home() {
            return Release::NothingDone(ECHILD);
        }
        if self.standing != Standing::Live {
            return Release::Ambiguous(GONE);
        }
        // SAFETY:
        // - The queue pair is live: the owner of this value holds it until the receipt.
        let answer = unsafe { self.qp.detach(&self.group, self.lid) };
        let facts = Arc::clone(&self.facts);
        let identity = self.identity();
        settle(answer, Proof::Nothing, &mut self.standing, || {
            receipt(&facts, identity, Self::CALL)
        })
    }

    fn release_call(&self) -> &'static str {
        Self::CALL
    }

    fn evidence(&self) -> Evidence {
        no_query(self.standing)
    }
}

fn no_query(standing: Standing) -> Evidence {
    Evidence::new(
        Alive::Unknown,
        format!("verbs have no query for this kind; the handle is {standing}"),
    )
}

fn settled(standing: Standing) -> Evidence {
    let alive = if standing == Standing::Gone {
        Alive::No
    } else {
        Alive::Unknown
    };
    Evidence::new(alive, format!("not asked: the handle is {standing}"))
}

fn unproven(call: &str, errno: shim::Errno) -> Evidence {
    Evidence::new(Alive::Unknown, format!("{call}: {errno}"))
}
