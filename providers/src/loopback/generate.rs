//! A receiver that makes its own packets: a numbered stream whose every byte follows from a seed.
//!
//! Promises: the same stream for the same seed; nothing is made that the ring has no room for, so that what is lost was lost by
//! the plan. Does not do: sending to other receivers.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use lockgate::receive::ReceiverConfig;
use serde::Deserialize;

use super::Datagram;

/// The option `generate`.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Generate {
    /// How many packets.
    pub(super) count: u64,
    /// Bytes of payload.
    #[serde(default = "default_size")]
    pub(super) size: u32,
    /// Packets a second; 0 for as fast as they are taken.
    #[serde(default)]
    pub(super) rate: u64,
    /// What the bytes follow from.
    #[serde(default)]
    pub(super) seed: u64,
}

fn default_size() -> u32 {
    64
}

/// What the option may say.
pub(super) const ALLOWED: &str = "a table of count (1 or more), size (8 to buffer_bytes, at most 65507; default 64), rate (packets a second; default 0, flat out) and seed (default 0)";

/// The stream at work.
pub(super) struct Generator {
    order: Generate,
    started: Duration,
    made: u64,
    /// From where to where; they take turns.
    ways: Vec<(SocketAddr, SocketAddr)>,
    vlan: Option<u16>,
    payload: Box<[u8]>,
}

impl Generator {
    pub(super) fn new(order: Generate, config: &ReceiverConfig, now: Duration) -> Self {
        let from = |source: Option<&IpAddr>, to: SocketAddr| {
            let own: IpAddr = match to {
                SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
                SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
            };
            // A receiver with a source filter takes packets of its own stream too.
            (SocketAddr::new(source.copied().unwrap_or(own), 9), to)
        };
        let groups = config.groups.iter();
        let mut ways: Vec<_> = groups
            .map(|group| from(group.sources.first(), group.socket_address()))
            .collect();
        ways.extend(config.unicast.map(|to| from(None, to)));
        Self {
            order,
            started: now,
            made: 0,
            ways,
            vlan: config.vlan,
            payload: vec![0; order.size as usize].into(),
        }
    }

    /// How many packets are due and not yet made.
    pub(super) fn due(&self, now: Duration) -> u64 {
        let total = if self.order.rate == 0 {
            self.order.count
        } else {
            let since = now.saturating_sub(self.started).as_nanos();
            // The first one is due at once.
            let due = since * u128::from(self.order.rate) / 1_000_000_000 + 1;
            u64::try_from(due).unwrap_or(u64::MAX).min(self.order.count)
        };
        total.saturating_sub(self.made)
    }

    /// When the next packet is due; nothing after the last one.
    pub(super) fn next_due(&self) -> Option<Duration> {
        if self.is_done() {
            return None;
        }
        if self.order.rate == 0 {
            return Some(self.started);
        }
        let nanos = (u128::from(self.made) * 1_000_000_000).div_ceil(u128::from(self.order.rate));
        let since = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        Some(self.started.saturating_add(since))
    }

    pub(super) fn is_done(&self) -> bool {
        self.made >= self.order.count
    }

    /// Makes the next packet; the groups take turns.
    pub(super) fn make(&mut self) -> Option<Datagram<'_>> {
        let turn = usize::try_from(self.made % self.ways.len().max(1) as u64).ok()?;
        let (source, destination) = *self.ways.get(turn)?;
        stream::fill(self.order.seed, self.made, &mut self.payload);
        self.made += 1;
        Some(Datagram {
            source,
            destination,
            payload: &self.payload,
            vlan: self.vlan,
        })
    }
}

/// The bytes of a generated packet, for whoever wants to verify them.
pub mod stream {
    /// The shortest payload that carries a number.
    pub const LEAST: usize = 8;

    /// Writes packet `number` of the stream of `seed`: the number in big-endian order, then bytes that follow from both.
    ///
    /// A payload shorter than [`LEAST`] has the beginning of the number.
    pub fn fill(seed: u64, number: u64, payload: &mut [u8]) {
        let head = number.to_be_bytes();
        let cut = payload.len().min(LEAST);
        payload[..cut].copy_from_slice(&head[..cut]);
        for (at, word) in payload[cut..].chunks_mut(8).enumerate() {
            let bytes = mix(seed ^ mix(number).wrapping_add(at as u64)).to_be_bytes();
            word.copy_from_slice(&bytes[..word.len()]);
        }
    }

    /// The number of a packet of the stream of `seed`, if every byte is as it was made.
    #[must_use]
    pub fn verify(seed: u64, payload: &[u8]) -> Option<u64> {
        let head = payload.first_chunk::<LEAST>()?;
        let number = u64::from_be_bytes(*head);
        payload[LEAST..]
            .chunks(8)
            .enumerate()
            .all(|(at, word)| {
                let bytes = mix(seed ^ mix(number).wrapping_add(at as u64)).to_be_bytes();
                word == &bytes[..word.len()]
            })
            .then_some(number)
    }

    /// SplitMix64's finaliser (Steele, Lea, Flood 2014).
    fn mix(value: u64) -> u64 {
        let mut z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}
