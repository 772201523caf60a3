//! What to receive, from the command line and the file that it names.
//!
//! Promises: what the command line says goes before what the file says. Does not do: opening anything.

use std::fs;
use std::path::Path;

use lockgate::receive::ReceiverSpec;
use lockgate::registry::RefusalCause;
use lockgate::{Error, ErrorKind};

use crate::cli::ReceiveArgs;

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
    for (name, value) in &args.options {
        receive.options.set(name, value.clone());
    }
    Ok(spec)
}

fn read_spec(path: &Path) -> Result<ReceiverSpec, Error> {
    let text = fs::read_to_string(path).map_err(|error| {
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
