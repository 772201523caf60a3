//! The calls on protection domains, regions and windows.
//!
//! Promises: every call says what its caller must hold to. Does not do: holding to it.
#![allow(unsafe_code)]

use std::ptr;

use super::{MrInfo, MrOptions, MwBind, MwInfo, WindowType};
use crate::device::sys::ContextHandle;
use crate::errno::Errno;
use crate::ffi;
use crate::queue::sys::QpHandle;
use crate::sys::handle;

handle! {
    /// A protection domain: what shares it may use each other.
    PdHandle, ibv_pd
}

handle! {
    /// A registered memory region.
    MrHandle, ibv_mr
}

handle! {
    /// A memory window.
    MwHandle, ibv_mw
}

pub(super) fn rkey_next(rkey: u32) -> u32 {
    // SAFETY:
    // - Pure arithmetic.
    unsafe { ffi::lgv_rkey_next(rkey) }
}

impl PdHandle {
    /// Allocates one.
    ///
    /// # Errors
    /// The kernel's number.
    ///
    /// # Safety
    /// - The device is open and stays so until this is deallocated.
    pub unsafe fn allocate(context: ContextHandle) -> Result<Self, Errno> {
        let mut pd = ptr::null_mut();
        // SAFETY:
        // - The caller promises that the context is open.
        // - `pd` is a valid output for the call.
        let answer = unsafe { ffi::lgv_pd_alloc(context.as_ptr(), &raw mut pd) };
        Errno::check(answer)?;
        Self::given(pd)
    }

    /// Deallocates it.
    ///
    /// # Errors
    /// [`Errno::BUSY`]: a region, window, queue pair or address handle of it lives, and nothing was done. Others prove nothing.
    ///
    /// # Safety
    /// - It is live, and no call on it runs; after `Ok` there is no other use.
    pub unsafe fn deallocate(self) -> Result<(), Errno> {
        // SAFETY:
        // - The caller promises that it is live and not in use.
        let answer = unsafe { ffi::lgv_pd_dealloc(self.as_ptr()) };
        Errno::check(answer).map(drop)
    }

    /// The kernel's number for it.
    ///
    /// # Errors
    /// None in a library build.
    ///
    /// # Safety
    /// - It is live.
    pub unsafe fn kernel_handle(self) -> Result<u32, Errno> {
        let mut handle = 0;
        // SAFETY:
        // - The caller promises that it is live.
        // - `handle` is a valid output for the call.
        let answer = unsafe { ffi::lgv_pd_handle(self.as_ptr(), &raw mut handle) };
        Errno::check(answer)?;
        Ok(handle)
    }
}

impl MrHandle {
    /// Registers memory of this process.
    ///
    /// # Errors
    /// [`Errno::NO_MEMORY`] beyond the limit on locked memory, `EFAULT` if it isn't mapped as asked, `EINVAL` for rights that
    /// don't go together.
    ///
    /// # Safety
    /// - The protection domain is live and stays so until this is deregistered.
    /// - The memory stays mapped until then, and nothing in this process relies on what the rights let the device write.
    pub unsafe fn register(pd: PdHandle, options: &MrOptions) -> Result<Self, Errno> {
        let native = options.native(-1);
        let mut mr = ptr::null_mut();
        // SAFETY:
        // - The caller promises that the domain is live and that the memory stays.
        // - `native` is a valid input of the size that it names, `mr` a valid output.
        let answer = unsafe { ffi::lgv_mr_reg(pd.as_ptr(), &raw const native, &raw mut mr) };
        Errno::check(answer)?;
        Self::given(mr)
    }

    /// Registers another device's buffer.
    ///
    /// # Errors
    /// [`Errno::NOT_SUPPORTED`] where library, kernel or driver can't.
    ///
    /// # Safety
    /// - As for [`register`](Self::register), where the buffer behind the descriptor is the memory.
    pub unsafe fn register_dmabuf(
        pd: PdHandle,
        options: &MrOptions,
        descriptor: i32,
    ) -> Result<Self, Errno> {
        let native = options.native(descriptor);
        let mut mr = ptr::null_mut();
        // SAFETY:
        // - The caller promises that the domain is live and that the buffer stays.
        // - `native` is a valid input of the size that it names, `mr` a valid output.
        let answer = unsafe { ffi::lgv_mr_reg_dmabuf(pd.as_ptr(), &raw const native, &raw mut mr) };
        Errno::check(answer)?;
        Self::given(mr)
    }

    /// Deregisters it. Only after `Ok` may the memory be given to somebody else.
    ///
    /// # Errors
    /// [`Errno::BUSY`] or, from rxe, [`Errno::INVALID`]: a window is bound to it. Others prove nothing.
    ///
    /// # Safety
    /// - It is live, and no call on it runs; after `Ok` there is no other use.
    pub unsafe fn deregister(self) -> Result<(), Errno> {
        // SAFETY:
        // - The caller promises that it is live and not in use.
        let answer = unsafe { ffi::lgv_mr_dereg(self.as_ptr()) };
        Errno::check(answer).map(drop)
    }

    /// Its keys and place.
    ///
    /// # Errors
    /// None in a library build.
    ///
    /// # Safety
    /// - It is live.
    pub unsafe fn info(self) -> Result<MrInfo, Errno> {
        let mut info = MrInfo::new();
        // SAFETY:
        // - The caller promises that it is live.
        // - `info` is a valid output of the size that it names.
        let answer = unsafe { ffi::lgv_mr_info(self.as_ptr(), &raw mut info) };
        Errno::check(answer)?;
        Ok(info)
    }
}

impl MwHandle {
    /// Allocates a window that opens nothing yet.
    ///
    /// # Errors
    /// [`Errno::NOT_SUPPORTED`] where the device has no such windows.
    ///
    /// # Safety
    /// - The protection domain is live and stays so until this is deallocated.
    pub unsafe fn allocate(pd: PdHandle, kind: WindowType) -> Result<Self, Errno> {
        let kind = match kind {
            WindowType::One => ffi::LGV_MW_TYPE_1,
            WindowType::Two => ffi::LGV_MW_TYPE_2,
        };
        let mut mw = ptr::null_mut();
        // SAFETY:
        // - The caller promises that the domain is live.
        // - `mw` is a valid output for the call.
        let answer = unsafe { ffi::lgv_mw_alloc(pd.as_ptr(), kind, &raw mut mw) };
        Errno::check(answer)?;
        Self::given(mw)
    }

    /// Deallocates it, bound or not.
    ///
    /// # Errors
    /// The driver's number; it proves nothing.
    ///
    /// # Safety
    /// - It is live, and no call on it runs; after `Ok` there is no other use.
    pub unsafe fn deallocate(self) -> Result<(), Errno> {
        // SAFETY:
        // - The caller promises that it is live and not in use.
        let answer = unsafe { ffi::lgv_mw_dealloc(self.as_ptr()) };
        Errno::check(answer).map(drop)
    }

    /// Its key and kind.
    ///
    /// # Errors
    /// None in a library build.
    ///
    /// # Safety
    /// - It is live.
    pub unsafe fn info(self) -> Result<MwInfo, Errno> {
        let mut info = MwInfo::new();
        // SAFETY:
        // - The caller promises that it is live.
        // - `info` is a valid output of the size that it names.
        let answer = unsafe { ffi::lgv_mw_info(self.as_ptr(), &raw mut info) };
        Errno::check(answer)?;
        Ok(info)
    }

    /// Posts a bind of a window of type 1. Those of type 2 are bound by [`SendRequest`](crate::SendRequest).
    ///
    /// # Errors
    /// [`Errno::INVALID`] for a window of type 2, `EPERM` for a region of another domain.
    ///
    /// # Safety
    /// - Window, queue pair and region are live, and the region stays so while the window is bound to it.
    pub unsafe fn bind(self, qp: QpHandle, bind: &MwBind) -> Result<(), Errno> {
        let native = ffi::lgv_mw_bind {
            access: bind.access.bits(),
            wr_id: bind.wr_id,
            mr: bind.mr.as_ptr(),
            addr: bind.address,
            length: bind.length,
            send_flags: bind.flags,
            ..ffi::lgv_mw_bind::new()
        };
        // SAFETY:
        // - The caller promises that all three are live.
        // - `native` is a valid input of the size that it names.
        let answer = unsafe { ffi::lgv_mw_bind(qp.as_ptr(), self.as_ptr(), &raw const native) };
        Errno::check(answer).map(drop)
    }
}
