//! What the owners do that the compiler can't check: lending memory to a device.
//!
//! Promises: every condition that is left to a caller is written at the function. Does not do: remembering what was posted.
#![allow(unsafe_code)]

use lockgate_verbs_shim::{Access, Errno, MrOptions, Partial, RecvRequest, SendRequest};

use super::QueuePair;
use crate::ibverbs::native;
use crate::ibverbs::pages::Pages;

/// Registers pages; the caller holds them until the receipt.
pub(super) fn register(
    pd: &native::Pd,
    pages: &Pages,
    access: Access,
) -> Result<native::Mr, Errno> {
    let options = MrOptions {
        address: pages.address(),
        length: pages.len() as u64,
        remote_address: pages.address(),
        access,
    };
    // SAFETY:
    // - `MemoryRegion::register`, the only caller, moves the pages into what the owner of the region holds.
    // - Nobody relies on the content: `Pages` gives no references, only copies.
    unsafe { native::Mr::register(pd, &options) }
}

impl QueuePair {
    /// Posts sends in order, up to the first that is refused.
    ///
    /// # Errors
    /// How many were posted, and why the next was not. `ECHILD` in a child of the process that opened the device.
    ///
    /// # Safety
    /// - Windows, regions and address handles in the requests are live.
    /// - The memory of the pieces stays registered, mapped and untouched until the completion has come or the queue pair has a
    ///   receipt; with [`INLINE`](lockgate_verbs_shim::send_flags::INLINE) it must be readable now.
    pub unsafe fn post_send(&self, requests: &[SendRequest<'_>]) -> Result<(), Partial> {
        self.at_home()?;
        // SAFETY:
        // - The caller promises what concerns objects and memory.
        unsafe { self.owner.native().post_send(requests) }
    }

    /// Posts receives in order, up to the first that is refused.
    ///
    /// # Errors
    /// As for [`post_send`](Self::post_send).
    ///
    /// # Safety
    /// - The memory of the pieces stays registered and mapped until the completion has come or the queue pair has a receipt, and
    ///   nothing relies on its content until then.
    pub unsafe fn post_receive(&self, requests: &mut [RecvRequest<'_>]) -> Result<(), Partial> {
        self.at_home()?;
        // SAFETY:
        // - The caller promises what concerns memory.
        unsafe { self.owner.native().post_receive(requests) }
    }

    fn at_home(&self) -> Result<(), Partial> {
        if self.owner.native().facts().mark.is_home() {
            return Ok(());
        }
        Err(Partial {
            posted: 0,
            errno: Errno::IN_CHILD,
        })
    }
}
