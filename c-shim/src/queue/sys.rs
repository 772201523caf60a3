//! The calls on queue pairs, address handles, flow rules and multicast groups.
//!
//! Promises: a batch that was posted in part says how far. Does not do: keeping buffers alive until they complete.
#![allow(unsafe_code)]

use std::ptr;

use super::{
    AddressVector, FlowRule, Partial, QpAttributes, QpInfo, QpOptions, RecvRequest, SendRequest,
};
use crate::completion::sys::CqHandle;
use crate::errno::Errno;
use crate::ffi;
use crate::memory::sys::PdHandle;
use crate::sys::{handle, size_of_u32};

handle! {
    /// A queue pair.
    QpHandle, ibv_qp
}

handle! {
    /// The way to one receiver of datagrams.
    AhHandle, ibv_ah
}

handle! {
    /// A rule that steers packets to a queue pair.
    FlowHandle, ibv_flow
}

impl QpHandle {
    /// Makes a queue pair; tells what was granted.
    ///
    /// # Errors
    /// `EPERM` for raw packets without `CAP_NET_RAW`, [`Errno::NOT_SUPPORTED`] for a kind that the device lacks,
    /// [`Errno::NO_MEMORY`] or [`Errno::INVALID`] beyond a limit, by driver.
    ///
    /// # Safety
    /// - Domain and queues are live, of one device, and stay so until this is destroyed.
    pub unsafe fn create(
        pd: PdHandle,
        send_cq: CqHandle,
        receive_cq: CqHandle,
        options: &QpOptions,
    ) -> Result<(Self, QpInfo), Errno> {
        let native = ffi::lgv_qp_create {
            qp_type: options.kind.native(),
            send_cq: send_cq.as_ptr(),
            recv_cq: receive_cq.as_ptr(),
            max_send_wr: options.max_send,
            max_recv_wr: options.max_receive,
            max_send_sge: options.max_send_pieces,
            max_recv_sge: options.max_receive_pieces,
            max_inline_data: options.max_inline,
            create_flags: options.flags,
            signal_all: u32::from(options.signal_all),
            ..ffi::lgv_qp_create::new()
        };
        let mut info = QpInfo::new();
        let mut qp = ptr::null_mut();
        // SAFETY:
        // - The caller promises that domain and queues are live.
        // - `native` is a valid input and `info` a valid output of the sizes that they name; `qp` is a valid output.
        let answer = unsafe {
            ffi::lgv_qp_create(pd.as_ptr(), &raw const native, &raw mut info, &raw mut qp)
        };
        Errno::check(answer)?;
        Ok((Self::given(qp)?, info))
    }

    /// Destroys it. Waits until all its asynchronous events are acknowledged.
    ///
    /// # Errors
    /// [`Errno::BUSY`]: attached to a multicast group, and nothing was done. Others prove nothing.
    ///
    /// # Safety
    /// - It is live, and no call on it runs; after `Ok` there is no other use.
    pub unsafe fn destroy(self) -> Result<(), Errno> {
        // SAFETY:
        // - The caller promises that it is live and not in use.
        let answer = unsafe { ffi::lgv_qp_destroy(self.as_ptr()) };
        Errno::check(answer).map(drop)
    }

    /// Changes the fields that `fields` names.
    ///
    /// # Errors
    /// The kernel's number: [`Errno::INVALID`] for a change that the state doesn't allow.
    ///
    /// # Safety
    /// - It is live.
    pub unsafe fn modify(self, attributes: &QpAttributes, fields: u32) -> Result<(), Errno> {
        // SAFETY:
        // - The caller promises that it is live.
        // - `attributes` is a valid input; another size than it names is refused.
        let answer = unsafe { ffi::lgv_qp_modify(self.as_ptr(), attributes, fields) };
        Errno::check(answer).map(drop)
    }

    /// Reads the fields that `fields` names.
    ///
    /// # Errors
    /// The kernel's number.
    ///
    /// # Safety
    /// - It is live.
    pub unsafe fn query(self, fields: u32) -> Result<QpAttributes, Errno> {
        let mut attributes = QpAttributes::new();
        // SAFETY:
        // - The caller promises that it is live.
        // - `attributes` is a valid output of the size that it names.
        let answer = unsafe { ffi::lgv_qp_query(self.as_ptr(), fields, &raw mut attributes) };
        Errno::check(answer)?;
        Ok(attributes)
    }

    /// Posts sends in order, up to the first that is refused.
    ///
    /// # Errors
    /// [`Partial`]: how many were posted, and why the next was not; [`Errno::NO_MEMORY`] for a full queue.
    ///
    /// # Safety
    /// - It is live, and so are the windows, regions and address handles in the requests.
    /// - The memory of the pieces stays registered, mapped and untouched until the completion has come; with
    ///   [`INLINE`](super::send_flags::INLINE) it must be readable now.
    pub unsafe fn post_send(self, requests: &[SendRequest<'_>]) -> Result<(), Partial> {
        let count = batch(requests.len())?;
        let mut posted = 0;
        // SAFETY:
        // - The caller promises what concerns queue pair and memory.
        // - `requests` are `count` structs of the named size, since the type is transparent; `posted` is a valid output.
        let answer = unsafe {
            ffi::lgv_qp_post_send(
                self.as_ptr(),
                requests.as_ptr().cast(),
                size_of_u32::<SendRequest<'_>>(),
                count,
                &raw mut posted,
            )
        };
        part(answer, posted)
    }

    /// Posts receives in order, up to the first that is refused.
    ///
    /// # Errors
    /// As for [`post_send`](Self::post_send).
    ///
    /// # Safety
    /// - It is live.
    /// - The memory of the pieces stays registered and mapped until the completion has come, and nothing in this process
    ///   relies on its content until then.
    pub unsafe fn post_receive(self, requests: &mut [RecvRequest<'_>]) -> Result<(), Partial> {
        let count = batch(requests.len())?;
        let mut posted = 0;
        // SAFETY:
        // - The caller promises what concerns queue pair and memory.
        // - `requests` are `count` structs of the named size, since the type is transparent; `posted` is a valid output.
        let answer = unsafe {
            ffi::lgv_qp_post_recv(
                self.as_ptr(),
                requests.as_mut_ptr().cast(),
                size_of_u32::<RecvRequest<'_>>(),
                count,
                &raw mut posted,
            )
        };
        part(answer, posted)
    }

    /// Lets a datagram queue pair receive a group.
    ///
    /// # Errors
    /// [`Errno::INVALID`] for another kind of queue pair or a GID that is no group.
    ///
    /// # Safety
    /// - It is live.
    pub unsafe fn attach(self, group: &[u8; 16], lid: u16) -> Result<(), Errno> {
        // SAFETY:
        // - The caller promises that it is live.
        // - `group` has the sixteen bytes that the call reads.
        let answer = unsafe { ffi::lgv_mcast_attach(self.as_ptr(), group.as_ptr(), lid) };
        Errno::check(answer).map(drop)
    }

    /// Ends what [`attach`](Self::attach) began.
    ///
    /// # Errors
    /// [`Errno::INVALID`] if it isn't attached.
    ///
    /// # Safety
    /// - It is live.
    pub unsafe fn detach(self, group: &[u8; 16], lid: u16) -> Result<(), Errno> {
        // SAFETY:
        // - The caller promises that it is live.
        // - `group` has the sixteen bytes that the call reads.
        let answer = unsafe { ffi::lgv_mcast_detach(self.as_ptr(), group.as_ptr(), lid) };
        Errno::check(answer).map(drop)
    }
}

fn batch(length: usize) -> Result<u32, Partial> {
    u32::try_from(length).map_err(|_| Partial {
        posted: 0,
        errno: Errno::INVALID,
    })
}

fn part(answer: i32, posted: u32) -> Result<(), Partial> {
    Errno::check(answer).map(drop).map_err(|errno| Partial {
        posted: posted as usize,
        errno,
    })
}

impl AhHandle {
    /// Makes one.
    ///
    /// # Errors
    /// The driver's number.
    ///
    /// # Safety
    /// - The protection domain is live and stays so until this is destroyed.
    pub unsafe fn create(pd: PdHandle, address: &AddressVector) -> Result<Self, Errno> {
        let mut ah = ptr::null_mut();
        // SAFETY:
        // - The caller promises that the domain is live.
        // - `address` is a valid input; another size than it names is refused. `ah` is a valid output.
        let answer = unsafe { ffi::lgv_ah_create(pd.as_ptr(), address, &raw mut ah) };
        Errno::check(answer)?;
        Self::given(ah)
    }

    /// Destroys it.
    ///
    /// # Errors
    /// The driver's number; it proves nothing.
    ///
    /// # Safety
    /// - It is live, and no request with it waits; after `Ok` there is no other use.
    pub unsafe fn destroy(self) -> Result<(), Errno> {
        // SAFETY:
        // - The caller promises that it is live and not in use.
        let answer = unsafe { ffi::lgv_ah_destroy(self.as_ptr()) };
        Errno::check(answer).map(drop)
    }
}

impl FlowHandle {
    /// Steers packets to a queue pair.
    ///
    /// # Errors
    /// `EEXIST`: the same rule is there. [`Errno::NOT_SUPPORTED`]: the device doesn't steer by these layers. `EPERM`:
    /// `CAP_NET_RAW` is missing.
    ///
    /// # Safety
    /// - The queue pair is live and stays so until this is destroyed.
    pub unsafe fn create(qp: QpHandle, rule: &FlowRule) -> Result<Self, Errno> {
        let mut flow = ptr::null_mut();
        // SAFETY:
        // - The caller promises that the queue pair is live.
        // - `rule` is a valid input; another size than it names is refused. `flow` is a valid output.
        let answer = unsafe { ffi::lgv_flow_create(qp.as_ptr(), rule, &raw mut flow) };
        Errno::check(answer)?;
        Self::given(flow)
    }

    /// Removes the rule.
    ///
    /// # Errors
    /// The driver's number; it proves nothing.
    ///
    /// # Safety
    /// - It is live; after `Ok` there is no other use.
    pub unsafe fn destroy(self) -> Result<(), Errno> {
        // SAFETY:
        // - The caller promises that it is live and not in use.
        let answer = unsafe { ffi::lgv_flow_destroy(self.as_ptr()) };
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
        let answer = unsafe { ffi::lgv_flow_handle(self.as_ptr(), &raw mut handle) };
        Errno::check(answer)?;
        Ok(handle)
    }
}
