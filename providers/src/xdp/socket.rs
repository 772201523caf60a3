//! Opens the sockets of a receiver, loads its program and attaches it, and explains what can go wrong.
//!
//! Promises: everything is in custody; the link that keeps the program attached goes first, then the rings, the sockets, and the
//! frames' memory last. Link, program and maps are descriptors and nothing else, so that they go with the process however
//! it ends. Does not do: reading rings.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use lockgate::custody::{Domain, Identity, Owner};
use lockgate::receive::ReceiverConfig;
use lockgate::{Errno, Error, ErrorKind, Result};

use super::options::{Copying, HEADROOM, Mode, Options, Queues};
use super::program::{self, Maps};
use super::ring::{Frames, Queue, Ring, Views};
use super::sys::{self, Counters, MapKind, Offsets};
use crate::kernel::custody::{self, Descriptor, Mapping};
use crate::kernel::{Interface, sys as kernel};
use crate::raw::selection::Selection;

/// linux/if_xdp.h.
const SOL_XDP: i32 = 283;
const XDP_MMAP_OFFSETS: i32 = 1;
const XDP_RX_RING: i32 = 2;
const XDP_UMEM_REG: i32 = 4;
const XDP_UMEM_FILL_RING: i32 = 5;
const XDP_UMEM_COMPLETION_RING: i32 = 6;
const XDP_STATISTICS: i32 = 7;
const XDP_OPTIONS: i32 = 8;
const XDP_SHARED_UMEM: u16 = 1;
const XDP_COPY: u16 = 1 << 1;
const XDP_ZEROCOPY: u16 = 1 << 2;
const XDP_USE_NEED_WAKEUP: u16 = 1 << 3;
const PAGE_OF_RECEIVE: i64 = 0;
const PAGE_OF_FILL: i64 = 0x1_0000_0000;
/// linux/if_link.h.
const XDP_FLAGS_SKB_MODE: u32 = 1 << 1;
const XDP_FLAGS_DRV_MODE: u32 = 1 << 2;
/// Nothing is sent, and yet the kernel binds no socket without this ring.
const COMPLETION_ENTRIES: i32 = 2;
/// The kernel gives a queue free some time after its last socket was closed, on a work queue, and tells nobody when.
const QUEUE_PATIENCE: Duration = Duration::from_secs(2);
const QUEUE_PAUSE: Duration = Duration::from_millis(1);

/// One queue's socket and its mappings, given back before the socket.
struct Served {
    number: u32,
    receive: Option<Owner<Mapping>>,
    fill: Option<Owner<Mapping>>,
    socket: Option<Owner<Descriptor>>,
}

/// All of it, in the order in which it goes when it is dropped.
pub(super) struct Sockets {
    link: Option<Owner<Descriptor>>,
    served: Vec<Served>,
    memory: Option<Owner<Mapping>>,
    program: Option<Owner<Descriptor>>,
    map: Option<Owner<Descriptor>>,
    counter: Option<Owner<Descriptor>>,
}

/// What a receiver's rings and frames measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) chunk_bytes: u32,
    /// Of each queue.
    pub(super) receive_entries: u32,
    pub(super) frames: u32,
    pub(super) fill_entries: u32,
}

impl Layout {
    /// The measures of a configuration that has passed validation; nothing if they don't fit the kernel's numbers.
    pub(super) fn plan(config: &ReceiverConfig) -> Option<Self> {
        let chunk_bytes = super::options::chunk_bytes(config)?;
        let receive_entries = config.ring.checked_next_power_of_two()?.max(2);
        // While the ring is full and a batch is in use, some are left that the kernel may fill.
        let frames = receive_entries.checked_add(config.batch)?.checked_add(64)?;
        // The kernel tells late which entries it has read: twice as many as there are frames always have room.
        let fill_entries = frames.checked_mul(2)?.checked_next_power_of_two()?;
        Some(Self {
            chunk_bytes,
            receive_entries,
            frames,
            fill_entries,
        })
    }

    fn memory(&self, queues: usize) -> Option<usize> {
        (self.frames as usize)
            .checked_mul(self.chunk_bytes as usize)?
            .checked_mul(queues)
    }
}

impl Sockets {
    /// Opens a socket for each queue and prepares the program. Nothing is redirected before [`attach`](Self::attach).
    pub(super) fn open(
        config: &ReceiverConfig,
        options: &Options,
        layout: &Layout,
        interface: &Interface,
        domain: &Domain,
    ) -> Result<(Self, Vec<Queue>)> {
        let numbers = queues(options, interface)?;
        let bytes = layout
            .memory(numbers.len())
            .ok_or_else(|| too_large(config))?;
        let memory = custody::own_mapping(domain, bytes, Vec::new(), || {
            Mapping::anonymous("XDP frames", bytes)
                .map_err(|errno| custody::memory("map frames", errno, bytes))
        })?;
        let mut this = Self {
            link: None,
            served: Vec::new(),
            memory: Some(memory),
            program: None,
            map: None,
            counter: None,
        };
        let mut all = Vec::new();
        for (first, number) in (0..).step_by(layout.frames as usize).zip(numbers) {
            let (served, queue) = this.serve(number, first, options, layout, interface, domain)?;
            this.served.push(served);
            all.push(queue);
        }
        this.load(config, interface, domain)?;
        Ok((this, all))
    }

    /// Opens the socket of one queue, whose frames begin with the chunk `first`.
    fn serve(
        &self,
        number: u32,
        first: u32,
        options: &Options,
        layout: &Layout,
        interface: &Interface,
        domain: &Domain,
    ) -> Result<(Served, Queue)> {
        let Some(memory) = &self.memory else {
            return Err(Error::new(ErrorKind::Bug, "open XDP socket"));
        };
        let identity = Identity::new("XDP socket")
            .named(interface.name.clone())
            .with("queue", number.into());
        let socket = custody::own_descriptor(domain, identity, vec![memory.hold()], || {
            sys::open_socket().map_err(explain_socket)
        })?;
        let fd = socket.native().as_fd();
        let shared = self.served.first().and_then(|one| one.socket.as_ref());
        if shared.is_none() {
            let request = sys::Memory {
                address: memory.native().address() as u64,
                len: memory.native().len() as u64,
                chunk_bytes: layout.chunk_bytes,
                ..sys::Memory::default()
            };
            kernel::set_option(fd, SOL_XDP, XDP_UMEM_REG, &request)
                .map_err(|errno| explain_memory(errno, memory.native().len()))?;
        }
        let set = |name, entries: u32, what: &'static str| {
            kernel::set_option(fd, SOL_XDP, name, &(entries as i32)).map_err(|errno| {
                Error::from_errno(what, errno).with_object(format!("{entries} entries"))
            })
        };
        set(XDP_UMEM_FILL_RING, layout.fill_entries, "make fill ring")?;
        set(
            XDP_UMEM_COMPLETION_RING,
            COMPLETION_ENTRIES as u32,
            "make completion ring",
        )?;
        set(XDP_RX_RING, layout.receive_entries, "make receive ring")?;
        let offsets: Offsets = kernel::option(fd, SOL_XDP, XDP_MMAP_OFFSETS, Offsets::default())
            .map_err(|errno| Error::from_errno("read ring offsets", errno))?;
        let map = |name, begin: u64, entries: u32, size: usize, page| {
            let bytes = usize::try_from(begin)
                .unwrap_or(usize::MAX)
                .saturating_add(entries as usize * size);
            custody::own_mapping(domain, bytes, vec![socket.hold()], || {
                Mapping::shared(name, fd, bytes, page)
                    .map_err(|errno| custody::memory("map ring", errno, bytes))
            })
        };
        let receive = map(
            "XDP receive ring",
            offsets.receive.entries,
            layout.receive_entries,
            16,
            PAGE_OF_RECEIVE,
        )?;
        let fill = map(
            "XDP fill ring",
            offsets.fill.entries,
            layout.fill_entries,
            8,
            PAGE_OF_FILL,
        )?;
        let mut queue = Queue::new(
            Ring::new(&offsets.receive, layout.receive_entries),
            Ring::new(&offsets.fill, layout.fill_entries),
            Frames {
                first,
                count: layout.frames,
                chunk_bytes: layout.chunk_bytes,
            },
        );
        queue.give_back(Views {
            receive: receive.native().view(),
            fill: fill.native().view(),
            frames: memory.native().view(),
        });
        let shared = shared.map(|owner| owner.native().as_fd());
        bind(fd, number, options, interface, shared)?;
        let served = Served {
            number,
            receive: Some(receive),
            fill: Some(fill),
            socket: Some(socket),
        };
        Ok((served, queue))
    }

    /// Makes the maps and loads the program.
    fn load(
        &mut self,
        config: &ReceiverConfig,
        interface: &Interface,
        domain: &Domain,
    ) -> Result<()> {
        let last = self.served.last().map_or(0, |one| one.number);
        let map = |kind, name: &'static str, entries| {
            let identity = Identity::new("BPF map").named(name);
            custody::own_descriptor(domain, identity, Vec::new(), || {
                sys::create_map(kind, name, entries)
                    .map_err(|errno| explain_bpf("make BPF map", errno))
            })
        };
        let sockets = map(MapKind::Sockets, "lockgate_xsk", last + 1)?;
        let counter = map(MapKind::Counters, "lockgate_count", 1)?;
        for one in &self.served {
            if let Some(socket) = &one.socket {
                sys::put_socket(
                    sockets.native().as_fd(),
                    one.number,
                    socket.native().as_fd(),
                )
                .map_err(|errno| explain_bpf("put socket into map", errno))?;
            }
        }
        let maps = Maps {
            sockets: raw(sockets.native().as_fd()),
            counter: raw(counter.native().as_fd()),
        };
        let program = program::make(&Selection::of(config), maps).ok_or_else(|| {
            Error::new(ErrorKind::Resource, "write program")
                .with_detail(
                    "the configuration names more groups, ports and sources than one program holds",
                )
                .with_remedy("split the groups over several receivers, or use the provider packet")
        })?;
        let identity = Identity::new("BPF program")
            .named(interface.name.clone())
            .with("instructions", program.len() as u64);
        let deps = vec![sockets.hold(), counter.hold()];
        let loaded = custody::own_descriptor(domain, identity, deps, || {
            sys::load(&program, "lockgate_xdp", None).map_err(|errno| explain_load(errno, &program))
        })?;
        self.map = Some(sockets);
        self.counter = Some(counter);
        self.program = Some(loaded);
        Ok(())
    }

    /// Attaches the program: from here on frames are redirected.
    pub(super) fn attach(
        &mut self,
        options: &Options,
        interface: &Interface,
        domain: &Domain,
    ) -> Result<()> {
        let Some(program) = &self.program else {
            return Err(Error::new(ErrorKind::Bug, "attach program"));
        };
        let flags = match options.mode {
            Mode::Generic => XDP_FLAGS_SKB_MODE,
            Mode::Native => XDP_FLAGS_DRV_MODE,
        };
        let identity = Identity::new("XDP link").named(interface.name.clone());
        let link = custody::own_descriptor(domain, identity, vec![program.hold()], || {
            sys::attach(program.native().as_fd(), interface.index, flags)
                .map_err(|errno| explain_attach(errno, options.mode, interface))
        })?;
        self.link = Some(link);
        Ok(())
    }

    /// The sockets; none after a close.
    pub(super) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.served
            .iter()
            .filter_map(|one| Some(one.socket.as_ref()?.native().as_fd()))
    }

    /// The socket of the queue at a place.
    pub(super) fn descriptor(&self, at: usize) -> Option<BorrowedFd<'_>> {
        Some(self.served.get(at)?.socket.as_ref()?.native().as_fd())
    }

    /// What the queue at a place reads and writes; nothing after a close.
    #[inline]
    pub(super) fn views(&self, at: usize) -> Option<Views<'_>> {
        let served = self.served.get(at)?;
        Some(Views {
            receive: served.receive.as_ref()?.native().view(),
            fill: served.fill.as_ref()?.native().view(),
            frames: self.memory.as_ref()?.native().view(),
        })
    }

    /// The frames' memory; nothing after a close.
    #[inline]
    pub(super) fn memory(&self) -> Option<&Mapping> {
        self.memory.as_ref().map(Owner::native)
    }

    /// The numbers of the queues, as text.
    pub(super) fn numbers(&self) -> String {
        let numbers: Vec<String> = self
            .served
            .iter()
            .map(|one| one.number.to_string())
            .collect();
        numbers.join(",")
    }

    /// Whether the device writes frames to where they are read.
    pub(super) fn is_zero_copy(&self) -> bool {
        self.descriptor(0).is_some_and(|fd| {
            kernel::option(fd, SOL_XDP, XDP_OPTIONS, 0)
                .is_ok_and(|flags: i32| flags & sys::OPTION_ZERO_COPY != 0)
        })
    }

    /// The kernel's counters, over all queues; nothing after a close.
    pub(super) fn counters(&self) -> Option<Counters> {
        let mut sum = None;
        for fd in self.descriptors() {
            let one: Counters =
                kernel::option(fd, SOL_XDP, XDP_STATISTICS, Counters::default()).ok()?;
            let sum = sum.get_or_insert_with(Counters::default);
            sum.dropped += one.dropped;
            sum.ring_full += one.ring_full;
            sum.fill_empty += one.fill_empty;
        }
        sum
    }

    /// Fragments that the program passed on; nothing after a close.
    pub(super) fn fragments(&self) -> Option<u64> {
        let counter = self.counter.as_ref()?;
        sys::counter(counter.native().as_fd()).ok()
    }

    /// Takes the errors that stand at the sockets, so that they are readable no longer for that alone.
    pub(super) fn clear_errors(&self) {
        for fd in self.descriptors() {
            let _told_elsewhere: Result<i32, Errno> =
                kernel::option(fd, libc::SOL_SOCKET, libc::SO_ERROR, 0);
        }
    }

    /// Detaches the program and gives everything back. What depends on something that stays, stays too.
    pub(super) fn close(&mut self) -> Result<()> {
        let mut closed = custody::close(&mut self.link);
        let mut also = |next: Result<()>| {
            if closed.is_ok() {
                closed = next;
            }
        };
        // The first socket has the memory that the others share.
        for mut served in self.served.drain(..).rev() {
            also(custody::close(&mut served.receive));
            also(custody::close(&mut served.fill));
            also(custody::close(&mut served.socket));
        }
        also(custody::close(&mut self.memory));
        also(custody::close(&mut self.program));
        also(custody::close(&mut self.map));
        also(custody::close(&mut self.counter));
        closed
    }
}

fn raw(fd: BorrowedFd<'_>) -> i32 {
    std::os::fd::AsRawFd::as_raw_fd(&fd)
}

/// The queues that are asked for, as numbers.
fn queues(options: &Options, interface: &Interface) -> Result<Vec<u32>> {
    match &options.queues {
        Queues::Some(list) => Ok(list.clone()),
        Queues::All => {
            let socket = std::net::UdpSocket::bind((std::net::Ipv4Addr::UNSPECIFIED, 0))
                .map_err(|error| Error::from_io("open socket", error))?;
            // A driver that can't tell has one.
            let count = kernel::receive_queues(&socket, &interface.name).unwrap_or(1);
            Ok((0..count.max(1)).collect())
        }
    }
}

fn bind(
    fd: BorrowedFd<'_>,
    queue: u32,
    options: &Options,
    interface: &Interface,
    shared: Option<BorrowedFd<'_>>,
) -> Result<()> {
    let flags = match shared {
        // The others follow the first one.
        Some(_) => XDP_SHARED_UMEM,
        None => {
            let copying = match (options.mode, options.copying) {
                (Mode::Generic, _) | (_, Copying::Copy) => XDP_COPY,
                (_, Copying::ZeroCopy) => XDP_ZEROCOPY,
                (_, Copying::Any) => 0,
            };
            copying
                | if options.no_need_wakeup {
                    0
                } else {
                    XDP_USE_NEED_WAKEUP
                }
        }
    };
    let deadline = Instant::now() + QUEUE_PATIENCE;
    loop {
        match sys::bind(fd, interface.index, queue, flags, shared) {
            Ok(()) => return Ok(()),
            Err(Errno::BUSY) if Instant::now() < deadline => std::thread::sleep(QUEUE_PAUSE),
            Err(errno) => return Err(explain_bind(errno, queue, options, interface)),
        }
    }
}

fn explain_socket(errno: Errno) -> Error {
    let error = Error::from_errno("open XDP socket", errno);
    match errno {
        Errno::PERM => error.with_remedy(
            "give CAP_NET_RAW in the network namespace: AmbientCapabilities=CAP_NET_RAW of the service, or --cap-add NET_RAW of the \
             container",
        ),
        _ if errno.raw() == libc::EAFNOSUPPORT => {
            error.with_remedy("needs a kernel with CONFIG_XDP_SOCKETS")
        }
        _ => error,
    }
}

fn explain_memory(errno: Errno, bytes: usize) -> Error {
    match errno.raw() {
        libc::ENOBUFS => Error::new(ErrorKind::MemoryLimit, "register frames")
            .with_errno(errno)
            .with_object(format!("{bytes} bytes"))
            .with_detail("the kernel pins the frames, and RLIMIT_MEMLOCK does not allow as much")
            .with_remedy(
                "raise the limit: ulimit -l, LimitMEMLOCK= of the service; or give CAP_IPC_LOCK; or set a smaller ring",
            ),
        _ => custody::memory("register frames", errno, bytes),
    }
}

fn explain_bpf(step: &'static str, errno: Errno) -> Error {
    let error = Error::from_errno(step, errno);
    match errno {
        Errno::PERM => error
            .with_detail("only the initial user namespace can give the right to load programs")
            .with_remedy(
                "give CAP_BPF and CAP_NET_ADMIN (before Linux 5.8: CAP_SYS_ADMIN); before Linux 5.11 also raise ulimit -l",
            ),
        _ if errno.raw() == libc::ENOSYS => error.with_remedy("needs a kernel with CONFIG_BPF_SYSCALL"),
        _ => error,
    }
}

fn explain_load(errno: Errno, program: &[super::assembler::Instruction]) -> Error {
    if !matches!(errno, Errno::ACCES | Errno::INVAL) {
        return explain_bpf("load program", errno);
    }
    // The verifier refused it. Its last words are what somebody needs to see who reports this.
    let mut log = vec![0; 1 << 20];
    let _refused_again = sys::load(program, "lockgate_xdp", Some(&mut log));
    let end = log.iter().position(|byte| *byte == 0).unwrap_or(log.len());
    let words = String::from_utf8_lossy(log.get(..end).unwrap_or_default()).into_owned();
    let from = words
        .char_indices()
        .rev()
        .nth(1_000)
        .map_or(0, |(at, _)| at);
    Error::new(ErrorKind::Bug, "load program")
        .with_errno(errno)
        .with_detail(format!(
            "the kernel's verifier refuses the program; its last words: {}",
            words.get(from..).unwrap_or_default().trim()
        ))
}

fn explain_attach(errno: Errno, mode: Mode, interface: &Interface) -> Error {
    let name = &interface.name;
    let error = Error::from_errno("attach program", errno).with_object(name.clone());
    match (errno.raw(), mode) {
        (libc::EBUSY | libc::EEXIST, _) => error
            .with_detail("an interface takes one XDP program, and another one is there, of whatever mode")
            .with_remedy(format!(
                "see whose it is with `ip link show {name}` and `bpftool net`; close that receiver, or: ip link set {name} xdp off"
            )),
        (libc::EOPNOTSUPP, Mode::Native) => error
            .with_detail("the driver runs no XDP programs")
            .with_remedy("set mode to generic"),
        (libc::ERANGE | libc::EINVAL, Mode::Native) => error
            .with_detail("drivers refuse programs where a packet may not fit into a page: with a large MTU, on this interface or its peer")
            .with_remedy(format!("lower it: ip link set {name} mtu 1500; or set mode to generic")),
        _ => match errno {
            Errno::PERM => error.with_remedy("give CAP_NET_ADMIN in the network namespace"),
            _ => error,
        },
    }
}

fn explain_bind(errno: Errno, queue: u32, options: &Options, interface: &Interface) -> Error {
    let error = Error::from_errno("bind XDP socket", errno)
        .with_object(format!("{} queue {queue}", interface.name));
    match errno.raw() {
        libc::EBUSY => error
            .with_detail("another XDP socket has the queue")
            .with_remedy("close that receiver, or name other queues"),
        libc::EOPNOTSUPP if options.copying == Copying::ZeroCopy => error
            .with_detail("the driver can't write into a program's memory")
            .with_remedy("set copy to any or copy"),
        libc::EINVAL => error.with_remedy(format!(
            "name queues that `ethtool -l {}` shows",
            interface.name
        )),
        _ => error,
    }
}

/// What `Layout` answers nothing for.
pub(super) fn too_large(config: &ReceiverConfig) -> Error {
    Error::new(ErrorKind::MemoryLimit, "plan rings")
        .with_object(format!(
            "{} packets of {} bytes with {HEADROOM} more each",
            config.ring, config.buffer_bytes
        ))
        .with_detail("the kernel counts frames in 32 bits")
        .with_remedy("set a smaller ring")
}

/// Opens an XDP socket and closes it again.
pub(super) fn try_socket() -> Result<()> {
    sys::open_socket().map(drop).map_err(explain_socket)
}

/// Makes a map of sockets and closes it again.
pub(super) fn try_map() -> Result<()> {
    sys::create_map(MapKind::Sockets, "lockgate_try", 1)
        .map(drop)
        .map_err(|errno| explain_bpf("make BPF map", errno))
}
