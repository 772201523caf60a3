//! What the calling files share: how a handle is made, how a struct of the shim is made, how texts are read.
//!
//! Promises: a handle is never null; a struct carries its size. Does not do: any call.
#![allow(unsafe_code)]

use std::ffi::c_char;

/// Defines a bare handle: the address of one native object, never null.
macro_rules! handle {
    ($(#[$doc:meta])* $name:ident, $native:ident) => {
        $(#[$doc])*
        ///
        /// Bare: copies are the same object, and nothing happens on drop.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub struct $name(std::ptr::NonNull<$crate::ffi::$native>);

        // SAFETY:
        // - libibverbs lets any thread call any verb on any object (its manual, `ibv_open_device` and following).
        // - The handle itself is an address; nothing is read through it here.
        unsafe impl Send for $name {}
        // SAFETY:
        // - As for `Send`; objects that verbs change have locks inside the library and its drivers.
        unsafe impl Sync for $name {}

        impl $name {
            /// The handle of what a successful call gave.
            ///
            /// # Errors
            /// [`Errno::SILENT`](crate::Errno::SILENT) if that is null, which no successful call of the shim gives.
            pub(crate) fn given(
                native: *mut $crate::ffi::$native,
            ) -> Result<Self, $crate::errno::Errno> {
                std::ptr::NonNull::new(native)
                    .map(Self)
                    .ok_or($crate::errno::Errno::SILENT)
            }

            #[allow(dead_code, reason = "not every object is passed on")]
            pub(crate) fn as_ptr(self) -> *mut $crate::ffi::$native {
                self.0.as_ptr()
            }

            /// The object's address, to compare with those that events carry.
            #[must_use]
            pub fn address(self) -> u64 {
                self.0.as_ptr().expose_provenance() as u64
            }
        }
    };
}
pub(crate) use handle;

/// Gives a struct of the shim a constructor that sets its size and zeroes the rest.
macro_rules! sized {
    ($($vis:vis $native:ident),+ $(,)?) => {$(
        impl $crate::ffi::$native {
            /// All zero but for the size, which the shim checks.
            #[must_use]
            $vis fn new() -> Self {
                Self { size: crate::sys::size_of_u32::<Self>(), ..Self::default() }
            }
        }
    )+};
}
pub(crate) use sized;

/// The size of a type of the shim. They are all far below 4 GiB, so nothing is cut.
pub(crate) const fn size_of_u32<T>() -> u32 {
    size_of::<T>() as u32
}

/// Reads a text that the shim has filled with zeros behind.
pub(crate) fn text(field: &[c_char]) -> String {
    let bytes: Vec<u8> = field
        .iter()
        .map(|c| c.to_ne_bytes()[0])
        .take_while(|byte| *byte != 0)
        .collect();
    String::from_utf8_lossy(&bytes).into_owned()
}
