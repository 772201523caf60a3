//! What a receiver has delivered, and what was lost where.
//!
//! Promises: a place that a provider can't count is [`None`], never zero. Does not do: rates. Whoever asks twice can subtract.

use serde::Serialize;

/// Totals since the receiver was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Statistics {
    /// Packets delivered in batches.
    pub packets: u64,
    /// Their payload, in bytes.
    pub bytes: u64,
    /// Batches that had at least one packet.
    pub batches: u64,
    /// What was lost, by place.
    pub losses: Losses,
}

/// Packets that were meant for the receiver and not delivered, by the place where they were lost. `None`: can't be counted there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Losses {
    /// Dropped by the kernel because the socket's receive buffer was full.
    pub kernel_drop: Option<u64>,
    /// Dropped because the provider's ring was full.
    pub ring_full: Option<u64>,
    /// Dropped because the device had no buffer posted.
    pub no_buffer: Option<u64>,
    /// Longer than the buffer; refused, not delivered cut.
    pub truncated: Option<u64>,
    /// Arrived, and did not match the configured groups, sources, ports or VLAN.
    pub filtered: Option<u64>,
    /// Bad UDP or IP checksum, refused by policy.
    pub checksum: Option<u64>,
    /// An IP fragment: refused, because a part of a datagram is not a datagram.
    pub fragment: Option<u64>,
    /// Headers that contradict each other.
    pub malformed: Option<u64>,
}

impl Losses {
    /// Name and count of each place, in a fixed order.
    #[must_use]
    pub const fn by_place(&self) -> [(&'static str, Option<u64>); 8] {
        [
            ("kernel-drop", self.kernel_drop),
            ("ring-full", self.ring_full),
            ("no-buffer", self.no_buffer),
            ("truncated", self.truncated),
            ("filtered", self.filtered),
            ("checksum", self.checksum),
            ("fragment", self.fragment),
            ("malformed", self.malformed),
        ]
    }

    /// The sum over all places that can be counted, without what was only filtered: that was not meant to be delivered.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.by_place()
            .iter()
            .filter(|(place, _)| *place != "filtered")
            .filter_map(|(_, count)| *count)
            .sum()
    }
}

/// Something that happened to an open receiver besides packets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Event {
    /// The interface lost its link or was set down.
    LinkDown {
        /// The interface.
        interface: String,
    },
    /// The interface has its link again.
    LinkUp {
        /// The interface.
        interface: String,
    },
    /// The interface is gone. Nothing more will arrive.
    InterfaceRemoved {
        /// The interface.
        interface: String,
    },
    /// A group was joined again.
    Rejoined {
        /// The group.
        group: std::net::IpAddr,
        /// The interface.
        interface: String,
    },
    /// The device failed for good. Nothing more will arrive.
    DeviceFatal {
        /// The device.
        device: String,
    },
    /// A decorator could not write its recording any further. Packets are delivered as before, and no longer recorded.
    RecordingStopped {
        /// What was written to: a path.
        target: String,
        /// The operating system's error number, where there is one.
        errno: Option<crate::Errno>,
        /// What went wrong.
        problem: String,
    },
    /// Something that the provider tells and that has no variant of its own.
    Other {
        /// What it told.
        text: String,
    },
}

impl Event {
    /// The word for it in texts, counters and JSON.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::DeviceFatal { .. } => "device-fatal",
            Self::InterfaceRemoved { .. } => "interface-removed",
            Self::LinkDown { .. } => "link-down",
            Self::LinkUp { .. } => "link-up",
            Self::Other { .. } => "other",
            Self::RecordingStopped { .. } => "recording-stopped",
            Self::Rejoined { .. } => "rejoined",
        }
    }
}

/// What a receiver asked for and what it was granted, as the operating system or the device reports it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Setting {
    /// The setting, as the configuration calls it.
    pub name: &'static str,
    /// What was asked for.
    pub asked: String,
    /// What was granted.
    pub granted: String,
    /// What to do, where less was granted than asked for.
    pub warning: Option<String>,
}
