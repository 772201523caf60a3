//! Protection domains, registered regions and windows.
//!
//! Promises: a region keeps its pages as long as the device may touch them; a window keeps the regions that it was said to open.
//! Does not do: memory of the caller's own, or binding: a bind is posted like any request.

use std::sync::Arc;

use lockgate::Error;
use lockgate::custody::{Charge, Domain, Held, Identity, Owner};
use lockgate_verbs_shim::{Access, MrHandle, MrInfo, MwHandle, MwInfo, PdHandle, WindowType};

use super::{Context, admit, charge, common, failed, sys};
use crate::ibverbs::limits::memory_error;
use crate::ibverbs::native::{self, core_errno};
use crate::ibverbs::pages::Pages;

/// A protection domain: what shares it may use each other.
#[derive(Debug)]
pub struct ProtectionDomain {
    pub(super) owner: Owner<native::Pd>,
}

common!(ProtectionDomain, native::Pd);

impl ProtectionDomain {
    /// Allocates one.
    ///
    /// # Errors
    /// The kernel's number.
    pub fn allocate(domain: &Domain, context: &Context) -> Result<Self, Error> {
        const STEP: &str = "allocate protection domain";
        context.facts().check_process(STEP)?;
        let admission = admit(domain, STEP)?;
        let pd =
            native::Pd::allocate(context.owner.native()).map_err(|errno| failed(STEP, errno))?;
        let owner = admission.own(pd, vec![context.hold()], Charge::none());
        Ok(Self { owner })
    }

    /// The bare handle; every call on it is `unsafe`, and its caller's to answer for.
    #[must_use]
    pub fn bare(&self) -> PdHandle {
        self.owner.native().handle()
    }
}

/// Registered pages.
#[derive(Debug)]
pub struct MemoryRegion {
    pub(super) owner: Owner<native::Mr>,
    pages: Arc<Held>,
    info: MrInfo,
}

common!(MemoryRegion, native::Mr);

impl MemoryRegion {
    /// Registers all of `pages`, which stay until the receipt.
    ///
    /// # Errors
    /// The budget or the kernel refuses; an `ENOMEM` says what was asked, what is pinned, and the limits.
    pub fn register(
        domain: &Domain,
        pd: &ProtectionDomain,
        pages: Pages,
        access: Access,
    ) -> Result<Self, Error> {
        const STEP: &str = "register memory";
        pd.owner.native().facts().check_process(STEP)?;
        let bytes = pages.len() as u64;
        let admission = admit(domain, STEP)?;
        let charge = charge(domain, STEP, bytes)?;
        let identity = Identity::new("pages").with("address", pages.address());
        let (mr, pages) = {
            let mr = sys::register(pd.owner.native(), &pages, access)
                .map_err(|errno| memory_error(STEP, core_errno(errno), bytes))?;
            (mr, Held::value(identity, bytes, pages))
        };
        let owner = admission.own(mr, vec![pd.hold(), Arc::clone(&pages)], charge);
        let info = owner
            .native()
            .info()
            .map_err(|errno| failed("read keys", errno))?;
        Ok(Self { owner, pages, info })
    }

    /// Its keys and place.
    #[must_use]
    pub fn info(&self) -> &MrInfo {
        &self.info
    }

    /// The pages, to copy in and out of.
    #[must_use]
    pub fn pages(&self) -> &Pages {
        #[expect(
            clippy::expect_used,
            reason = "`register` is the only maker, and puts pages there"
        )]
        self.pages.downcast_ref().expect("a region holds pages")
    }

    /// The bare handle; every call on it is `unsafe`, and its caller's to answer for.
    #[must_use]
    pub fn bare(&self) -> MrHandle {
        self.owner.native().handle()
    }
}

/// A memory window.
#[derive(Debug)]
pub struct MemoryWindow {
    owner: Owner<native::Mw>,
    info: MwInfo,
}

common!(MemoryWindow, native::Mw);

impl MemoryWindow {
    /// Allocates a window that opens nothing yet.
    ///
    /// # Errors
    /// The driver's number; `EOPNOTSUPP` where the device has no such windows.
    pub fn allocate(
        domain: &Domain,
        pd: &ProtectionDomain,
        kind: WindowType,
    ) -> Result<Self, Error> {
        const STEP: &str = "allocate memory window";
        pd.owner.native().facts().check_process(STEP)?;
        let admission = admit(domain, STEP)?;
        let mw =
            native::Mw::allocate(pd.owner.native(), kind).map_err(|errno| failed(STEP, errno))?;
        let owner = admission.own(mw, vec![pd.hold()], Charge::none());
        let info = owner
            .native()
            .info()
            .map_err(|errno| failed("read key", errno))?;
        Ok(Self { owner, info })
    }

    /// Its first key and its kind.
    #[must_use]
    pub fn info(&self) -> &MwInfo {
        &self.info
    }

    /// Keeps a region until this window is gone. To be called before a bind to it is posted.
    pub fn keep(&mut self, region: &MemoryRegion) {
        self.owner.depend_on(region.hold());
    }

    /// The bare handle; every call on it is `unsafe`, and its caller's to answer for.
    #[must_use]
    pub fn bare(&self) -> MwHandle {
        self.owner.native().handle()
    }
}
