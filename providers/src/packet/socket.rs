//! Opens a packet socket with its ring, and explains what can go wrong.
//!
//! Promises: nothing enters the ring before the filter is there, because the socket is created without a protocol and bound last.
//! Socket and ring are in custody; whatever was opened before a step that fails is released. Does not do: reading the ring.

use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use lockgate::custody::{Domain, Identity, Owner};
use lockgate::receive::{ReceiverConfig, TimestampMode, mac};
use lockgate::{Errno, Error, ErrorKind, Result};
use socket2::{SockRef, Type};

use super::filter::Filter;
use super::layout::Layout;
use super::options::{Fanout, Membership, Options, Version};
use super::sys::{self as packet, Counters};
use crate::kernel::custody::{self, Descriptor, Mapping};
use crate::kernel::{Interface, clock, remedy, sys};

/// linux/if_packet.h.
const PACKET_ADD_MEMBERSHIP: i32 = 1;
const PACKET_RX_RING: i32 = 5;
const PACKET_STATISTICS: i32 = 6;
const PACKET_VERSION: i32 = 10;
const PACKET_TIMESTAMP: i32 = 17;
const PACKET_FANOUT: i32 = 18;
const PACKET_IGNORE_OUTGOING: i32 = 23;
const PACKET_FANOUT_FLAG_IGNORE_OUTGOING: u32 = 0x4000;
const PACKET_MR_MULTICAST: u16 = 0;
const PACKET_MR_PROMISC: u16 = 1;
/// Every protocol, in network order as the address takes it.
const EVERYTHING: u16 = (libc::ETH_P_ALL as u16).to_be();

/// A packet socket and its ring. The ring is given back before the socket.
pub(super) struct Socket {
    ring: Option<Owner<Mapping>>,
    socket: Option<Owner<Descriptor>>,
    fanout: bool,
    /// What the kernel has counted: it forgets when it is asked.
    drops: u64,
    freezes: u64,
}

impl Socket {
    /// Opens, sets up, maps and binds.
    pub(super) fn open(
        config: &ReceiverConfig,
        options: &Options,
        layout: &Layout,
        filter: &Filter,
        interface: &Interface,
        domain: &Domain,
    ) -> Result<Self> {
        let identity = Identity::new("packet socket").named(interface.name.clone());
        let socket = custody::own_descriptor(domain, identity, Vec::new(), open_descriptor)?;
        set_up(socket.native().as_fd(), config, layout, filter)?;
        let bytes = layout.bytes();
        let ring = custody::own_mapping(domain, bytes, vec![socket.hold()], || {
            Mapping::shared("packet ring", socket.native().as_fd(), bytes, 0)
                .map_err(|errno| custody::memory("map ring", errno, bytes))
        })?;
        let mut this = Self {
            ring: Some(ring),
            socket: Some(socket),
            fanout: false,
            drops: 0,
            freezes: 0,
        };
        this.bind(interface)?;
        if let Some(fanout) = options.fanout {
            this.join_fanout(fanout)?;
        }
        this.add_memberships(config, options, interface)?;
        Ok(this)
    }

    /// The ring; nothing after a close.
    #[inline]
    pub(super) fn ring(&self) -> Option<&Mapping> {
        self.ring.as_ref().map(Owner::native)
    }

    /// The socket; nothing after a close.
    pub(super) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.socket.as_ref().map(|owner| owner.native().as_fd())
    }

    /// Binds the socket to an interface, at first or because it came back under another index.
    pub(super) fn bind(&self, interface: &Interface) -> Result<()> {
        let fail = |errno| {
            let error = Error::from_errno("bind packet socket", errno);
            error.with_object(interface.name.clone())
        };
        if self.fanout {
            return Err(fail(Errno::INVAL)
                .with_detail("the kernel binds no socket of a fanout group again")
                .with_remedy("close the receiver and open it again"));
        }
        let Some(fd) = self.descriptor() else {
            return Ok(());
        };
        let address = packet::link_address(EVERYTHING, interface.index);
        SockRef::from(&fd)
            .bind(&address)
            .map_err(|error| fail(Errno::from_io(&error).unwrap_or(Errno::INVAL)))
    }

    fn join_fanout(&mut self, fanout: Fanout) -> Result<()> {
        let Some(fd) = self.descriptor() else {
            return Ok(());
        };
        let argument = |flags: u32| (u32::from(fanout.group) | (fanout.mode | flags) << 16) as i32;
        // Linux before 5.14 doesn't know the flag; the filter keeps outgoing packets out there.
        let set = |flags| {
            let value = argument(flags);
            sys::set_option(fd, libc::SOL_PACKET, PACKET_FANOUT, &value)
        };
        set(PACKET_FANOUT_FLAG_IGNORE_OUTGOING)
            .or_else(|errno| match errno {
                Errno::INVAL => set(0),
                other => Err(other),
            })
            .map_err(|errno| explain_fanout(errno, fanout))?;
        self.fanout = true;
        Ok(())
    }

    fn add_memberships(
        &self,
        config: &ReceiverConfig,
        options: &Options,
        interface: &Interface,
    ) -> Result<()> {
        let Some(fd) = self.descriptor() else {
            return Ok(());
        };
        if options.membership == Membership::Link {
            for group in &config.groups {
                add_membership(fd, interface, Some(group.address))?;
            }
        }
        if options.promiscuous {
            add_membership(fd, interface, None)?;
        }
        Ok(())
    }

    /// Takes the kernel's counters in. It starts them again from zero.
    pub(super) fn count(&mut self) {
        let Some(fd) = self.descriptor() else {
            return;
        };
        let counters: Result<Counters, Errno> =
            sys::option(fd, libc::SOL_PACKET, PACKET_STATISTICS, Counters::default());
        if let Ok(counters) = counters {
            self.drops += u64::from(counters.drops);
            self.freezes += u64::from(counters.freezes);
        }
    }

    /// Packets that found the ring full.
    pub(super) fn drops(&self) -> u64 {
        self.drops
    }

    /// Takes the error that stands at the socket, so that it is readable no longer for that alone.
    pub(super) fn clear_error(&self) -> Option<Errno> {
        let raw: i32 = sys::option(self.descriptor()?, libc::SOL_SOCKET, libc::SO_ERROR, 0).ok()?;
        (raw != 0).then(|| Errno::from_raw(raw))
    }

    /// Gives ring and socket back.
    pub(super) fn close(&mut self) -> Result<()> {
        let ring = custody::close(&mut self.ring);
        let socket = custody::close(&mut self.socket);
        ring.and(socket)
    }
}

/// Opens a packet socket and closes it again.
pub(super) fn try_open() -> Result<()> {
    open_descriptor().map(drop)
}

/// Bound to no protocol yet: nothing arrives.
fn open_descriptor() -> Result<OwnedFd> {
    socket2::Socket::new(socket2::Domain::PACKET, Type::RAW.nonblocking(), None)
        .map(OwnedFd::from)
        .map_err(|error| {
            let error = Error::from_io("open packet socket", error);
            match error.errno() {
                Some(Errno::PERM) => error.with_remedy(
                    "give CAP_NET_RAW in the network namespace: setcap cap_net_raw+ep PROGRAM, AmbientCapabilities=CAP_NET_RAW of the \
                     service, or --cap-add NET_RAW of the container",
                ),
                Some(errno) if errno.raw() == libc::EAFNOSUPPORT => {
                    error.with_remedy("load the module af_packet, or build the kernel with CONFIG_PACKET")
                }
                _ => error,
            }
        })
}

fn set_up(
    fd: BorrowedFd<'_>,
    config: &ReceiverConfig,
    layout: &Layout,
    filter: &Filter,
) -> Result<()> {
    let step = |step| move |errno| remedy::option(Error::from_errno(step, errno));
    let version = match layout.version {
        Version::V2 => 1,
        Version::V3 => 2,
    };
    sys::set_option(fd, libc::SOL_PACKET, PACKET_VERSION, &version)
        .map_err(step("set PACKET_VERSION"))?;
    // Linux 4.20. The filter refuses outgoing packets as well, at the price of running for them.
    match sys::set_option(fd, libc::SOL_PACKET, PACKET_IGNORE_OUTGOING, &1) {
        Err(errno) if errno.raw() != libc::ENOPROTOOPT => {
            return Err(step("set PACKET_IGNORE_OUTGOING")(errno));
        }
        _ => {}
    }
    if config.timestamps == TimestampMode::Hardware {
        let flags = libc::SOF_TIMESTAMPING_RAW_HARDWARE as i32;
        sys::set_option(fd, libc::SOL_PACKET, PACKET_TIMESTAMP, &flags)
            .map_err(step("set PACKET_TIMESTAMP"))?;
    }
    SockRef::from(&fd)
        .attach_filter(&filter.program)
        .map_err(|error| {
            Error::from_io("attach filter", error)
                .with_object(format!("{} instructions", filter.program.len()))
        })?;
    let ring = packet::RingRequest {
        block_bytes: layout.block_bytes,
        blocks: layout.blocks,
        slot_bytes: layout.slot_bytes,
        slots: layout.slots,
    };
    let made = match layout.version {
        Version::V2 => sys::set_option(fd, libc::SOL_PACKET, PACKET_RX_RING, &ring),
        Version::V3 => {
            let request = packet::BlockRequest {
                ring,
                timeout: layout.timeout,
                private_bytes: 0,
                features: 0,
            };
            sys::set_option(fd, libc::SOL_PACKET, PACKET_RX_RING, &request)
        }
    };
    made.map_err(|errno| custody::memory("make ring", errno, layout.bytes()))
}

/// Lets a group's frames in through the interface's own filter, or everything. Gone with the socket.
fn add_membership(fd: BorrowedFd<'_>, interface: &Interface, group: Option<IpAddr>) -> Result<()> {
    let (kind, mapped) = match group.and_then(mac::multicast) {
        Some(mapped) => (PACKET_MR_MULTICAST, Some(mapped)),
        None => (PACKET_MR_PROMISC, None),
    };
    let mut request = packet::Membership {
        interface: interface.index as i32,
        kind,
        address_len: 6,
        address: [0; 8],
    };
    if let Some(mapped) = mapped {
        request.address[..6].copy_from_slice(&mapped.octets());
    }
    sys::set_option(fd, libc::SOL_PACKET, PACKET_ADD_MEMBERSHIP, &request).map_err(|errno| {
        let step = if mapped.is_some() {
            "let group in"
        } else {
            "set promiscuous"
        };
        Error::from_errno(step, errno).with_object(interface.name.clone())
    })
}

fn explain_fanout(errno: Errno, fanout: Fanout) -> Error {
    let error = Error::from_errno("join fanout group", errno)
        .with_object(format!("{} {}", fanout.group, fanout.name));
    match errno.raw() {
        libc::EINVAL | libc::EALREADY => error
            .with_detail("a group has one mode, one interface and one network namespace")
            .with_remedy("give every receiver of the group the same, or take another group"),
        libc::ENOSPC => error.with_remedy("fewer receivers in one group"),
        _ => error,
    }
}

/// Which clock stamps packets, after the interface was asked whether it has one.
pub(super) fn choose_clock(
    config: &ReceiverConfig,
    interface: &Interface,
) -> Result<Option<crate::kernel::Clock>> {
    // Any socket of the namespace will do to ask.
    let socket = socket2::Socket::new(socket2::Domain::IPV4, Type::DGRAM, None)
        .map_err(|error| Error::from_io("open socket", error))?;
    clock(config.timestamps, &socket, Some(interface))
}

/// What `layout::plan` answered nothing for.
pub(super) fn too_large(config: &ReceiverConfig) -> Error {
    Error::new(ErrorKind::MemoryLimit, "plan ring")
        .with_object(format!(
            "{} packets of {} bytes",
            config.ring, config.buffer_bytes
        ))
        .with_detail("the kernel counts the ring's slots in 32 bits")
        .with_remedy("set a smaller ring or smaller buffer_bytes")
}
