//! What to receive, from the command line and the file that it names.
//!
//! Promises: what the command line says goes before what the file says. Does not do: opening anything.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use lockgate::receive::{ConfigFaults, ReceiverSpec};
use lockgate::registry::RefusalCause;
use lockgate::{Error, ErrorKind};

use crate::cli::ReceiveArgs;

/// The longest configuration file. Without an end, /dev/zero would be read until the memory is full.
const CONFIG_BYTES_MAX: u64 = 1 << 20;

/// The configuration: the file's, and over it what the command line says.
pub(super) fn spec(args: &ReceiveArgs) -> Result<ReceiverSpec, Error> {
    let mut spec = match &args.config {
        Some(path) => read_spec(path)?,
        None => ReceiverSpec::default(),
    };
    let receive = &mut spec.receive;
    if args.provider.is_some() {
        spec.provider.clone_from(&args.provider);
    }
    if !args.groups.is_empty() {
        receive.groups.clone_from(&args.groups);
    }
    if args.unicast.is_some() {
        receive.unicast = args.unicast;
    }
    if args.interface.is_some() {
        receive.interface.clone_from(&args.interface);
    }
    if args.device.is_some() {
        receive.device.clone_from(&args.device);
    }
    receive.vlan = args.vlan.or(receive.vlan);
    receive.ring = args.ring.unwrap_or(receive.ring);
    receive.batch = args.batch.unwrap_or(receive.batch);
    receive.buffer_bytes = args.buffer_bytes.unwrap_or(receive.buffer_bytes);
    receive.mtu = args.mtu.unwrap_or(receive.mtu);
    receive.wait = args.wait.map_or(receive.wait, Into::into);
    receive.timestamps = args.timestamps.map_or(receive.timestamps, Into::into);
    let mut faults = ConfigFaults::new();
    for (at, (name, value)) in args.options.iter().enumerate() {
        if args.options[..at]
            .iter()
            .any(|(earlier, _)| earlier == name)
        {
            let field = format!("options.{name}");
            faults.push(field, value, "stands there twice", "each --option once");
        }
        receive.options.set(name, value.clone());
    }
    if !faults.is_empty() {
        return Err(Error::new(ErrorKind::Invalid(faults), "read command line"));
    }
    Ok(spec)
}

fn read_spec(path: &Path) -> Result<ReceiverSpec, Error> {
    let text = read_text(path).map_err(|error| {
        Error::new(ErrorKind::Syntax, "read configuration")
            .with_object(path.display().to_string())
            .with_detail(error.to_string())
            .with_source(error)
    })?;
    let json = path
        .extension()
        .is_some_and(|extension| extension == "json");
    let read = if json {
        ReceiverSpec::from_json
    } else {
        ReceiverSpec::from_toml
    };
    read(&text).map_err(|error| error.with_object(path.display().to_string()))
}

/// A text of at most [`CONFIG_BYTES_MAX`].
fn read_text(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    let file = File::open(path)?;
    // What is cut may end within a character, so the length is judged first.
    let mut bytes = Vec::new();
    file.take(CONFIG_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > CONFIG_BYTES_MAX {
        let problem = format!("longer than the {CONFIG_BYTES_MAX} bytes that are allowed");
        return Err(io::Error::new(io::ErrorKind::InvalidData, problem));
    }
    bytes.as_slice().read_to_string(&mut text)?;
    Ok(text)
}

/// On a command line, the missing name is a missing flag.
pub(super) fn name_the_flag(error: Error) -> Error {
    match error.refusal() {
        Some(refusal) if refusal.cause == RefusalCause::Implicit => {
            let remedy = format!("{} (--provider NAME)", refusal.remedy);
            error.with_remedy(remedy)
        }
        _ => error,
    }
}
