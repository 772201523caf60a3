//! The calls on the link, on devices and on contexts.
//!
//! Promises: a list lives as long as what was taken from it. Does not do: closing what was opened.
#![allow(unsafe_code)]

use std::marker::PhantomData;
use std::ptr::{self, NonNull};

use super::{ContextInfo, DeviceAttributes, DeviceInfo, GidEntry, PortAttributes};
use crate::completion::AsyncEvent;
use crate::errno::Errno;
use crate::ffi;
use crate::sys::handle;

handle! {
    /// An open device.
    ContextHandle, ibv_context
}

pub(super) fn link_mode() -> u32 {
    // SAFETY:
    // - Takes nothing and touches nothing.
    unsafe { ffi::lgv_link_mode() }
}

pub(super) fn link_optional(verb: u32) -> bool {
    // SAFETY:
    // - Any number is allowed; an unknown one is answered with 0.
    unsafe { ffi::lgv_link_optional(verb) == 1 }
}

pub(super) fn fork_status() -> Result<u32, Errno> {
    let mut status = 0;
    // SAFETY:
    // - `status` is a valid output for the call.
    let answer = unsafe { ffi::lgv_fork_status(&raw mut status) };
    Errno::check(answer)?;
    Ok(status)
}

/// The devices that the library enumerated at one moment.
#[derive(Debug)]
pub struct DeviceList {
    array: NonNull<*mut ffi::ibv_device>,
    count: usize,
}

impl DeviceList {
    /// Enumerates.
    ///
    /// # Errors
    /// [`Errno::NO_SYSTEM`] where the kernel has no RDMA subsystem, [`Errno::NOT_LINKED`] in a link stub. No device at
    /// all is an empty list.
    pub fn read() -> Result<Self, Errno> {
        let mut array = ptr::null_mut();
        let mut count = 0;
        // SAFETY:
        // - Both are valid outputs for the call.
        let answer = unsafe { ffi::lgv_device_list(&raw mut array, &raw mut count) };
        Errno::check(answer)?;
        Ok(Self {
            array: NonNull::new(array).ok_or(Errno::SILENT)?,
            count: count as usize,
        })
    }

    /// The devices, in the library's order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Device<'_>> {
        self.devices().iter().map(|device| Device {
            native: *device,
            list: PhantomData,
        })
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    fn devices(&self) -> &[*mut ffi::ibv_device] {
        // SAFETY:
        // - The library gave `count` entries at `array`, which live until the list is given back in `drop`.
        // - Nobody writes them.
        unsafe { std::slice::from_raw_parts(self.array.as_ptr(), self.count) }
    }
}

impl Drop for DeviceList {
    fn drop(&mut self) {
        // SAFETY:
        // - The array came from the library and is given back once; `Device` borrows the list, so none is left.
        // - Opened devices stay valid, as the library promises.
        let _ = unsafe { ffi::lgv_device_list_free(self.array.as_ptr()) };
    }
}

/// One device of a list.
#[derive(Clone, Copy, Debug)]
pub struct Device<'list> {
    native: *mut ffi::ibv_device,
    list: PhantomData<&'list DeviceList>,
}

impl Device<'_> {
    /// What is known without opening it.
    ///
    /// # Errors
    /// None in a library build; [`Errno::NOT_LINKED`] in a stub.
    pub fn info(self) -> Result<DeviceInfo, Errno> {
        let mut info = ffi::lgv_device_info::new();
        // SAFETY:
        // - The device belongs to a list that the lifetime keeps alive.
        // - `info` is a valid output of the size that it names.
        let answer = unsafe { ffi::lgv_device_info(self.native, &raw mut info) };
        Errno::check(answer)?;
        Ok(DeviceInfo::from_native(&info))
    }

    /// Opens it. The context lives until [`ContextHandle::close`], beyond the list.
    ///
    /// # Errors
    /// The number that opening the device's node gave: `ENOENT`, `EACCES`, `EPERM` and others.
    pub fn open(self) -> Result<ContextHandle, Errno> {
        let mut context = ptr::null_mut();
        // SAFETY:
        // - The device belongs to a list that the lifetime keeps alive.
        // - `context` is a valid output for the call.
        let answer = unsafe { ffi::lgv_context_open(self.native, &raw mut context) };
        Errno::check(answer)?;
        ContextHandle::given(context)
    }
}

impl ContextHandle {
    /// Closes the device.
    ///
    /// # Errors
    /// The driver's number. What happened to the device is then unknown: rdma-core's own drivers never fail here.
    ///
    /// # Safety
    /// - The device is open, and no call on it or on any object made from it runs or will run.
    pub unsafe fn close(self) -> Result<(), Errno> {
        // SAFETY:
        // - The caller promises that the context is open and that this is its last use.
        let answer = unsafe { ffi::lgv_context_close(self.as_ptr()) };
        Errno::check(answer).map(drop)
    }

    /// Its descriptors and vectors.
    ///
    /// # Errors
    /// None in a library build.
    ///
    /// # Safety
    /// - The device is open.
    pub unsafe fn info(self) -> Result<ContextInfo, Errno> {
        let mut info = ContextInfo::new();
        // SAFETY:
        // - The caller promises that the context is open.
        // - `info` is a valid output of the size that it names.
        let answer = unsafe { ffi::lgv_context_info(self.as_ptr(), &raw mut info) };
        Errno::check(answer)?;
        Ok(info)
    }

    /// Its limits and capabilities.
    ///
    /// # Errors
    /// The kernel's number.
    ///
    /// # Safety
    /// - The device is open.
    pub unsafe fn attributes(self) -> Result<DeviceAttributes, Errno> {
        let mut attributes = DeviceAttributes::new();
        // SAFETY:
        // - The caller promises that the context is open.
        // - `attributes` is a valid output of the size that it names.
        let answer = unsafe { ffi::lgv_device_query(self.as_ptr(), &raw mut attributes) };
        Errno::check(answer)?;
        Ok(attributes)
    }

    /// State and limits of a port, counted from 1.
    ///
    /// # Errors
    /// `EINVAL` for a port that isn't there.
    ///
    /// # Safety
    /// - The device is open.
    pub unsafe fn port(self, port: u8) -> Result<PortAttributes, Errno> {
        let mut attributes = PortAttributes::new();
        // SAFETY:
        // - The caller promises that the context is open.
        // - `attributes` is a valid output of the size that it names.
        let answer = unsafe { ffi::lgv_port_query(self.as_ptr(), port, &raw mut attributes) };
        Errno::check(answer)?;
        Ok(attributes)
    }

    /// One entry of a port's GID table.
    ///
    /// # Errors
    /// [`Errno::NO_DATA`] for an empty entry, `EINVAL` beyond the table, [`Errno::NOT_SUPPORTED`] where the library
    /// lacks [`Optional::GidEntry`](crate::Optional::GidEntry).
    ///
    /// # Safety
    /// - The device is open.
    pub unsafe fn gid(self, port: u8, index: u32) -> Result<GidEntry, Errno> {
        let mut entry = ffi::lgv_gid_entry::new();
        // SAFETY:
        // - The caller promises that the context is open.
        // - `entry` is a valid output of the size that it names.
        let answer = unsafe { ffi::lgv_gid_query(self.as_ptr(), port, index, &raw mut entry) };
        Errno::check(answer)?;
        Ok(GidEntry::from_native(&entry))
    }

    /// The sixteen bytes of one entry of a port's GID table, all zero if it is empty.
    ///
    /// # Errors
    /// The number that reading it gave.
    ///
    /// # Safety
    /// - The device is open.
    pub unsafe fn raw_gid(self, port: u8, index: u32) -> Result<[u8; 16], Errno> {
        let mut gid = [0; 16];
        // SAFETY:
        // - The caller promises that the context is open.
        // - `gid` has the sixteen bytes that the call writes.
        let answer =
            unsafe { ffi::lgv_gid_raw_query(self.as_ptr(), port, index, gid.as_mut_ptr()) };
        Errno::check(answer)?;
        Ok(gid)
    }

    /// One entry of a port's partition key table.
    ///
    /// # Errors
    /// The number that reading it gave.
    ///
    /// # Safety
    /// - The device is open.
    pub unsafe fn pkey(self, port: u8, index: u32) -> Result<u16, Errno> {
        let mut pkey = 0;
        // SAFETY:
        // - The caller promises that the context is open.
        // - `pkey` is a valid output for the call.
        let answer = unsafe { ffi::lgv_pkey_query(self.as_ptr(), port, index, &raw mut pkey) };
        Errno::check(answer)?;
        Ok(pkey)
    }

    /// The device's free-running counter now.
    ///
    /// # Errors
    /// [`Errno::NOT_SUPPORTED`] where it can't be read.
    ///
    /// # Safety
    /// - The device is open.
    pub unsafe fn clock(self) -> Result<u64, Errno> {
        let mut clock = ffi::lgv_clock::new();
        // SAFETY:
        // - The caller promises that the context is open.
        // - `clock` is a valid output of the size that it names.
        let answer = unsafe { ffi::lgv_clock_query(self.as_ptr(), &raw mut clock) };
        Errno::check(answer)?;
        Ok(clock.raw)
    }

    /// Takes the next asynchronous event. It must be given back with [`AsyncEvent::acknowledge`].
    ///
    /// # Errors
    /// [`Errno::AGAIN`] if there is none and the descriptor doesn't block.
    ///
    /// # Safety
    /// - The device is open.
    pub unsafe fn async_event(self) -> Result<AsyncEvent, Errno> {
        let mut event = ffi::lgv_async_event::new();
        // SAFETY:
        // - The caller promises that the context is open.
        // - `event` is a valid output of the size that it names.
        let answer = unsafe { ffi::lgv_async_event_get(self.as_ptr(), &raw mut event) };
        Errno::check(answer)?;
        Ok(AsyncEvent::from_native(event))
    }
}
