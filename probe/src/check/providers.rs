//! The drivers of the verbs library: who names them, which file each name leads to, and whether that file fits.
//!
//! Promises: names are resolved as libibverbs does it: an absolute path, else its folder, else the loader's search; folder, suffix and
//! configuration folder are the ones that the library itself has among its texts. Does not do: loading drivers, except for
//! [`suspects`], in one child each, once the library has crashed or hung among them.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use lockgate_probe_loader::{Event, Request};
use serde::Serialize;

use super::child::{self, End};
use crate::linkage::{Closure, Found, Image, Loader, VERBS};

/// The drivers and who names them.
#[derive(Debug, Serialize)]
pub(crate) struct Providers {
    /// The folder with the files that name drivers.
    pub(crate) folder: PathBuf,
    /// Why it could not be read, if it could not.
    pub(crate) folder_fault: Option<String>,
    /// The environment variable that names drivers, with its value.
    pub(crate) environment: Option<(&'static str, String)>,
    /// Lines that the library does not understand, with their file.
    pub(crate) ignored: Vec<String>,
    /// Each driver.
    pub(crate) drivers: Vec<Driver>,
}

/// One driver.
#[derive(Debug, Serialize)]
pub(crate) struct Driver {
    /// As it is named.
    pub(crate) name: String,
    /// Who names it: a file, or a variable.
    pub(crate) named_by: String,
    /// The file that it leads to.
    pub(crate) file: Option<PathBuf>,
    /// Why the file does not fit, if it does not.
    pub(crate) fault: Option<Fault>,
    /// How a child ended that loaded it, where one had to.
    pub(crate) end: Option<End>,
}

/// Why a driver does not fit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub(crate) enum Fault {
    /// It is for another private ABI than the library's.
    Abi {
        /// The file.
        file: PathBuf,
        /// What it is for.
        wants: u32,
        /// What the library has.
        library: u32,
    },
    /// It is not there.
    Absent {
        /// Where it was looked for.
        looked: Vec<PathBuf>,
    },
    /// It is of another architecture.
    Architecture {
        /// The file.
        file: PathBuf,
        /// What it is.
        is: String,
        /// What is wanted.
        wanted: String,
    },
    /// It can't be read, or needs a library that is not there, or the loader refuses it.
    Broken {
        /// The file.
        file: PathBuf,
        /// Why.
        reason: String,
    },
    /// It needs symbol versions that are not there.
    Versions {
        /// The file.
        file: PathBuf,
        /// Of which library.
        library: String,
        /// The file that would be taken for it.
        library_file: PathBuf,
        /// Which.
        versions: Vec<String>,
    },
}

impl Providers {
    /// Looks at every driver that is named.
    pub(crate) fn look(library: Option<&(Found, Image)>, loader: &mut Loader) -> Self {
        let traces = library.map(|(_, image)| &image.verbs);
        let folder = traces
            .and_then(|traces| traces.config_folder.as_deref())
            .unwrap_or("/etc/libibverbs.d");
        let mut providers = Self {
            folder: PathBuf::from(folder),
            folder_fault: None,
            environment: environment(),
            ignored: Vec::new(),
            drivers: Vec::new(),
        };
        let mut named = providers.named_in_environment();
        match providers.named_in_folder() {
            Ok(more) => named.extend(more),
            Err(error) => providers.folder_fault = Some(error.to_string()),
        }
        let Some((found, image)) = library else {
            return providers; // without the library nothing can be resolved
        };
        for (name, named_by) in named {
            if providers.drivers.iter().any(|driver| driver.name == name) {
                continue;
            }
            let driver = resolve(name, named_by, &found.path, image, loader);
            providers.drivers.push(driver);
        }
        providers
    }

    /// The driver of that name.
    pub(crate) fn driver(&self, name: &str) -> Option<&Driver> {
        self.drivers
            .iter()
            .find(|driver| driver.short_name() == name)
    }

    fn named_in_environment(&self) -> Vec<(String, String)> {
        let Some((variable, value)) = &self.environment else {
            return Vec::new();
        };
        let names = value.split([':', ';']).filter(|name| !name.is_empty());
        names
            .map(|name| (name.to_owned(), (*variable).to_owned()))
            .collect()
    }

    fn named_in_folder(&mut self) -> io::Result<Vec<(String, String)>> {
        let mut files = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            let path = entry?.path();
            if path.is_file() {
                files.push(path);
            }
        }
        files.sort();
        let mut named = Vec::new();
        for file in files {
            let text = match fs::read_to_string(&file) {
                Ok(text) => text,
                Err(error) => {
                    self.ignored.push(format!("{}: {error}", file.display()));
                    continue;
                }
            };
            for line in text.lines().map(str::trim_start) {
                let mut words = line.split_whitespace();
                match (words.next(), words.next()) {
                    (None, _) => {}
                    (Some(first), _) if first.starts_with('#') => {}
                    (Some("driver"), Some(name)) => {
                        named.push((name.to_owned(), file.display().to_string()));
                    }
                    _ => self.ignored.push(format!("{}: {line:?}", file.display())),
                }
            }
        }
        Ok(named)
    }
}

impl Driver {
    /// The name without the folder and the `lib` of an absolute path.
    pub(crate) fn short_name(&self) -> &str {
        let last = self.name.rsplit('/').next().unwrap_or(&self.name);
        if self.name.starts_with('/') {
            last.strip_prefix("lib").unwrap_or(last)
        } else {
            last
        }
    }
}

fn environment() -> Option<(&'static str, String)> {
    // The library ignores both in a program with changed rights, which this is not. The first one hides the second.
    ["RDMAV_DRIVERS", "IBV_DRIVERS"]
        .into_iter()
        .find_map(|name| Some((name, std::env::var(name).ok()?)))
}

fn resolve(
    name: String,
    named_by: String,
    library: &Path,
    image: &Image,
    loader: &mut Loader,
) -> Driver {
    let mut driver = Driver {
        name,
        named_by,
        file: None,
        fault: None,
        end: None,
    };
    let abi = image.private_abi();
    let pattern = image.verbs.driver_pattern.clone();
    let suffix = match (&pattern, abi) {
        (Some(pattern), _) => pattern.rsplit("%s").next().unwrap_or_default().to_owned(),
        (None, Some(abi)) => format!("-rdmav{abi}.so"),
        (None, None) => return driver, // not the library that drivers are for
    };
    let mut looked = Vec::new();
    if driver.name.starts_with('/') {
        looked.push(PathBuf::from(format!("{}{suffix}", driver.name)));
    } else {
        looked.extend(pattern.map(|pattern| PathBuf::from(pattern.replace("%s", &driver.name))));
        let file = format!("lib{}{suffix}", driver.name);
        let search = loader.find(&file, library, image);
        looked.extend(search.found.map(|found| found.path));
        looked.extend(search.passed.into_iter().map(|passed| passed.path));
    }
    driver.file = looked.iter().find(|path| path.exists()).cloned();
    driver.fault = match &driver.file {
        Some(file) => fault_of(file, image, abi, loader),
        None => Some(absent(looked, &driver, abi)),
    };
    driver
}

/// A driver that is not there for this ABI may be there for another one.
fn absent(looked: Vec<PathBuf>, driver: &Driver, abi: Option<u32>) -> Fault {
    let prefix = format!("lib{}-rdmav", driver.short_name());
    let folders = looked.iter().filter_map(|path| path.parent());
    let others = folders
        .filter_map(|folder| fs::read_dir(folder).ok())
        .flatten();
    for file in others.flatten().map(|entry| entry.path()) {
        let name = file
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let number = name
            .strip_prefix(&prefix)
            .and_then(|rest| rest.strip_suffix(".so"))
            .and_then(|number| number.parse().ok());
        if let (Some(wants), Some(library)) = (number, abi) {
            return Fault::Abi {
                file,
                wants,
                library,
            };
        }
    }
    Fault::Absent { looked }
}

fn fault_of(file: &Path, library: &Image, abi: Option<u32>, loader: &mut Loader) -> Option<Fault> {
    let broken = |reason: String| Fault::Broken {
        file: file.to_owned(),
        reason,
    };
    let image = match loader.outline(file) {
        Ok(image) => image.clone(),
        Err(reason) => return Some(broken(reason.clone())),
    };
    if image.architecture != library.architecture {
        return Some(Fault::Architecture {
            file: file.to_owned(),
            is: image.architecture.text(),
            wanted: library.architecture.text(),
        });
    }
    if let (Some(wants), Some(has)) = (image.needed_abi(), abi)
        && wants != has
    {
        return Some(Fault::Abi {
            file: file.to_owned(),
            wants,
            library: has,
        });
    }
    let closure = Closure::of_needs(file, &image, loader);
    if let Some(missing) = closure.missing().find(|library| library.name != VERBS) {
        return Some(broken(format!(
            "needs {}, which is not there",
            missing.name
        )));
    }
    let missing = closure.missing_versions.into_iter().next()?;
    Some(Fault::Versions {
        file: missing.needed_by,
        library: missing.library,
        library_file: missing.file,
        versions: missing.versions,
    })
}

/// Loads each driver in a child of its own, all at once, to tell which of them crashes or hangs.
pub(crate) fn suspects(providers: &mut Providers, limit: Duration) {
    let mut children = Vec::new();
    for (at, driver) in providers.drivers.iter().enumerate() {
        let Some(file) = &driver.file else { continue };
        let request = Request::Load {
            library: VERBS.to_owned(),
            file: file.display().to_string(),
        };
        children.push((at, thread::spawn(move || child::ask(&request, limit))));
    }
    for (at, child) in children {
        // The thread only waits for a process; that it can't panic is no proof, and then nothing is known of this driver.
        let Ok(account) = child.join() else { continue };
        let driver = &mut providers.drivers[at];
        let refused = account.events.iter().find_map(|event| match event {
            Event::NotLoaded { message, .. } => Some(message.clone()),
            _ => None,
        });
        if let (Some(reason), Some(file), None) = (refused, &driver.file, &driver.fault) {
            driver.fault = Some(Fault::Broken {
                file: file.clone(),
                reason,
            });
        }
        driver.end = Some(account.end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_short_name_of_a_path_has_no_folder_and_no_lib() {
        let driver = |name: &str| Driver {
            name: name.to_owned(),
            named_by: String::new(),
            file: None,
            fault: None,
            end: None,
        };
        assert_eq!(driver("mlx5").short_name(), "mlx5");
        assert_eq!(driver("libx").short_name(), "libx");
        assert_eq!(driver("/opt/x/libsoftv").short_name(), "softv");
    }
}
