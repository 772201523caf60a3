//! The calls on completion queues, channels and events.
//!
//! Promises: a poll writes into the caller's slice and nowhere else. Does not do: waiting, except where a descriptor blocks.
#![allow(unsafe_code)]

use std::ptr;

use super::{AsyncEvent, Completion, CompletionEx, CqInfo, CqOptions};
use crate::device::sys::ContextHandle;
use crate::errno::Errno;
use crate::ffi;
use crate::sys::{handle, size_of_u32};

handle! {
    /// A channel on which completion queues announce completions.
    ChannelHandle, ibv_comp_channel
}

handle! {
    /// A completion queue.
    CqHandle, ibv_cq
}

handle! {
    /// The extended side of a completion queue, for polling; the same object as its [`CqHandle`].
    CqExHandle, ibv_cq_ex
}

impl ChannelHandle {
    /// Makes one.
    ///
    /// # Errors
    /// The kernel's number.
    ///
    /// # Safety
    /// - The device is open and stays so until this is destroyed.
    pub unsafe fn create(context: ContextHandle) -> Result<Self, Errno> {
        let mut channel = ptr::null_mut();
        // SAFETY:
        // - The caller promises that the context is open.
        // - `channel` is a valid output for the call.
        let answer = unsafe { ffi::lgv_channel_create(context.as_ptr(), &raw mut channel) };
        Errno::check(answer)?;
        Self::given(channel)
    }

    /// Destroys it.
    ///
    /// # Errors
    /// [`Errno::BUSY`]: a completion queue uses it, and nothing was done.
    ///
    /// # Safety
    /// - It is live, and no call on it runs; after `Ok` there is no other use.
    pub unsafe fn destroy(self) -> Result<(), Errno> {
        // SAFETY:
        // - The caller promises that it is live and not in use.
        let answer = unsafe { ffi::lgv_channel_destroy(self.as_ptr()) };
        Errno::check(answer).map(drop)
    }

    /// Its descriptor, to be waited on. It belongs to the channel.
    ///
    /// # Errors
    /// None in a library build.
    ///
    /// # Safety
    /// - It is live.
    pub unsafe fn descriptor(self) -> Result<i32, Errno> {
        let mut descriptor = -1;
        // SAFETY:
        // - The caller promises that it is live.
        // - `descriptor` is a valid output for the call.
        let answer = unsafe { ffi::lgv_channel_fd(self.as_ptr(), &raw mut descriptor) };
        Errno::check(answer)?;
        Ok(descriptor)
    }

    /// Takes the next event: the queue, and the token that it was made with. It must be acknowledged with
    /// [`CqHandle::acknowledge`].
    ///
    /// # Errors
    /// [`Errno::AGAIN`] if there is none and the descriptor doesn't block.
    ///
    /// # Safety
    /// - It is live.
    pub unsafe fn event(self) -> Result<(CqHandle, u64), Errno> {
        let mut cq = ptr::null_mut();
        let mut token = 0;
        // SAFETY:
        // - The caller promises that it is live.
        // - Both outputs are valid for the call.
        let answer =
            unsafe { ffi::lgv_channel_event_get(self.as_ptr(), &raw mut cq, &raw mut token) };
        Errno::check(answer)?;
        Ok((CqHandle::given(cq)?, token))
    }
}

impl CqHandle {
    /// Makes a queue.
    ///
    /// # Errors
    /// [`Errno::INVALID`] for more entries than the device has.
    ///
    /// # Safety
    /// - The device is open, the channel is live, and both stay so until this is destroyed.
    pub unsafe fn create(context: ContextHandle, options: &CqOptions) -> Result<Self, Errno> {
        let native = options.native();
        let mut cq = ptr::null_mut();
        // SAFETY:
        // - The caller promises that context and channel are live.
        // - `native` is a valid input of the size that it names, `cq` a valid output.
        let answer =
            unsafe { ffi::lgv_cq_create(context.as_ptr(), &raw const native, &raw mut cq) };
        Errno::check(answer)?;
        Self::given(cq)
    }

    /// Destroys it. Waits until all its events are acknowledged.
    ///
    /// # Errors
    /// [`Errno::BUSY`]: a queue pair uses it, and nothing was done. Others prove nothing.
    ///
    /// # Safety
    /// - It is live, and no call on it runs; after `Ok` there is no other use, of its extended side neither.
    pub unsafe fn destroy(self) -> Result<(), Errno> {
        // SAFETY:
        // - The caller promises that it is live and not in use.
        let answer = unsafe { ffi::lgv_cq_destroy(self.as_ptr()) };
        Errno::check(answer).map(drop)
    }

    /// What was made.
    ///
    /// # Errors
    /// None in a library build.
    ///
    /// # Safety
    /// - It is live.
    pub unsafe fn info(self) -> Result<CqInfo, Errno> {
        let mut info = CqInfo::new();
        // SAFETY:
        // - The caller promises that it is live.
        // - `info` is a valid output of the size that it names.
        let answer = unsafe { ffi::lgv_cq_info(self.as_ptr(), &raw mut info) };
        Errno::check(answer)?;
        Ok(info)
    }

    /// Takes completions into `into`; gives how many.
    ///
    /// # Errors
    /// [`Errno::IO`]: the queue is broken.
    ///
    /// # Safety
    /// - It is live.
    #[inline]
    pub unsafe fn poll(self, into: &mut [Completion]) -> Result<usize, Errno> {
        let capacity = u32::try_from(into.len()).unwrap_or(u32::MAX >> 1);
        // SAFETY:
        // - The caller promises that it is live.
        // - `into` has room for `capacity` completions of the size that is named.
        let answer = unsafe {
            ffi::lgv_cq_poll(
                self.as_ptr(),
                into.as_mut_ptr(),
                size_of_u32::<Completion>(),
                capacity,
            )
        };
        Errno::check(answer).map(|count| count as usize)
    }

    /// Asks for one event at the next completion.
    ///
    /// # Errors
    /// The driver's number.
    ///
    /// # Safety
    /// - It is live.
    pub unsafe fn notify(self, solicited_only: bool) -> Result<(), Errno> {
        // SAFETY:
        // - The caller promises that it is live.
        let answer = unsafe { ffi::lgv_cq_notify(self.as_ptr(), u32::from(solicited_only)) };
        Errno::check(answer).map(drop)
    }

    /// Acknowledges events that were taken from its channel. Takes a lock, so do many at once.
    ///
    /// # Errors
    /// None in a library build.
    ///
    /// # Safety
    /// - It is live, and so many events were taken and not acknowledged.
    pub unsafe fn acknowledge(self, events: u32) -> Result<(), Errno> {
        // SAFETY:
        // - The caller promises that it is live and that the events are there.
        let answer = unsafe { ffi::lgv_cq_events_ack(self.as_ptr(), events) };
        Errno::check(answer).map(drop)
    }
}

impl CqExHandle {
    /// Makes a queue whose completions carry what `options` ask for.
    ///
    /// # Errors
    /// [`Errno::NOT_SUPPORTED`] where the device can't give it.
    ///
    /// # Safety
    /// - As for [`CqHandle::create`].
    pub unsafe fn create(
        context: ContextHandle,
        options: &CqOptions,
    ) -> Result<(Self, CqHandle), Errno> {
        let native = options.native();
        let mut extended = ptr::null_mut();
        let mut cq = ptr::null_mut();
        // SAFETY:
        // - The caller promises that context and channel are live.
        // - `native` is a valid input of the size that it names; both outputs are valid.
        let answer = unsafe {
            ffi::lgv_cq_ex_create(
                context.as_ptr(),
                &raw const native,
                &raw mut extended,
                &raw mut cq,
            )
        };
        Errno::check(answer)?;
        Ok((Self::given(extended)?, CqHandle::given(cq)?))
    }

    /// Takes completions into `into`; gives how many. `extended` is what the queue was made with.
    ///
    /// With `batch` all are taken under one lock of the driver, which rxe gets wrong (`LGV_POLL_BATCH` in the header).
    ///
    /// # Errors
    /// [`Errno::IO`]: the queue is broken.
    ///
    /// # Safety
    /// - It is live, and no other thread polls it: a poll is several calls on the queue.
    /// - It was made with all of `extended`.
    #[inline]
    pub unsafe fn poll(
        self,
        extended: u32,
        batch: bool,
        into: &mut [CompletionEx],
    ) -> Result<usize, Errno> {
        let capacity = u32::try_from(into.len()).unwrap_or(u32::MAX >> 1);
        // SAFETY:
        // - The caller promises that it is live, not polled elsewhere, and made for these fields.
        // - `into` has room for `capacity` completions of the size that is named.
        let answer = unsafe {
            ffi::lgv_cq_ex_poll(
                self.as_ptr(),
                extended,
                if batch { ffi::LGV_POLL_BATCH } else { 0 },
                into.as_mut_ptr(),
                size_of_u32::<CompletionEx>(),
                capacity,
            )
        };
        Errno::check(answer).map(|count| count as usize)
    }
}

impl AsyncEvent {
    /// Acknowledges the event.
    ///
    /// # Errors
    /// None in a library build.
    ///
    /// # Safety
    /// - The object that the event is about is live.
    pub unsafe fn acknowledge(self) -> Result<(), Errno> {
        // SAFETY:
        // - The caller promises that the object is live; the event was taken once and is consumed here.
        // - The event is a valid input of the size that it names.
        let answer = unsafe { ffi::lgv_async_event_ack(&raw const self.native) };
        Errno::check(answer).map(drop)
    }
}
