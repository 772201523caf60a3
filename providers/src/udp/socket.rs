//! Opens the sockets of a plan, joins and leaves their groups, and explains what can go wrong.
//!
//! Promises: every step that fails is named, with its number and, where the cause is certain, what to do. Whatever was opened by
//! then is closed again, because it is owned. Does not do: receiving.

use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::num::NonZeroU32;
use std::os::fd::{AsFd, BorrowedFd};

use lockgate::receive::{Descriptor, ReceiverConfig, TimestampMode};
use lockgate::{Errno, Error, Result};
use socket2::{Domain, Protocol, SockAddr, Type};

use super::layout::Plan;
use super::options::Options;
use super::remedy;
use super::ring::{Clock, Drops, Source};
use super::sys;
use crate::kernel::membership;
pub(super) use crate::kernel::{Interface, clock};

/// The slots of the `SO_MEMINFO` array, of which the last is the drop counter.
type MemoryInfo = [u32; 9];

/// An open socket of a plan.
pub(super) struct Socket {
    socket: socket2::Socket,
    pub(super) plan: Plan,
}

impl Socket {
    /// Opens, sets up, binds and joins.
    pub(super) fn open(
        plan: &Plan,
        config: &ReceiverConfig,
        options: &Options,
        interface: Option<&Interface>,
    ) -> Result<Self> {
        let ip = plan.bind.ip();
        let domain = Domain::for_address(plan.bind);
        let socket = socket2::Socket::new(domain, Type::DGRAM.nonblocking(), Some(Protocol::UDP))
            .map_err(|error| remedy::open_socket(error, ip))?;
        let this = Self {
            socket,
            plan: plan.clone(),
        };
        this.set_up(config, options, interface)?;
        let address = match (plan.bind, interface) {
            // Addresses of interface or link scope mean nothing without the interface.
            (SocketAddr::V6(bind), Some(interface)) if bind.scope_id() == 0 && is_scoped(ip) => {
                SocketAddrV6::new(*bind.ip(), bind.port(), 0, interface.index).into()
            }
            (bind, _) => bind,
        };
        this.socket
            .bind(&SockAddr::from(address))
            .map_err(|error| remedy::bind(error, address))?;
        this.join(interface)?;
        Ok(this)
    }

    fn set_up(
        &self,
        config: &ReceiverConfig,
        options: &Options,
        interface: Option<&Interface>,
    ) -> Result<()> {
        let set = |result: std::io::Result<()>, step| {
            result.map_err(|error| remedy::option(Error::from_io(step, error)))
        };
        let switch = |level, name, value: i32, step| {
            sys::set_option(self, level, name, &value)
                .map_err(|errno| remedy::option(Error::from_errno(step, errno)))
        };
        if self.plan.bind.is_ipv6() {
            set(self.socket.set_only_v6(true), "set IPV6_V6ONLY")?;
            // Off, so that another socket's membership brings nothing here. Linux 4.20.
            set(
                self.socket.set_multicast_all_v6(false),
                "set IPV6_MULTICAST_ALL",
            )?;
        } else {
            set(
                self.socket.set_multicast_all_v4(false),
                "set IP_MULTICAST_ALL",
            )?;
        }
        if self.plan.is_multicast() {
            // Every process that receives a group needs its own copy.
            set(self.socket.set_reuse_address(true), "set SO_REUSEADDR")?;
        }
        if options.reuse_port {
            set(self.socket.set_reuse_port(true), "set SO_REUSEPORT")?;
        }
        if let Some(interface) = interface.filter(|_| self.is_tied()) {
            self.tie(interface.index)
                .map_err(|errno| remedy::tie(errno, &interface.name))?;
        }
        switch(libc::SOL_SOCKET, libc::SO_RXQ_OVFL, 1, "set SO_RXQ_OVFL")?;
        if let Some(flags) = timestamp_flags(config.timestamps) {
            switch(
                libc::SOL_SOCKET,
                libc::SO_TIMESTAMPING,
                flags as i32,
                "set SO_TIMESTAMPING",
            )?;
        }
        if let Some(micros) = options.busy_poll {
            sys::set_option(self, libc::SOL_SOCKET, libc::SO_BUSY_POLL, &(micros as i32))
                .map_err(|errno| remedy::busy_poll(errno, micros))?;
        }
        if options.gro {
            switch(libc::SOL_UDP, libc::UDP_GRO, 1, "set UDP_GRO")?;
        }
        if self.plan.packet_info {
            if self.plan.bind.is_ipv6() {
                let (level, name) = (libc::SOL_IPV6, libc::IPV6_RECVPKTINFO);
                switch(level, name, 1, "set IPV6_RECVPKTINFO")?;
            } else {
                switch(libc::SOL_IP, libc::IP_PKTINFO, 1, "set IP_PKTINFO")?;
            }
        }
        self.size_buffer(config, options)
    }

    /// Sets the receive buffer to what is asked for, or so that it holds the ring, if that is more than the system's default.
    fn size_buffer(&self, config: &ReceiverConfig, options: &Options) -> Result<()> {
        let asked = asked_buffer(config, options);
        let fail = |error: std::io::Error| {
            remedy::option(Error::from_io("set SO_RCVBUF", error)).with_object(asked.to_string())
        };
        if options.force_receive_buffer {
            return sys::set_option(
                self,
                libc::SOL_SOCKET,
                libc::SO_RCVBUFFORCE,
                &(asked as i32),
            )
            .map_err(|errno| remedy::force_buffer(errno, asked));
        }
        if options.receive_buffer.is_none() && self.granted_buffer()? >= asked {
            return Ok(());
        }
        self.socket
            .set_recv_buffer_size(asked as usize)
            .map_err(fail)
    }

    /// The receive buffer as the kernel granted it, in the unit of `SO_RCVBUF` and of `net.core.rmem_max`: without the part that the
    /// kernel adds for its own overhead, which is as much again.
    pub(super) fn granted_buffer(&self) -> Result<u32> {
        let doubled = self
            .socket
            .recv_buffer_size()
            .map_err(|error| Error::from_io("read SO_RCVBUF", error))?;
        Ok(u32::try_from(doubled / 2).unwrap_or(u32::MAX))
    }

    /// `SO_BUSY_POLL` as it stands, in microseconds.
    pub(super) fn busy_poll(&self) -> Option<i32> {
        sys::option(self, libc::SOL_SOCKET, libc::SO_BUSY_POLL, 0).ok()
    }

    /// The kernel's count of what it dropped at this socket, modulo 2^32.
    pub(super) fn drops(&self) -> Result<u32, Errno> {
        let info: MemoryInfo = sys::option(self, libc::SOL_SOCKET, libc::SO_MEMINFO, [0; 9])?;
        Ok(info[libc::SK_MEMINFO_DROPS as usize])
    }

    /// Whether the socket takes nothing from other interfaces because it is bound to one. IPv4 memberships are tied to theirs by
    /// the kernel; IPv6 ones are not, and unicast knows no membership.
    fn is_tied(&self) -> bool {
        self.plan.bind.is_ipv6() || !self.plan.is_multicast()
    }

    /// Binds the socket to an interface. Linux 5.7 for the first time without privilege; again only with `CAP_NET_RAW`.
    fn tie(&self, index: u32) -> Result<(), Errno> {
        sys::set_option(
            self,
            libc::SOL_SOCKET,
            libc::SO_BINDTOIFINDEX,
            &(index as i32),
        )
    }

    /// Ties the socket to an interface that came back under another index.
    pub(super) fn tie_again(&self, interface: &Interface) -> Result<()> {
        if !self.is_tied() {
            return Ok(());
        }
        self.tie(interface.index)
            .map_err(|errno| remedy::tie_again(errno, &interface.name))
    }

    /// Joins every group of the plan.
    pub(super) fn join(&self, interface: Option<&Interface>) -> Result<()> {
        for group in &self.plan.groups {
            membership::join(&self.socket, group, interface)
                .map_err(|failure| failure.explained(group, interface))?;
        }
        Ok(())
    }

    /// Leaves every group of the plan. A membership that is gone already is none of the caller's business.
    pub(super) fn leave(&self, index: u32) {
        for group in &self.plan.groups {
            membership::leave(&self.socket, group, index);
        }
    }

    /// What all datagrams of this socket have in common.
    pub(super) fn source(&self, interface: Option<&Interface>, clock: Option<Clock>) -> Source {
        let mut template = Descriptor::payload(0, 0, 0);
        template.set_destination(self.plan.bind.ip(), self.plan.bind.port());
        template.interface = interface
            .and_then(|interface| NonZeroU32::new(interface.index))
            .map_or(0, NonZeroU32::get);
        let only = self.plan.must_filter().then(|| {
            let mut all: Vec<[u8; 16]> = self
                .plan
                .groups
                .iter()
                .map(|group| {
                    let mut one = Descriptor::default();
                    one.set_destination(group.address, 0);
                    one.destination
                })
                .collect();
            all.sort_unstable();
            all.into_boxed_slice()
        });
        Source {
            template,
            only,
            clock,
            drops: Drops::default(),
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// The receive buffer that a configuration asks for, in the unit of `SO_RCVBUF`.
pub(super) fn asked_buffer(config: &ReceiverConfig, options: &Options) -> u32 {
    /// What the kernel charges for a packet beside its data: `struct sk_buff` and `struct skb_shared_info`, 256 and 320
    /// bytes on 64-bit machines, with the data rounded up to a power of two.
    const OVERHEAD: u64 = 576;
    options.receive_buffer.unwrap_or_else(|| {
        let packet = (u64::from(config.mtu) + OVERHEAD).next_power_of_two();
        // The kernel doubles what it is asked for.
        let bytes = u64::from(config.ring) * packet / 2;
        u32::try_from(bytes)
            .unwrap_or(u32::MAX)
            .min(i32::MAX as u32 / 2)
    })
}

pub(super) fn timestamp_flags(mode: TimestampMode) -> Option<u32> {
    match mode {
        TimestampMode::Software => {
            Some(libc::SOF_TIMESTAMPING_RX_SOFTWARE | libc::SOF_TIMESTAMPING_SOFTWARE)
        }
        TimestampMode::Hardware => {
            Some(libc::SOF_TIMESTAMPING_RX_HARDWARE | libc::SOF_TIMESTAMPING_RAW_HARDWARE)
        }
        _ => None,
    }
}

/// Whether an address means something on one interface only: link-local unicast, and groups of interface or link scope.
pub(super) fn is_scoped(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(_) => false,
        IpAddr::V6(address) => {
            let scope = address.segments()[0] & 0xff0f;
            address.is_unicast_link_local() || matches!(scope, 0xff01 | 0xff02)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_becomes_a_buffer_that_holds_it_with_the_kernels_overhead() {
        let mut config = ReceiverConfig::default();
        let mut options = Options::default();
        // 1500 + 576 rounded up is 4096; the kernel doubles.
        assert_eq!(asked_buffer(&config, &options), 1024 * 4096 / 2);
        config.ring = 1 << 22;
        config.mtu = 65_535;
        assert_eq!(asked_buffer(&config, &options), i32::MAX as u32 / 2);
        options.receive_buffer = Some(4096);
        assert_eq!(asked_buffer(&config, &options), 4096);
    }

    #[test]
    fn scoped_addresses_are_known() {
        for (address, scoped) in [
            ("239.1.1.1", false),
            ("fe80::1", true),
            ("ff02::1", true),
            ("ff12::1", true),
            ("ff11::1", true),
            ("ff15::1", false),
            ("ff0e::1", false),
            ("2001:db8::1", false),
        ] {
            assert_eq!(is_scoped(address.parse().unwrap()), scoped, "{address}");
        }
    }
}
