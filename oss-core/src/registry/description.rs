//! What a factory says about itself: name, version, kinds, capabilities, origin, availability.
//!
//! Promises: everything here is plain data. Making, copying or printing it opens, loads and probes nothing. Capabilities default
//! to "no": what is not listed is not claimed, and the core never passes a request for it on to the provider.

use std::borrow::Cow;
use std::fmt;
use std::path::PathBuf;

use serde::Serialize;

/// The sort of object that a provider opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Kind {
    /// A device runtime: streams, fences, copies.
    Device,
    /// Registered memory and one-sided transfers.
    Memory,
    /// Packets.
    Receiver,
}

impl Kind {
    /// The word for it in texts and configurations.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Device => "device",
            Self::Memory => "memory",
            Self::Receiver => "receiver",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One thing that a provider can claim. The number is its bit, and never changes: plugins carry it over the C boundary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
#[repr(u8)]
pub enum Capability {
    /// Receives IPv4.
    Ipv4 = 0,
    /// Receives IPv6.
    Ipv6 = 1,
    /// Joins multicast groups, and gives them back.
    Multicast = 2,
    /// Receives what is sent to one unicast address.
    Unicast = 3,
    /// Takes more than one group in one receiver.
    SeveralGroups = 4,
    /// Takes groups with different ports in one receiver.
    SeveralPorts = 5,
    /// Joins a group for named sources only.
    SourceFilter = 6,
    /// Selects one VLAN by its tag.
    VlanFilter = 7,
    /// Delivers the whole frame, not only the payload.
    WholeFrame = 8,
    /// Sleeps until something arrives.
    EventWait = 9,
    /// Spins without sleeping.
    BusyPoll = 10,
    /// Stamps packets with the system's clock.
    SoftwareTimestamps = 11,
    /// Stamps packets with the device's clock.
    HardwareTimestamps = 12,
    /// Offers a descriptor that an event loop can wait on.
    ReadinessFd = 13,
    /// Sees UDP checksums, so that a policy for bad ones can be kept.
    ChecksumPolicy = 14,
    /// Picks the interface by itself from the routing table when none is named.
    AnyInterface = 15,
}

/// Every capability, in the order of their bits.
const ALL: &[Capability] = &[
    Capability::Ipv4,
    Capability::Ipv6,
    Capability::Multicast,
    Capability::Unicast,
    Capability::SeveralGroups,
    Capability::SeveralPorts,
    Capability::SourceFilter,
    Capability::VlanFilter,
    Capability::WholeFrame,
    Capability::EventWait,
    Capability::BusyPoll,
    Capability::SoftwareTimestamps,
    Capability::HardwareTimestamps,
    Capability::ReadinessFd,
    Capability::ChecksumPolicy,
    Capability::AnyInterface,
];

impl Capability {
    /// Every capability that this version knows.
    #[must_use]
    pub const fn all() -> &'static [Self] {
        ALL
    }

    /// The word for it in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::AnyInterface => "any-interface",
            Self::BusyPoll => "busy-poll",
            Self::ChecksumPolicy => "checksum-policy",
            Self::EventWait => "event-wait",
            Self::HardwareTimestamps => "hardware-timestamps",
            Self::Ipv4 => "ipv4",
            Self::Ipv6 => "ipv6",
            Self::Multicast => "multicast",
            Self::ReadinessFd => "readiness-fd",
            Self::SeveralGroups => "several-groups",
            Self::SeveralPorts => "several-ports",
            Self::SoftwareTimestamps => "software-timestamps",
            Self::SourceFilter => "source-filter",
            Self::Unicast => "unicast",
            Self::VlanFilter => "vlan-filter",
            Self::WholeFrame => "whole-frame",
        }
    }
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The set of what a provider claims. Empty unless said otherwise.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Capabilities(u64);

impl Capabilities {
    /// Claims nothing.
    pub const NONE: Self = Self(0);

    /// Claims exactly what is listed.
    #[must_use]
    pub const fn of(list: &[Capability]) -> Self {
        let mut bits = 0;
        let mut at = 0;
        // A `for` loop isn't const yet.
        while at < list.len() {
            bits |= 1 << list[at] as u8;
            at += 1;
        }
        Self(bits)
    }

    /// Takes bits that crossed a C boundary; bits that this version doesn't know are kept and ignored.
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// The bits.
    #[must_use]
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// Whether `capability` is claimed.
    #[must_use]
    pub const fn has(self, capability: Capability) -> bool {
        self.0 & (1 << capability as u8) != 0
    }

    /// The same set with `capability` in it.
    #[must_use]
    pub const fn with(self, capability: Capability) -> Self {
        Self(self.0 | (1 << capability as u8))
    }

    /// The same set without `capability`.
    #[must_use]
    pub const fn without(self, capability: Capability) -> Self {
        Self(self.0 & !(1 << capability as u8))
    }

    /// What is claimed, in the order of the bits.
    pub fn iter(self) -> impl Iterator<Item = Capability> {
        ALL.iter().copied().filter(move |one| self.has(*one))
    }
}

impl fmt::Debug for Capabilities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

impl Serialize for Capabilities {
    /// A list of names.
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter())
    }
}

/// Where the code of a factory came from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
#[non_exhaustive]
pub enum Origin {
    /// Linked into this program.
    Linked {
        /// The crate, as Cargo names it.
        #[serde(rename = "crate")]
        crate_name: Cow<'static, str>,
        /// Its version.
        version: Cow<'static, str>,
    },
    /// Loaded from a file that the application named.
    Plugin {
        /// The file.
        path: PathBuf,
        /// SHA-256 of the file as it was loaded, in hexadecimal digits.
        sha256: String,
    },
}

impl Origin {
    /// The origin of code in the crate `crate_name`; see [`linked_origin!`](crate::linked_origin) for the calling crate.
    #[must_use]
    pub const fn linked(crate_name: &'static str, version: &'static str) -> Self {
        Self::Linked {
            crate_name: Cow::Borrowed(crate_name),
            version: Cow::Borrowed(version),
        }
    }
}

/// The [`Origin`] of the crate that calls the macro.
#[macro_export]
macro_rules! linked_origin {
    () => {
        $crate::registry::Origin::linked(
            ::core::env!("CARGO_PKG_NAME"),
            ::core::env!("CARGO_PKG_VERSION"),
        )
    };
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Linked {
                crate_name,
                version,
            } => write!(f, "crate {crate_name} {version}"),
            Self::Plugin { path, sha256 } => {
                write!(f, "plugin {} sha256 {sha256}", path.display())
            }
        }
    }
}

/// Whether a factory could open anything in this build on this platform, judged without touching the host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Availability {
    /// Nothing that is known without looking stands in the way.
    #[default]
    Available,
    /// It can't open anything here.
    Unavailable {
        /// Why not.
        reason: Unavailable,
    },
}

/// Why a provider can't be had.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "why", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Unavailable {
    /// Known, but the build left it out.
    NotBuiltIn {
        /// The Cargo package that carries it.
        package: Cow<'static, str>,
        /// The feature of that package that turns it on.
        feature: Cow<'static, str>,
    },
    /// Built against a link stub, which compiles without the native library and can't run.
    LinkStub {
        /// The library that is missing.
        library: Cow<'static, str>,
        /// What turns the stub off.
        remedy: Cow<'static, str>,
    },
    /// The platform can't carry it.
    Platform {
        /// What it needs.
        needs: Cow<'static, str>,
    },
    /// Offered, and refused by the registry or the loader.
    Rejected {
        /// The rule that it broke.
        rule: Cow<'static, str>,
    },
}

impl Unavailable {
    /// The one thing to do about it, where there is one.
    #[must_use]
    pub fn remedy(&self) -> Option<String> {
        match self {
            Self::NotBuiltIn { package, feature } => Some(format!(
                "rebuild with feature {feature} of package {package}"
            )),
            Self::LinkStub { remedy, .. } => Some(remedy.to_string()),
            Self::Platform { .. } | Self::Rejected { .. } => None,
        }
    }
}

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotBuiltIn { package, feature } => {
                write!(
                    f,
                    "known but not built in (feature {feature} of package {package})"
                )
            }
            Self::LinkStub { library, .. } => {
                write!(f, "built against a link stub in place of {library}")
            }
            Self::Platform { needs } => write!(f, "this platform has no {needs}"),
            Self::Rejected { rule } => write!(f, "rejected: {rule}"),
        }
    }
}

/// What a factory says about itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Description {
    /// The name that opens it: lower-case letters, digits, `-` and `_`, at most 32.
    pub name: Cow<'static, str>,
    /// The provider's own version.
    pub version: Cow<'static, str>,
    /// One line for people.
    pub summary: Cow<'static, str>,
    /// What it opens.
    pub kinds: Cow<'static, [Kind]>,
    /// What it claims.
    pub capabilities: Capabilities,
    /// Where its code came from.
    pub origin: Origin,
}

/// What an explicit look at the host found, as [`Factory::inspect`](crate::registry::Factory::inspect) returns it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Inspection {
    /// Whether an open could work, as far as could be seen.
    pub usable: bool,
    /// What was looked at and what was found, one line each.
    pub findings: Vec<String>,
    /// What to do, where something is in the way.
    pub remedy: Option<String>,
}

impl Inspection {
    /// An inspection that found nothing in the way.
    #[must_use]
    pub fn usable(findings: Vec<String>) -> Self {
        Self {
            usable: true,
            findings,
            remedy: None,
        }
    }

    /// An inspection that found an obstacle.
    #[must_use]
    pub fn unusable(findings: Vec<String>, remedy: Option<String>) -> Self {
        Self {
            usable: false,
            findings,
            remedy,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_capability_has_its_own_bit_and_name() {
        for (at, one) in ALL.iter().enumerate() {
            assert_eq!(*one as usize, at, "{one} stands at its bit");
        }
        let mut names: Vec<_> = ALL.iter().map(|one| one.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ALL.len());
    }

    #[test]
    fn nothing_is_claimed_unless_listed() {
        assert_eq!(Capabilities::default().iter().count(), 0);
        let set = Capabilities::of(&[Capability::Ipv6, Capability::VlanFilter]);
        assert!(set.has(Capability::Ipv6));
        assert!(!set.has(Capability::Ipv4));
        assert!(!set.without(Capability::Ipv6).has(Capability::Ipv6));
        assert_eq!(
            serde_json::to_string(&set).unwrap(),
            r#"["ipv6","vlan-filter"]"#
        );
    }
}
