//! What the probe and its child tell each other: one request, then one event a line.
//!
//! Promises: each line of the child that is an event starts with [`MARK`], so that what a native library prints is told apart
//! from it. Does not do: versions; both ends are the same binary.

use serde::{Deserialize, Serialize};

/// In front of each event. A library that prints such a line on purpose is beyond what this guards against.
pub const MARK: &str = "\u{1e}lockgate-loader ";

/// What the child is to do. It first loads `library`, by the loader's own rules when that is a bare name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// Ask the library for its devices. Opens none of them.
    Enumerate {
        /// The verbs library.
        library: String,
    },
    /// Load one file more, a provider.
    Load {
        /// The verbs library.
        library: String,
        /// The file.
        file: String,
    },
    /// Open devices and try what they can do.
    Try {
        /// The verbs library.
        library: String,
        /// The devices by name; every one that is enumerated if there is none.
        devices: Vec<String>,
    },
}

impl Request {
    /// The verbs library.
    pub fn library(&self) -> &str {
        match self {
            Self::Enumerate { library }
            | Self::Load { library, .. }
            | Self::Try { library, .. } => library,
        }
    }
}

/// Something that may not return.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Step {
    /// Ask for the devices, which loads providers.
    Enumerate,
    /// Load a file.
    Load {
        /// The file, or the bare name.
        file: String,
    },
    /// Try something on a device.
    Try {
        /// The device.
        device: String,
        /// What: `open`, `pd`, `mr`, `cq`, `raw-qp`, `flow`, …
        what: String,
    },
}

/// How a trial ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// The library has no such entry.
    Absent,
    /// It worked; with what is worth telling, such as the firmware.
    Done(String),
    /// It failed with this error number.
    Failed(i32),
}

/// A device as the library enumerates it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// Such as `mlx5_0`.
    pub name: String,
    /// Such as `uverbs0`; empty for a device without a node.
    pub node: String,
    /// The GUID, in the order of the wire: the first byte is the most significant one.
    pub guid: [u8; 8],
}

/// What the child has to tell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Event {
    /// It is about to do this.
    Began {
        /// What.
        step: Step,
    },
    /// It is done.
    Done,
    /// The devices that the library found.
    Enumerated {
        /// In the library's order.
        devices: Vec<Device>,
    },
    /// What `ibv_is_fork_initialized` says: 0 disabled, 1 enabled, 2 not needed; none where the library does not have it.
    Fork {
        /// The answer.
        state: Option<i32>,
    },
    /// A file was loaded.
    Loaded {
        /// The file, or the bare name.
        file: String,
    },
    /// What is mapped once everything is loaded: the text of `/proc/self/maps`.
    Mapped {
        /// The text.
        maps: String,
    },
    /// The library gave no list of devices.
    NotEnumerated {
        /// The error number that it left.
        errno: i32,
    },
    /// A file could not be loaded.
    NotLoaded {
        /// The file, or the bare name.
        file: String,
        /// The loader's words.
        message: String,
    },
    /// A trial ended.
    Tried {
        /// The device.
        device: String,
        /// What was tried.
        what: String,
        /// How it ended.
        outcome: Outcome,
    },
}
