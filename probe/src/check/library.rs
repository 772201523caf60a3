//! The verbs library: what the loader would map, what it did map, and how that went.
//!
//! Promises: files are read, and the loading is left to a child. Does not do: judging.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use lockgate_probe_loader::{Device, Event, Request, Step};
use serde::Serialize;

use super::child::{self, Account, End};
use crate::linkage::{Found, Image, Loader, Search, VERBS, identity};

/// The verbs library, before and after it was loaded.
#[derive(Debug, Serialize)]
pub(crate) struct Library {
    /// The name that is asked for.
    pub(crate) name: &'static str,
    /// Where the loader would look and what it would take.
    pub(crate) search: Search,
    /// What the file says of itself, or why it can't be read.
    pub(crate) file: Option<FileFacts>,
    /// How loading and enumerating went.
    pub(crate) loading: Loading,
    /// Every file with a copy of the library that was mapped.
    pub(crate) mapped: Vec<PathBuf>,
    /// What `ibv_is_fork_initialized` says.
    pub(crate) fork: Option<&'static str>,
    /// The devices it enumerates; none if it did not get that far.
    pub(crate) enumerated: Option<Vec<Enumerated>>,
    /// What it and its drivers wrote to the standard error.
    pub(crate) messages: Vec<String>,
}

/// What the file of the library says of itself.
#[derive(Debug, Serialize)]
pub(crate) struct FileFacts {
    /// Class and machine.
    pub(crate) architecture: String,
    /// The highest version of the public interface.
    pub(crate) highest: Option<String>,
    /// The number of the private ABI that drivers have to have.
    pub(crate) private_abi: Option<u32>,
    /// Whether it has `ibv_reg_dmabuf_mr`.
    pub(crate) dmabuf: bool,
    /// The pattern of its drivers' paths.
    pub(crate) driver_pattern: Option<String>,
    /// The folder with the files that name them.
    pub(crate) config_folder: Option<String>,
}

/// How loading and enumerating went.
#[derive(Debug, Serialize)]
pub(crate) struct Loading {
    /// How the child ended.
    pub(crate) end: End,
    /// What it was doing when it ended early.
    pub(crate) step: Option<String>,
    /// The loader's words, if it refused the library.
    pub(crate) refused: Option<String>,
    /// The error number of the enumeration, if there was one.
    pub(crate) errno: Option<i32>,
}

/// A device as the library enumerates it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Enumerated {
    /// Its name.
    pub(crate) name: String,
    /// Its node.
    pub(crate) node: String,
    /// Its GUID.
    pub(crate) guid: String,
}

impl Library {
    /// Looks, and has a child load it.
    pub(crate) fn look(loader: &mut Loader, limit: Duration) -> (Self, Option<(Found, Image)>) {
        let exe = Path::new("/proc/self/exe");
        let search = match Image::outline(exe) {
            Ok(own) => loader.find(VERBS, exe, &own),
            Err(_) => Search::default(),
        };
        let image = search.found.as_ref().and_then(|found| {
            let image = loader.image(&found.path).as_ref().ok()?;
            Some((found.clone(), image.clone()))
        });
        let request = Request::Enumerate {
            library: VERBS.to_owned(),
        };
        let account = child::ask(&request, limit);
        let mapped = copies(&account, loader);
        let library = Self {
            name: VERBS,
            file: image.as_ref().map(|(_, image)| FileFacts::of(image)),
            search,
            loading: Loading::of(&account),
            mapped,
            fork: fork(&account),
            enumerated: enumerated(&account),
            messages: account.messages,
        };
        (library, image)
    }

    /// Whether the process ended or hung at this kind of step.
    pub(crate) fn broke_while_enumerating(&self) -> bool {
        self.loading.step.as_deref() == Some(ENUMERATING)
            && !matches!(self.loading.end, End::Done | End::NotStarted { .. })
    }

    /// Whether the library could be loaded.
    pub(crate) fn loaded(&self) -> bool {
        self.loading.refused.is_none()
            && (matches!(self.loading.end, End::Done) || self.broke_while_enumerating())
    }
}

const ENUMERATING: &str = "asking for the devices";

/// A step in words.
pub(crate) fn step_text(step: &Step) -> String {
    match step {
        Step::Enumerate => ENUMERATING.to_owned(),
        Step::Load { file } => format!("loading {file}"),
        Step::Try { device, what } => format!("trying {what} on {device}"),
    }
}

impl FileFacts {
    fn of(image: &Image) -> Self {
        Self {
            architecture: image.architecture.text(),
            highest: image.highest_verbs().map(str::to_owned),
            private_abi: image.private_abi(),
            dmabuf: image.defines.iter().any(|name| name == "IBVERBS_1.12"),
            driver_pattern: image.verbs.driver_pattern.clone(),
            config_folder: image.verbs.config_folder.clone(),
        }
    }
}

impl Loading {
    fn of(account: &Account) -> Self {
        let refused = account.events.iter().find_map(|event| match event {
            Event::NotLoaded { message, .. } => Some(message.clone()),
            _ => None,
        });
        let errno = account.events.iter().find_map(|event| match event {
            Event::NotEnumerated { errno } => Some(*errno),
            _ => None,
        });
        Self {
            end: account.end.clone(),
            step: account.open_step().map(step_text),
            refused,
            errno,
        }
    }
}

fn fork(account: &Account) -> Option<&'static str> {
    account.events.iter().find_map(|event| match event {
        Event::Fork { state: Some(0) } => Some("disabled"),
        Event::Fork { state: Some(1) } => Some("enabled"),
        Event::Fork { state: Some(2) } => Some("not needed"),
        _ => None,
    })
}

fn enumerated(account: &Account) -> Option<Vec<Enumerated>> {
    account.events.iter().find_map(|event| match event {
        Event::Enumerated { devices } => Some(devices.iter().map(Enumerated::of).collect()),
        _ => None,
    })
}

impl Enumerated {
    fn of(device: &Device) -> Self {
        let pairs: Vec<String> = device
            .guid
            .chunks(2)
            .map(|pair| pair.iter().map(|byte| format!("{byte:02x}")).collect())
            .collect();
        Self {
            name: device.name.clone(),
            node: device.node.clone(),
            guid: pairs.join(":"),
        }
    }
}

/// The files that the child had mapped and that have a copy of the library: by what is in them, whatever their names.
fn copies(account: &Account, loader: &mut Loader) -> Vec<PathBuf> {
    let maps = account.events.iter().rev().find_map(|event| match event {
        Event::Mapped { maps } => Some(maps.as_str()),
        _ => None,
    });
    let mut files: BTreeMap<(u64, u64), PathBuf> = BTreeMap::new();
    for path in maps.unwrap_or_default().lines().filter_map(mapped_file) {
        if let Some(identity) = identity(path) {
            files.entry(identity).or_insert_with(|| path.to_owned());
        }
    }
    // This program is mapped as well, and is none; it is large.
    let own = identity(Path::new("/proc/self/exe"));
    let mut copies: Vec<PathBuf> = files
        .into_iter()
        .filter(|(identity, _)| Some(*identity) != own)
        .map(|(_, path)| path)
        .filter(|path| {
            loader
                .image(path)
                .as_ref()
                .is_ok_and(|image| image.verbs.copy)
        })
        .collect();
    copies.sort();
    copies
}

/// The path at the end of a line of `/proc/self/maps`, if it is one of a file.
fn mapped_file(line: &str) -> Option<&Path> {
    let at = line.find('/')?;
    Some(Path::new(line.get(at..)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_maps_give_files_only() {
        let line = "7f00-7f10 r-xp 00000000 fe:00 12 /usr/lib/a b.so";
        assert_eq!(mapped_file(line), Some(Path::new("/usr/lib/a b.so")));
        assert_eq!(mapped_file("7f00-7f10 rw-p 00000000 00:00 0 [heap]"), None);
        assert_eq!(mapped_file(""), None);
    }

    #[test]
    fn guids_are_in_the_order_of_the_wire() {
        let device = Device {
            name: "a".to_owned(),
            node: "b".to_owned(),
            guid: [0, 1, 2, 3, 4, 5, 6, 0xff],
        };
        assert_eq!(Enumerated::of(&device).guid, "0001:0203:0405:06ff");
    }
}
