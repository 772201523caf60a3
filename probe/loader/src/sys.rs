//! The calls into a verbs library that was loaded by name.
//!
//! Promises: every entry is looked up by its name when it is needed, and one that is not there is an answer, not a crash; error
//! numbers are positive. Does not do: unloading, or deciding what to call.

#![allow(unsafe_code)]

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ptr::{self, NonNull};

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW, Symbol};

use crate::ffi::{
    ABI_COMPAT_AT, ABI_IS_EXTENDED, ACCESS_LOCAL_WRITE, CONTEXT_SIZE, CREATE_FLOW_BEFORE, Context,
    Cq, DESTROY_FLOW_BEFORE, DeviceAttr, EthFlow, Flow, Mr, Pd, PortAttr, QP_STATE_AND_PORT,
    QPT_RAW_PACKET, Qp, QpAttr, QpCap, QpInitAttr, RawDevice, SZ_BEFORE,
};
use crate::protocol::{Device, Outcome};

/// Why a call gave nothing: as a trial reports it.
pub(crate) type Refused = Outcome;

/// A loaded library; it stays loaded.
pub(crate) struct Verbs {
    library: ManuallyDrop<Library>,
}

impl Verbs {
    /// Loads a file, or what the loader finds under a bare name. The error is the loader's own text.
    pub(crate) fn load(name: &str) -> Result<Self, String> {
        // SAFETY:
        // - the initialisers of the file may do anything: this process was made to run them, and the caller of `serve` was told.
        let library = unsafe { Library::open(Some(name), RTLD_NOW | RTLD_LOCAL) };
        library
            .map(|library| Self {
                library: ManuallyDrop::new(library),
            })
            .map_err(|error| match std::error::Error::source(&error) {
                // The loader's words are the source; the error itself only names the call.
                Some(words) => words.to_string(),
                None => error.to_string(),
            })
    }

    /// `ibv_is_fork_initialized`, since version 1.13.
    pub(crate) fn fork_state(&self) -> Option<i32> {
        let call: Symbol<unsafe extern "C" fn() -> c_int> =
            self.entry("ibv_is_fork_initialized").ok()?;
        // SAFETY:
        // - the type is that of `infiniband/verbs.h`; the call takes nothing and may be made at any time.
        Some(unsafe { call() })
    }

    /// `ibv_get_device_list`; the error number of a failure.
    pub(crate) fn devices(&self) -> Result<Devices<'_>, i32> {
        type Get = unsafe extern "C" fn(*mut c_int) -> *mut *mut RawDevice;
        const ENOSYS: i32 = 38;
        let call: Symbol<Get> = self.entry("ibv_get_device_list").map_err(|_| ENOSYS)?;
        let mut count = 0;
        // SAFETY:
        // - the type is that of `infiniband/verbs.h`;
        // - `count` is a valid place for the number.
        let list = unsafe { call(&raw mut count) };
        let first = NonNull::new(list).ok_or_else(last_error)?;
        Ok(Devices {
            verbs: self,
            first,
            count: usize::try_from(count).unwrap_or(0),
        })
    }

    /// Looks an entry up by its name; the default version is what `dlsym` gives.
    fn entry<T>(&self, name: &str) -> Result<Symbol<T>, Refused> {
        // SAFETY:
        // - every caller names an entry together with the type that `infiniband/verbs.h` gives it.
        unsafe { self.library.get::<T>(name.as_bytes()) }.map_err(|_| Outcome::Absent)
    }
}

/// The list of devices; it is never given back, so that what points into it stays valid.
pub(crate) struct Devices<'v> {
    verbs: &'v Verbs,
    first: NonNull<*mut RawDevice>,
    count: usize,
}

impl<'v> Devices<'v> {
    /// What each of them is.
    pub(crate) fn describe(&self) -> Vec<Device> {
        let guid: Result<Symbol<unsafe extern "C" fn(*mut RawDevice) -> u64>, _> =
            self.verbs.entry("ibv_get_device_guid");
        (0..self.count)
            .filter_map(|index| self.at(index))
            .map(|device| Device {
                name: self.name(device),
                node: node(device),
                guid: guid.as_ref().map_or([0; 8], |guid| {
                    // SAFETY:
                    // - the type is that of `infiniband/verbs.h`, whose `__be64` is 64 bits in the order of the wire;
                    // - the device is an element of the list, which is never given back.
                    unsafe { guid(device.as_ptr()) }.to_ne_bytes()
                }),
            })
            .collect()
    }

    /// Opens one by name: `ibv_open_device`. None if there is no such device.
    pub(crate) fn open(&self, name: &str) -> Option<Result<Opened<'v>, Refused>> {
        let device = (0..self.count)
            .filter_map(|index| self.at(index))
            .find(|device| self.name(*device) == name)?;
        Some(self.open_device(device))
    }

    fn open_device(&self, device: NonNull<RawDevice>) -> Result<Opened<'v>, Refused> {
        let call: Symbol<unsafe extern "C" fn(*mut RawDevice) -> *mut Context> =
            self.verbs.entry("ibv_open_device")?;
        // SAFETY:
        // - the type is that of `infiniband/verbs.h`;
        // - the device is an element of the list, which is never given back.
        let context = unsafe { call(device.as_ptr()) };
        Ok(Opened {
            verbs: self.verbs,
            context: made(context)?,
            not_sync: PhantomData,
        })
    }

    fn at(&self, index: usize) -> Option<NonNull<RawDevice>> {
        if index >= self.count {
            return None;
        }
        // SAFETY:
        // - `index` is below the number of elements that the library told with the list.
        let element = unsafe { self.first.add(index) };
        // SAFETY:
        // - the list holds pointers, is aligned for them and is never given back.
        let device = unsafe { element.read() };
        NonNull::new(device)
    }

    fn name(&self, device: NonNull<RawDevice>) -> String {
        // SAFETY:
        // - the device is an element of the list, which is never given back, and nobody writes to it.
        let device = unsafe { device.as_ref() };
        text(&device.name)
    }
}

fn node(device: NonNull<RawDevice>) -> String {
    // SAFETY:
    // - the device is an element of a list that is never given back, and nobody writes to it.
    let device = unsafe { device.as_ref() };
    text(&device.dev_name)
}

/// An open device.
pub(crate) struct Opened<'v> {
    verbs: &'v Verbs,
    context: NonNull<Context>,
    not_sync: PhantomData<Cell<()>>,
}

/// Objects of an open device. Each is destroyed by the call of the same name on [`Opened`], or not at all.
pub(crate) type Domain = NonNull<Pd>;
pub(crate) type Registration = NonNull<Mr>;
pub(crate) type Completions = NonNull<Cq>;
pub(crate) type Pair = NonNull<Qp>;
pub(crate) type Rule = NonNull<Flow>;

impl Opened<'_> {
    /// `ibv_query_device`: the firmware.
    pub(crate) fn firmware(&self) -> Result<String, Refused> {
        let call: Symbol<unsafe extern "C" fn(*mut Context, *mut DeviceAttr) -> c_int> =
            self.verbs.entry("ibv_query_device")?;
        let mut attributes = DeviceAttr::zeroed();
        // SAFETY:
        // - the type is that of `infiniband/verbs.h`, whose struct has this size, see `LAYOUT`;
        // - the context is open: only `close` ends it, and it takes `self`.
        let status = unsafe { call(self.context.as_ptr(), &raw mut attributes) };
        returned(status)?;
        Ok(text(&attributes.fw_ver))
    }

    /// `ibv_query_port`: the MTU that the port uses and the largest it could, in bytes.
    pub(crate) fn mtu(&self, port: u8) -> Result<(u32, u32), Refused> {
        let call: Symbol<unsafe extern "C" fn(*mut Context, u8, *mut PortAttr) -> c_int> =
            self.verbs.entry("ibv_query_port")?;
        let mut attributes = PortAttr::zeroed();
        // SAFETY:
        // - the exported entry takes these three, whatever the macro of that name does, and fills no more than the struct of
        //   `infiniband/verbs.h`, whose size this has, see `LAYOUT`;
        // - the context is open.
        let status = unsafe { call(self.context.as_ptr(), port, &raw mut attributes) };
        returned(status)?;
        // 1 is 256 bytes, and each next number is twice as much.
        let bytes = |number: u32| 128_u32.checked_shl(number).unwrap_or(0);
        Ok((bytes(attributes.active_mtu), bytes(attributes.max_mtu)))
    }

    /// `ibv_alloc_pd`.
    pub(crate) fn domain(&self) -> Result<Domain, Refused> {
        let call: Symbol<unsafe extern "C" fn(*mut Context) -> *mut Pd> =
            self.verbs.entry("ibv_alloc_pd")?;
        // SAFETY:
        // - the type is that of `infiniband/verbs.h`, and the context is open.
        made(unsafe { call(self.context.as_ptr()) })
    }

    /// `ibv_reg_mr` of one page that lives as long as the process.
    pub(crate) fn register(&self, domain: Domain) -> Result<Registration, Refused> {
        type Register = unsafe extern "C" fn(*mut Pd, *mut c_void, usize, c_int) -> *mut Mr;
        let call: Symbol<Register> = self.verbs.entry("ibv_reg_mr")?;
        let memory: &'static mut [u8] = Box::leak(vec![0; 4096].into_boxed_slice());
        let start = memory.as_mut_ptr().cast();
        // SAFETY:
        // - the exported entry takes these four, whatever the macro of that name does;
        // - the domain comes from `domain` of this context and is still there;
        // - the memory is 4,096 bytes and is never freed.
        made(unsafe { call(domain.as_ptr(), start, 4096, ACCESS_LOCAL_WRITE) })
    }

    /// `ibv_reg_dmabuf_mr` with a descriptor that is none: the error tells whether the kernel's driver has the call at all.
    pub(crate) fn register_no_dmabuf(&self, domain: Domain) -> Result<Registration, Refused> {
        type Register = unsafe extern "C" fn(*mut Pd, u64, usize, u64, c_int, c_int) -> *mut Mr;
        let call: Symbol<Register> = self.verbs.entry("ibv_reg_dmabuf_mr")?;
        // SAFETY:
        // - the type is that of `infiniband/verbs.h` since 1.12;
        // - the domain comes from `domain` of this context and is still there.
        made(unsafe { call(domain.as_ptr(), 0, 4096, 0, -1, ACCESS_LOCAL_WRITE) })
    }

    /// `ibv_create_cq` of 16 entries, without a channel.
    pub(crate) fn completions(&self) -> Result<Completions, Refused> {
        type Create =
            unsafe extern "C" fn(*mut Context, c_int, *mut c_void, *mut c_void, c_int) -> *mut Cq;
        let call: Symbol<Create> = self.verbs.entry("ibv_create_cq")?;
        // SAFETY:
        // - the type is that of `infiniband/verbs.h`, and the context is open;
        // - its own context and the channel may be null, and vector 0 is always there.
        made(unsafe {
            call(
                self.context.as_ptr(),
                16,
                ptr::null_mut(),
                ptr::null_mut(),
                0,
            )
        })
    }

    /// `ibv_create_qp` of the type RAW_PACKET.
    pub(crate) fn raw_pair(&self, domain: Domain, cq: Completions) -> Result<Pair, Refused> {
        let call: Symbol<unsafe extern "C" fn(*mut Pd, *mut QpInitAttr) -> *mut Qp> =
            self.verbs.entry("ibv_create_qp")?;
        let mut attributes = QpInitAttr {
            qp_context: ptr::null_mut(),
            send_cq: cq.as_ptr(),
            recv_cq: cq.as_ptr(),
            srq: ptr::null_mut(),
            cap: QpCap {
                max_send_wr: 1,
                max_recv_wr: 8,
                max_send_sge: 1,
                max_recv_sge: 1,
                max_inline_data: 0,
            },
            qp_type: QPT_RAW_PACKET,
            sq_sig_all: 0,
        };
        // SAFETY:
        // - the type is that of `infiniband/verbs.h`, whose struct has this layout, see `LAYOUT`;
        // - domain and completion queue come from this context and are still there.
        made(unsafe { call(domain.as_ptr(), &raw mut attributes) })
    }

    /// `ibv_modify_qp` to INIT on a port, which a flow needs.
    pub(crate) fn ready(&self, pair: Pair, port: u8) -> Result<(), Refused> {
        let call: Symbol<unsafe extern "C" fn(*mut Qp, *mut QpAttr, c_int) -> c_int> =
            self.verbs.entry("ibv_modify_qp")?;
        let mut attributes = QpAttr::init(port);
        // SAFETY:
        // - the type is that of `infiniband/verbs.h`, whose struct has this size, see `LAYOUT`;
        // - the mask names the only two fields that are set, and the pair is still there.
        let status = unsafe { call(pair.as_ptr(), &raw mut attributes, QP_STATE_AND_PORT) };
        returned(status)
    }

    /// `ibv_create_flow`, which is an inline over an entry of the context.
    pub(crate) fn flow(&self, pair: Pair, port: u8) -> Result<Rule, Refused> {
        type Create = unsafe extern "C" fn(*mut Qp, *mut EthFlow) -> *mut Flow;
        let entry = self.before_context(CREATE_FLOW_BEFORE)?;
        // SAFETY:
        // - the entry is `ibv_create_flow` of `struct verbs_context`, see `LAYOUT`, and is not null.
        let call = unsafe { std::mem::transmute::<NonNull<c_void>, Create>(entry) };
        let mut rule = EthFlow::harmless(port);
        // SAFETY:
        // - the pair is still there, and the rule's sizes and number of parts are true, see `LAYOUT`.
        made(unsafe { call(pair.as_ptr(), &raw mut rule) })
    }

    /// `ibv_destroy_flow`.
    pub(crate) fn end_flow(&self, rule: Rule) -> Result<(), Refused> {
        type Destroy = unsafe extern "C" fn(*mut Flow) -> c_int;
        let entry = self.before_context(DESTROY_FLOW_BEFORE)?;
        // SAFETY:
        // - the entry is `ibv_destroy_flow` of `struct verbs_context`, see `LAYOUT`, and is not null.
        let call = unsafe { std::mem::transmute::<NonNull<c_void>, Destroy>(entry) };
        // SAFETY:
        // - the rule comes from `flow` and is destroyed once: the trial does so and forgets it.
        returned(unsafe { call(rule.as_ptr()) })
    }

    /// Destroys an object with the entry of that name, which takes a pointer and returns a status.
    pub(crate) fn end<T>(&self, entry: &str, object: NonNull<T>) -> Result<(), Refused> {
        let call: Symbol<unsafe extern "C" fn(*mut T) -> c_int> = self.verbs.entry(entry)?;
        // SAFETY:
        // - `entry` is the one that destroys objects of this type;
        // - the object is destroyed once: the trial does so and forgets it.
        returned(unsafe { call(object.as_ptr()) })
    }

    /// `ibv_close_device`.
    pub(crate) fn close(self) -> Result<(), Refused> {
        let context = self.context;
        self.end("ibv_close_device", context)
    }

    /// An entry of the `struct verbs_context` around the context, as `verbs_get_ctx_op` finds it.
    fn before_context(&self, distance: usize) -> Result<NonNull<c_void>, Refused> {
        // SAFETY:
        // - `abi_compat` lies within `struct ibv_context`, see `LAYOUT`.
        let compat = unsafe { self.context.as_ptr().byte_add(ABI_COMPAT_AT) };
        // SAFETY:
        // - the context is open, and the field has the size and alignment of a pointer.
        if unsafe { compat.cast::<usize>().read() } != ABI_IS_EXTENDED {
            return Err(Outcome::Absent);
        }
        // SAFETY:
        // - the mark just read says that the context is the end of a `struct verbs_context`, whose `sz` lies before it.
        let size = unsafe { self.context.as_ptr().byte_sub(SZ_BEFORE) };
        // SAFETY:
        // - the field is a `size_t` of an open context.
        if unsafe { size.cast::<usize>().read() } < CONTEXT_SIZE + distance {
            return Err(Outcome::Absent);
        }
        // SAFETY:
        // - `sz` just read says that the struct reaches back this far.
        let entry = unsafe { self.context.as_ptr().byte_sub(distance) };
        // SAFETY:
        // - the entries are pointers of an open context.
        let entry = unsafe { entry.cast::<*mut c_void>().read() };
        NonNull::new(entry).ok_or(Outcome::Absent)
    }
}

/// A pointer, or the error number that the call left.
fn made<T>(pointer: *mut T) -> Result<NonNull<T>, Refused> {
    NonNull::new(pointer).ok_or_else(|| Outcome::Failed(last_error()))
}

/// Most calls return a positive error number, some old ones a negative one or -1 with `errno`.
fn returned(status: c_int) -> Result<(), Refused> {
    match status {
        0 => Ok(()),
        -1 => Err(Outcome::Failed(last_error())),
        other => Err(Outcome::Failed(other.wrapping_abs())),
    }
}

fn last_error() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// A text that C keeps in a field of fixed size; cut at the first zero, if there is one.
fn text(field: &[c_char]) -> String {
    let bytes: Vec<u8> = field.iter().map(|one| one.to_ne_bytes()[0]).collect();
    match CStr::from_bytes_until_nul(&bytes) {
        Ok(text) => text.to_string_lossy().into_owned(),
        Err(_) => String::from_utf8_lossy(&bytes).into_owned(),
    }
}
