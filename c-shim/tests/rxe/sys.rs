//! Fixtures over the bare handles: each object is destroyed once, in order, and a failure to do so fails the test.
//!
//! Promises: what a fixture needs outlives it, by a shared reference. Does not do: anything a test would want to see.
#![allow(unsafe_code)]
#![allow(
    dead_code,
    reason = "two test binaries share this, and fields keep objects alive"
)]

use std::cell::UnsafeCell;
use std::sync::Arc;
use std::time::Duration;

use lockgate_verbs_shim::{
    Access, AddressVector, AhHandle, AsyncEvent, ChannelHandle, Completion, CompletionEx,
    ContextHandle, ContextInfo, CqExHandle, CqHandle, CqOptions, DeviceAttributes, DeviceList,
    Errno, FlowHandle, FlowRule, GidEntry, MrHandle, MrInfo, MrOptions, MwBind, MwHandle, MwInfo,
    Partial, PdHandle, PortAttributes, QpAttributes, QpHandle, QpInfo, QpOptions, RecvRequest,
    SendRequest, WindowType,
};

pub(crate) struct Context(pub(crate) ContextHandle);

pub(crate) fn open(name: &str) -> Arc<Context> {
    let list = DeviceList::read().unwrap();
    let device = list
        .iter()
        .find(|device| device.info().unwrap().name == name)
        .unwrap_or_else(|| panic!("no device {name}"));
    Arc::new(Context(device.open().unwrap()))
}

/// Defines safe forms of calls whose only condition is that the fixture's objects are live.
macro_rules! safe {
    ($($name:ident($($arg:ident: $kind:ty),*) -> $result:ty = $call:path),+ $(,)?) => {$(
        pub(crate) fn $name(&self, $($arg: $kind),*) -> $result {
            // SAFETY:
            // - The fixture is alive, so its object and those that it refers to are live.
            unsafe { $call(self.0, $($arg),*) }
        }
    )+};
}

impl Context {
    safe! {
        info() -> Result<ContextInfo, Errno> = ContextHandle::info,
        attributes() -> Result<DeviceAttributes, Errno> = ContextHandle::attributes,
        port(port: u8) -> Result<PortAttributes, Errno> = ContextHandle::port,
        gid(port: u8, index: u32) -> Result<GidEntry, Errno> = ContextHandle::gid,
        raw_gid(port: u8, index: u32) -> Result<[u8; 16], Errno> = ContextHandle::raw_gid,
        pkey(port: u8, index: u32) -> Result<u16, Errno> = ContextHandle::pkey,
        clock() -> Result<u64, Errno> = ContextHandle::clock,
        async_event() -> Result<AsyncEvent, Errno> = ContextHandle::async_event,
    }
}

/// Whether something can be read from the descriptor within the time.
pub(crate) fn readable(descriptor: i32, within: Duration) -> bool {
    let mut poll = libc::pollfd {
        fd: descriptor,
        events: libc::POLLIN,
        revents: 0,
    };
    let millis = i32::try_from(within.as_millis()).unwrap_or(i32::MAX);
    // SAFETY:
    // - `poll` is one valid entry.
    let ready = unsafe { libc::poll(&raw mut poll, 1, millis) };
    ready == 1
}

/// Acknowledges an event of a port, whose object can't go away.
pub(crate) fn acknowledge(event: AsyncEvent) {
    // SAFETY:
    // - Ports live as long as the device, which the test holds.
    unsafe { event.acknowledge() }.unwrap();
}

/// Defines the drop of a fixture: the one destroy call, which must succeed.
macro_rules! destroyed_by {
    ($($fixture:ident: $call:path),+ $(,)?) => {$(
        impl Drop for $fixture {
            fn drop(&mut self) {
                // SAFETY:
                // - The fixture owns the object, and nothing uses it after its drop.
                let destroyed = unsafe { $call(self.0) };
                if !std::thread::panicking() {
                    destroyed.unwrap();
                }
            }
        }
    )+};
}

destroyed_by! {
    Ah: AhHandle::destroy,
    Channel: ChannelHandle::destroy,
    Context: ContextHandle::close,
    Cq: CqHandle::destroy,
    Flow: FlowHandle::destroy,
    Mr: MrHandle::deregister,
    Mw: MwHandle::deallocate,
    Pd: PdHandle::deallocate,
    Qp: QpHandle::destroy,
}

pub(crate) struct Pd(pub(crate) PdHandle, Arc<Context>);

impl Pd {
    pub(crate) fn new(context: &Arc<Context>) -> Arc<Self> {
        // SAFETY:
        // - The fixture keeps the context.
        let pd = unsafe { PdHandle::allocate(context.0) };
        Arc::new(Self(pd.unwrap(), context.clone()))
    }

    safe! {
        kernel_handle() -> Result<u32, Errno> = PdHandle::kernel_handle,
    }

    /// The deallocation that is expected to be refused; a success would be undone by nobody.
    pub(crate) fn refused(&self) -> Errno {
        // SAFETY:
        // - The fixture is alive; the call fails, or the test does.
        unsafe { self.0.deallocate() }.unwrap_err()
    }
}

/// Page-aligned bytes that a device may write at any time.
pub(crate) struct Buffer(Box<[Page]>);

#[repr(align(4096))]
struct Page(UnsafeCell<[u8; 4096]>);

// SAFETY:
// - Bytes are copied in and out through raw pointers; tests order that with completions.
unsafe impl Sync for Buffer {}

impl Buffer {
    pub(crate) fn new(pages: usize) -> Arc<Self> {
        Arc::new(Self(
            (0..pages)
                .map(|_| Page(UnsafeCell::new([0; 4096])))
                .collect(),
        ))
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len() * 4096
    }

    pub(crate) fn address(&self) -> u64 {
        self.0.as_ptr().expose_provenance() as u64
    }

    pub(crate) fn fill(&self, bytes: &[u8]) {
        assert!(bytes.len() <= self.len());
        let to: *mut u8 = UnsafeCell::raw_get(self.0.as_ptr().cast::<UnsafeCell<u8>>());
        // SAFETY:
        // - The pages are contiguous and hold at least so many bytes.
        // - No request of the test is under way.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
    }

    pub(crate) fn bytes(&self, length: usize) -> Vec<u8> {
        assert!(length <= self.len());
        let mut bytes = vec![0; length];
        let from: *const u8 = self.0.as_ptr().cast();
        // SAFETY:
        // - The pages are contiguous and hold at least so many bytes.
        // - No request of the test is under way.
        unsafe { std::ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), length) };
        bytes
    }
}

pub(crate) struct Mr(pub(crate) MrHandle, pub(crate) Arc<Buffer>, Arc<Pd>);

impl Mr {
    pub(crate) fn new(pd: &Arc<Pd>, buffer: &Arc<Buffer>, access: Access) -> Result<Self, Errno> {
        let options = MrOptions {
            address: buffer.address(),
            length: buffer.len() as u64,
            remote_address: buffer.address(),
            access,
        };
        // SAFETY:
        // - The fixture keeps domain and buffer; the buffer's bytes are read and written by copies only.
        let mr = unsafe { MrHandle::register(pd.0, &options) }?;
        Ok(Self(mr, buffer.clone(), pd.clone()))
    }

    safe! {
        info() -> Result<MrInfo, Errno> = MrHandle::info,
    }

    /// The deregistration that is expected to be refused.
    pub(crate) fn refused(&self) -> Errno {
        // SAFETY:
        // - The fixture is alive; the call fails, or the test does.
        unsafe { self.0.deregister() }.unwrap_err()
    }
}

pub(crate) fn register_dmabuf(pd: &Pd, options: &MrOptions, descriptor: i32) -> Errno {
    // SAFETY:
    // - The domain is live; there is no buffer behind the descriptor, so nothing is registered.
    unsafe { MrHandle::register_dmabuf(pd.0, options, descriptor) }.unwrap_err()
}

pub(crate) struct Mw(pub(crate) MwHandle, Arc<Pd>);

impl Mw {
    pub(crate) fn new(pd: &Arc<Pd>, kind: WindowType) -> Self {
        // SAFETY:
        // - The fixture keeps the domain.
        let mw = unsafe { MwHandle::allocate(pd.0, kind) };
        Self(mw.unwrap(), pd.clone())
    }

    safe! {
        info() -> Result<MwInfo, Errno> = MwHandle::info,
    }

    pub(crate) fn bind(&self, qp: &Qp, bind: &MwBind) -> Result<(), Errno> {
        // SAFETY:
        // - Fixtures are alive; the test keeps the region until the window is gone.
        unsafe { self.0.bind(qp.0, bind) }
    }
}

pub(crate) struct Channel(pub(crate) ChannelHandle, Arc<Context>);

impl Channel {
    pub(crate) fn new(context: &Arc<Context>) -> Arc<Self> {
        // SAFETY:
        // - The fixture keeps the context.
        let channel = unsafe { ChannelHandle::create(context.0) };
        Arc::new(Self(channel.unwrap(), context.clone()))
    }

    safe! {
        descriptor() -> Result<i32, Errno> = ChannelHandle::descriptor,
        event() -> Result<(CqHandle, u64), Errno> = ChannelHandle::event,
    }

    /// The destruction that is expected to be refused.
    pub(crate) fn refused(&self) -> Errno {
        // SAFETY:
        // - The fixture is alive; the call fails, or the test does.
        unsafe { self.0.destroy() }.unwrap_err()
    }
}

pub(crate) struct Cq(
    pub(crate) CqHandle,
    Option<CqExHandle>,
    (Arc<Context>, Option<Arc<Channel>>),
);

impl Cq {
    pub(crate) fn new(context: &Arc<Context>, entries: u32) -> Arc<Self> {
        Self::made(
            context,
            None,
            CqOptions {
                entries,
                ..CqOptions::default()
            },
        )
    }

    pub(crate) fn with_channel(
        context: &Arc<Context>,
        channel: &Arc<Channel>,
        token: u64,
    ) -> Arc<Self> {
        let options = CqOptions {
            entries: 16,
            channel: Some(channel.0),
            token,
            ..CqOptions::default()
        };
        Self::made(context, Some(channel.clone()), options)
    }

    fn made(
        context: &Arc<Context>,
        channel: Option<Arc<Channel>>,
        options: CqOptions,
    ) -> Arc<Self> {
        // SAFETY:
        // - The fixture keeps context and channel.
        let cq = unsafe { CqHandle::create(context.0, &options) };
        Arc::new(Self(cq.unwrap(), None, (context.clone(), channel)))
    }

    pub(crate) fn extended(context: &Arc<Context>, extended: u32) -> Result<Arc<Self>, Errno> {
        let options = CqOptions {
            entries: 16,
            extended,
            ..CqOptions::default()
        };
        // SAFETY:
        // - The fixture keeps the context.
        let (ex, cq) = unsafe { CqExHandle::create(context.0, &options) }?;
        Ok(Arc::new(Self(cq, Some(ex), (context.clone(), None))))
    }

    safe! {
        poll(into: &mut [Completion]) -> Result<usize, Errno> = CqHandle::poll,
        notify(solicited_only: bool) -> Result<(), Errno> = CqHandle::notify,
        acknowledge(events: u32) -> Result<(), Errno> = CqHandle::acknowledge,
    }

    pub(crate) fn poll_extended(
        &self,
        extended: u32,
        into: &mut [CompletionEx],
    ) -> Result<usize, Errno> {
        let ex = self.1.expect("made as an extended queue");
        // SAFETY:
        // - The fixture is alive and was made with these fields; the test polls from one thread.
        unsafe { ex.poll(extended, false, into) }
    }

    /// The destruction that is expected to be refused.
    pub(crate) fn refused(&self) -> Errno {
        // SAFETY:
        // - The fixture is alive; the call fails, or the test does.
        unsafe { self.0.destroy() }.unwrap_err()
    }
}

pub(crate) struct Qp(
    pub(crate) QpHandle,
    pub(crate) QpInfo,
    pub(crate) Arc<Cq>,
    Arc<Pd>,
);

impl Qp {
    pub(crate) fn new(pd: &Arc<Pd>, cq: &Arc<Cq>, options: &QpOptions) -> Result<Self, Errno> {
        // SAFETY:
        // - The fixture keeps domain and queue.
        let (qp, info) = unsafe { QpHandle::create(pd.0, cq.0, cq.0, options) }?;
        Ok(Self(qp, info, cq.clone(), pd.clone()))
    }

    safe! {
        modify(attributes: &QpAttributes, fields: u32) -> Result<(), Errno> = QpHandle::modify,
        query(fields: u32) -> Result<QpAttributes, Errno> = QpHandle::query,
        attach(group: &[u8; 16], lid: u16) -> Result<(), Errno> = QpHandle::attach,
        detach(group: &[u8; 16], lid: u16) -> Result<(), Errno> = QpHandle::detach,
    }

    /// Posts sends; the test keeps the regions until they complete or the queue pair is gone.
    pub(crate) fn post_send(&self, requests: &[SendRequest<'_>]) -> Result<(), Partial> {
        // SAFETY:
        // - The fixture is alive; regions and buffers are fixtures that the test drops after this one.
        unsafe { self.0.post_send(requests) }
    }

    /// Posts receives; the same holds.
    pub(crate) fn post_receive(&self, requests: &mut [RecvRequest<'_>]) -> Result<(), Partial> {
        // SAFETY:
        // - The fixture is alive; regions and buffers are fixtures that the test drops after this one.
        unsafe { self.0.post_receive(requests) }
    }

    /// The destruction that is expected to be refused.
    pub(crate) fn refused(&self) -> Errno {
        // SAFETY:
        // - The fixture is alive; the call fails, or the test does.
        unsafe { self.0.destroy() }.unwrap_err()
    }
}

pub(crate) struct Ah(pub(crate) AhHandle, Arc<Pd>);

impl Ah {
    pub(crate) fn new(pd: &Arc<Pd>, address: &AddressVector) -> Result<Self, Errno> {
        // SAFETY:
        // - The fixture keeps the domain.
        let ah = unsafe { AhHandle::create(pd.0, address) }?;
        Ok(Self(ah, pd.clone()))
    }
}

pub(crate) struct Flow(pub(crate) FlowHandle);

impl Flow {
    pub(crate) fn new(qp: &Qp, rule: &FlowRule) -> Result<Self, Errno> {
        // SAFETY:
        // - The queue pair is alive, and the test drops it after the rule.
        unsafe { FlowHandle::create(qp.0, rule) }.map(Self)
    }
}
