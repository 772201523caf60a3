//! A multicast group: address, port and, if only some sources are wanted, those.
//!
//! Promises: reads `"239.7.7.7:47000"`, `"[ff15::7]:47000"` or a table. Does not do: judging whether the address is a multicast
//! address; validation does, with every other fault.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use serde::de::{self, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A multicast group and the port to receive on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Group {
    /// The group's address.
    pub address: IpAddr,
    /// The UDP port.
    pub port: u16,
    /// Only from these sources; from any if empty.
    pub sources: Vec<IpAddr>,
}

impl Group {
    /// A group from any source.
    #[must_use]
    pub const fn new(address: IpAddr, port: u16) -> Self {
        Self {
            address,
            port,
            sources: Vec::new(),
        }
    }

    /// The same group, only from `sources`.
    #[must_use]
    pub fn from_sources(mut self, sources: impl IntoIterator<Item = IpAddr>) -> Self {
        self.sources = sources.into_iter().collect();
        self
    }

    /// Address and port.
    #[must_use]
    pub const fn socket_address(&self) -> SocketAddr {
        SocketAddr::new(self.address, self.port)
    }
}

impl From<SocketAddr> for Group {
    /// The scope of an IPv6 address is left out: the interface of the configuration says where a group is joined.
    fn from(address: SocketAddr) -> Self {
        Self::new(address.ip(), address.port())
    }
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.socket_address())
    }
}

/// A text that is not an address with a port.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("group: value {text:?} {}", wrong(text))]
pub struct ParseGroupError {
    /// The text.
    pub text: String,
}

/// A scope is a mistake of its own: the rest of the text is an address with a port.
fn wrong(text: &str) -> &'static str {
    match text.parse::<SocketAddr>() {
        Ok(_) => "has a scope; allowed: the address without it, and the interface in interface",
        Err(_) => {
            "is not an address with a port; allowed: \"239.7.7.7:47000\" or \"[ff15::7]:47000\""
        }
    }
}

impl FromStr for Group {
    type Err = ParseGroupError;

    fn from_str(text: &str) -> Result<Self, ParseGroupError> {
        match text.parse::<SocketAddr>() {
            // To drop it would join on another interface than the one that is named.
            Ok(SocketAddr::V6(address)) if address.scope_id() != 0 => Err(()),
            Ok(address) => Ok(Self::from(address)),
            Err(_) => Err(()),
        }
        .map_err(|()| ParseGroupError {
            text: text.to_owned(),
        })
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    address: IpAddr,
    port: u16,
    #[serde(default)]
    sources: Vec<IpAddr>,
}

impl Serialize for Group {
    /// The short text where there are no sources, else a table.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.sources.is_empty() {
            return serializer.collect_str(self);
        }
        Table {
            address: self.address,
            port: self.port,
            sources: self.sources.clone(),
        }
        .serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Group {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Form;

        impl<'de> Visitor<'de> for Form {
            type Value = Group;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(
                    "a group: \"239.7.7.7:47000\" or a table with address, port and sources",
                )
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Group, E> {
                text.parse().map_err(E::custom)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Group, A::Error> {
                let table = Table::deserialize(de::value::MapAccessDeserializer::new(map))?;
                Ok(Group {
                    address: table.address,
                    port: table.port,
                    sources: table.sources,
                })
            }
        }

        deserializer.deserialize_any(Form)
    }
}
