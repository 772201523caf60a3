//! Descriptors and mappings in custody, and checked reading of memory that the kernel writes.
//!
//! Promises: a descriptor is closed and a mapping is unmapped by its owner's release, and by nothing else; every access to a
//! mapping through a [`View`] is checked against its length. Does not do: deciding the order of a tear-down. The receivers
//! do, by what each owner depends on.

mod sys;

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;

use lockgate::custody::{
    Alive, Charge, Domain, Evidence, Held, Identity, Native, Owner, Receipt, Release, Reservation,
};
use lockgate::{Errno, Error, ErrorKind, Result};

pub(crate) use sys::{Mapping, View};

/// A file descriptor in custody.
#[derive(Debug)]
pub(crate) struct Descriptor {
    raw: RawFd,
    identity: Identity,
}

impl Descriptor {
    /// Takes the descriptor over.
    fn take(fd: OwnedFd, identity: Identity) -> Self {
        let raw = fd.as_raw_fd();
        // The value has no drop of its own: only a release closes it.
        std::mem::forget(fd);
        Self {
            raw,
            identity: identity.with("descriptor", u64::from(raw.unsigned_abs())),
        }
    }
}

impl AsFd for Descriptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        sys::borrow(self)
    }
}

impl Native for Descriptor {
    fn identity(&self) -> Identity {
        self.identity.clone()
    }

    fn release(&mut self) -> Release {
        match sys::close(self) {
            Ok(()) => Release::Released(Receipt::of(self.identity.clone())),
            // Linux frees the descriptor before it reports any of these (close(2)).
            Err(errno) if matches!(errno.raw(), libc::EINTR | libc::EIO | libc::ENOSPC) => {
                let receipt = Receipt::of(self.identity.clone());
                Release::Released(receipt.note(format!("close answered {errno}")))
            }
            Err(errno) => Release::Ambiguous(errno),
        }
    }

    fn release_call(&self) -> &'static str {
        "close"
    }

    fn evidence(&self) -> Evidence {
        // The number may belong to another file by now, so that its presence proves nothing.
        match std::fs::read_link(format!("/proc/self/fd/{}", self.raw)) {
            Ok(target) => Evidence::new(
                Alive::Unknown,
                format!("/proc/self/fd/{} is {}", self.raw, target.display()),
            ),
            Err(_) => Evidence::new(Alive::No, format!("/proc/self/fd/{} is gone", self.raw)),
        }
    }
}

impl Native for Mapping {
    fn identity(&self) -> Identity {
        Identity::new("mapping")
            .named(self.name())
            .with("address", self.address() as u64)
            .with("bytes", self.len() as u64)
    }

    fn release(&mut self) -> Release {
        match self.unmap() {
            Ok(()) => Release::Released(Receipt::of(Native::identity(self))),
            Err(errno) => Release::Ambiguous(errno),
        }
    }

    fn release_call(&self) -> &'static str {
        "munmap"
    }
}

/// Reserves bytes of the domain's budget.
pub(crate) fn reserve(domain: &Domain, bytes: u64, what: &'static str) -> Result<Reservation> {
    domain.budget().reserve(bytes).map_err(|exceeded| {
        Error::new(ErrorKind::MemoryLimit, "reserve memory")
            .with_object(what)
            .with_detail(exceeded.to_string())
            .with_remedy("raise the domain's budget, or set a smaller ring")
    })
}

/// A charge of nothing: for objects that hold no memory worth counting.
pub(crate) fn no_charge(domain: &Domain) -> Result<Charge> {
    Ok(reserve(domain, 0, "descriptor")?.commit())
}

/// Takes a descriptor that `open` makes into custody.
pub(crate) fn own_descriptor(
    domain: &Domain,
    identity: Identity,
    deps: Vec<Arc<Held>>,
    open: impl FnOnce() -> Result<OwnedFd>,
) -> Result<Owner<Descriptor>> {
    let admission = admit(domain)?;
    let charge = no_charge(domain)?;
    let fd = open()?;
    Ok(admission.own(Descriptor::take(fd, identity), deps, charge))
}

/// Takes a mapping that `map` makes into custody, and charges its bytes to the domain.
pub(crate) fn own_mapping(
    domain: &Domain,
    bytes: usize,
    deps: Vec<Arc<Held>>,
    map: impl FnOnce() -> Result<Mapping>,
) -> Result<Owner<Mapping>> {
    let admission = admit(domain)?;
    let reservation = reserve(domain, bytes as u64, "ring")?;
    let mapping = map()?;
    Ok(admission.own(mapping, deps, reservation.commit()))
}

fn admit(domain: &Domain) -> Result<lockgate::custody::Admission> {
    domain.admit().map_err(|refused| {
        Error::new(ErrorKind::Closed, "admit to domain").with_detail(refused.to_string())
    })
}

/// Closes an owner that is there. What could not be released moves to the quarantine, and the error says so.
pub(crate) fn close<N: Native>(owner: &mut Option<Owner<N>>) -> Result<()> {
    let Some(owner) = owner.take() else {
        return Ok(());
    };
    let identity = owner.identity().to_string();
    owner.close().map(drop).map_err(|unreleased| {
        let error = Error::new(ErrorKind::Unquiesced, "close").with_object(identity);
        match unreleased.failure() {
            Some(failure) => {
                let error = error.with_detail(failure.to_string());
                failure
                    .errno
                    .map_or(error.clone(), |errno| error.with_errno(errno))
            }
            None => error.with_detail("something still depends on it"),
        }
    })
}

/// The number of a failed call that sets up memory, explained.
pub(crate) fn memory(step: &'static str, errno: Errno, bytes: usize) -> Error {
    let error = Error::from_errno(step, errno).with_object(format!("{bytes} bytes"));
    match errno {
        Errno::NOMEM => error
            .with_detail("the kernel has no memory of that size left, or a limit on locked memory is in the way")
            .with_remedy("set a smaller ring, or raise the limit: ulimit -l, LimitMEMLOCK= of the service"),
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_descriptor_is_closed_once_and_by_its_owner_only() {
        let domain = Domain::new("test", 1 << 20);
        let open = || Ok(std::fs::File::open("/dev/null").unwrap().into());
        let identity = Identity::new("file");
        let mut owner = Some(own_descriptor(&domain, identity, Vec::new(), open).unwrap());
        let raw = owner.as_ref().unwrap().native().raw;
        let here = || std::fs::read_link(format!("/proc/self/fd/{raw}"));
        assert_eq!(here().unwrap().to_str(), Some("/dev/null"));
        let held = owner.as_ref().unwrap().hold();
        let error = close(&mut owner).unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::Unquiesced);
        assert_eq!(domain.live().quarantined, 1);
        assert_eq!(here().unwrap().to_str(), Some("/dev/null"), "still open");
        drop(held);
        assert!(close(&mut owner).is_ok(), "nothing is left to close");
    }

    #[test]
    fn a_mapping_is_charged_and_given_back() {
        let domain = Domain::new("test", 10_000);
        let map = || Mapping::anonymous("test", 8192).map_err(|errno| memory("map", errno, 8192));
        let mut owner = Some(own_mapping(&domain, 8192, Vec::new(), map).unwrap());
        assert_eq!(domain.live().bytes, 8192);
        let over = own_mapping(&domain, 8192, Vec::new(), map).unwrap_err();
        assert_eq!(*over.kind(), ErrorKind::MemoryLimit);
        close(&mut owner).unwrap();
        assert_eq!((domain.live().bytes, domain.live().owners), (0, 0));
    }

    #[test]
    fn a_view_reads_nothing_outside() {
        let mut mapping = Mapping::anonymous("test", 4096).unwrap();
        let view = mapping.view();
        assert_eq!(view.len(), 4096);
        for at in [4093, 4096, usize::MAX - 3, usize::MAX] {
            assert_eq!(view.acquire(at), None, "{at}");
            assert!(!view.publish(at, 1), "{at}");
            assert_eq!(view.head::<8>(at), None, "{at}");
        }
        assert_eq!(view.acquire(2), None, "a word must be aligned");
        assert!(view.publish(4092, 7));
        assert_eq!(view.acquire(4092), Some(7));
        assert_eq!(view.head::<4>(4092), Some(7_u32.to_ne_bytes()));
        mapping.unmap().unwrap();
    }
}
