//! Trying what a device can do: a queue pair for raw packets, a flow, a registration, dmabuf.
//!
//! Promises: only devices that are named are opened, or all if none is; each step is told before it is done and with its outcome;
//! what was made is destroyed in the reverse order, and a failure to destroy is told. Does not do: sending or receiving anything.

use std::io;

use crate::protocol::{Event, Outcome, Step};
use crate::sys::{Opened, Refused, Verbs};
use crate::{Teller, enumerate};

/// The first port of a device is always 1.
const PORT: u8 = 1;

pub(crate) fn run(verbs: &Verbs, wanted: &[String], teller: &mut Teller<'_>) -> io::Result<()> {
    enumerate(verbs, teller)?;
    let Ok(list) = verbs.devices() else {
        return Ok(()); // told by `enumerate`
    };
    let names = list.describe().into_iter().map(|device| device.name);
    for name in names.filter(|name| wanted.is_empty() || wanted.contains(name)) {
        let mut trial = Trial {
            device: &name,
            teller,
        };
        // A device that went away since the list was made has no trial.
        if let Some(device) = trial
            .step("open", || list.open(&name).transpose())?
            .flatten()
        {
            trial.device(device)?;
        }
    }
    Ok(())
}

struct Trial<'a, 'b> {
    device: &'a str,
    teller: &'a mut Teller<'b>,
}

impl Trial<'_, '_> {
    /// One step, told before and after; nothing if it failed.
    fn step<T>(
        &mut self,
        what: &str,
        call: impl FnOnce() -> Result<T, Refused>,
    ) -> io::Result<Option<T>> {
        self.told(what, |_| String::new(), call)
    }

    fn told<T>(
        &mut self,
        what: &str,
        detail: impl FnOnce(&T) -> String,
        call: impl FnOnce() -> Result<T, Refused>,
    ) -> io::Result<Option<T>> {
        self.teller.began(Step::Try {
            device: self.device.to_owned(),
            what: what.to_owned(),
        })?;
        let (outcome, value) = match call() {
            Ok(value) => (Outcome::Done(detail(&value)), Some(value)),
            Err(refused) => (refused, None),
        };
        self.teller.tell(&Event::Tried {
            device: self.device.to_owned(),
            what: what.to_owned(),
            outcome,
        })?;
        Ok(value)
    }

    fn device(&mut self, device: Opened<'_>) -> io::Result<()> {
        self.told("query", Clone::clone, || device.firmware())?;
        let mtu = |(active, most): &(u32, u32)| format!("MTU {active} of {most}");
        self.told("port", mtu, || device.mtu(PORT))?;
        if let Some(domain) = self.step("pd", || device.domain())? {
            if let Some(mr) = self.step("mr", || device.register(domain))? {
                self.step("end-mr", || device.end("ibv_dereg_mr", mr))?;
            }
            if let Some(mr) = self.step("dmabuf", || device.register_no_dmabuf(domain))? {
                self.step("end-dmabuf", || device.end("ibv_dereg_mr", mr))?;
            }
            if let Some(cq) = self.step("cq", || device.completions())? {
                if let Some(pair) = self.step("raw-qp", || device.raw_pair(domain, cq))? {
                    if self
                        .step("raw-qp-init", || device.ready(pair, PORT))?
                        .is_some()
                        && let Some(rule) = self.step("flow", || device.flow(pair, PORT))?
                    {
                        self.step("end-flow", || device.end_flow(rule))?;
                    }
                    self.step("end-raw-qp", || device.end("ibv_destroy_qp", pair))?;
                }
                self.step("end-cq", || device.end("ibv_destroy_cq", cq))?;
            }
            self.step("end-pd", || device.end("ibv_dealloc_pd", domain))?;
        }
        self.step("close", || device.close())?;
        Ok(())
    }
}
