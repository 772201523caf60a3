//! A receiver's place in a network as a native object, so that custody can own it.
//!
//! Promises: detaching is one call that the fault plan may let fail; a port whose detaching failed stays in the network, as a
//! device's object would, and in the quarantine of the receiver's domain. Does not do: closing by itself.

use lockgate::custody::{Alive, Evidence, Identity, Native, Receipt, Release};
use lockgate::fault::{Class, Site};

use super::{INTERFACE, Network};

/// The handle of one port.
pub(super) struct Attachment {
    pub(super) network: Network,
    pub(super) id: u64,
    pub(super) site: Site,
}

impl Native for Attachment {
    fn identity(&self) -> Identity {
        Identity::new("port").named(INTERFACE).with("id", self.id)
    }

    fn release(&mut self) -> Release {
        let decision = self.site.next();
        if let Some(fault) = decision.release {
            return match fault.class {
                Class::Ambiguous => Release::Ambiguous(fault.errno),
                Class::NothingDone => Release::NothingDone(fault.errno),
            };
        }
        if let Some(errno) = decision.error {
            return Release::NothingDone(errno);
        }
        self.network.lock().ports.retain(|port| port.id != self.id);
        Release::Released(Receipt::of(self.identity()))
    }

    fn release_call(&self) -> &'static str {
        "detach"
    }

    fn evidence(&self) -> Evidence {
        let state = self.network.lock();
        if state.ports.iter().any(|port| port.id == self.id) {
            Evidence::new(Alive::Yes, "the network lists the port")
        } else {
            Evidence::new(Alive::No, "the network doesn't list the port")
        }
    }
}
