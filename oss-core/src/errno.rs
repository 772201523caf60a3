//! The raw error number that the operating system or a native library gave.
//!
//! Promises: the number is kept exactly as it was; a name and a text are only added for people. A number without a name
//! prints as itself. Does not do: mapping to a cause. That is done where the cause is certain, beside the call.

use std::fmt;
use std::io;

/// A raw Linux error number, positive, such as `13` for `EACCES`.
///
/// Native libraries disagree about the sign of what they return; whoever calls them normalises it before it gets here.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Errno(i32);

impl Errno {
    /// `EBUSY`: something still depends on the object; from listed destroy calls it proves that nothing was done.
    pub const BUSY: Self = Self(16);
    /// `EIO`: the device or its driver failed in a way it does not explain.
    pub const IO: Self = Self(5);
    /// `ENOMEM`: no memory, or a limit on locked memory.
    pub const NOMEM: Self = Self(12);
    /// `EPERM`: a capability is missing.
    pub const PERM: Self = Self(1);
    /// `EACCES`: the permission bits or the cgroup refuse.
    pub const ACCES: Self = Self(13);
    /// `ENODEV`: no such device.
    pub const NODEV: Self = Self(19);
    /// `EINVAL`: an argument was refused.
    pub const INVAL: Self = Self(22);
    /// `EAGAIN`: nothing now, try later.
    pub const AGAIN: Self = Self(11);

    /// Takes a raw number as it came; the sign is dropped because libraries differ in it.
    #[must_use]
    pub const fn from_raw(raw: i32) -> Self {
        Self(raw.saturating_abs())
    }

    /// The number of the calling thread's last failed system call.
    #[must_use]
    pub fn last() -> Self {
        Self(io::Error::last_os_error().raw_os_error().unwrap_or(0))
    }

    /// The number that an [`io::Error`] carries, if it came from the operating system.
    #[must_use]
    pub fn from_io(error: &io::Error) -> Option<Self> {
        error.raw_os_error().map(Self::from_raw)
    }

    /// The raw number.
    #[must_use]
    pub const fn raw(self) -> i32 {
        self.0
    }

    /// The symbolic name, such as `EACCES`, where Linux has one.
    #[must_use]
    pub fn name(self) -> Option<&'static str> {
        NAMES
            .binary_search_by_key(&self.0, |(number, _)| *number)
            .ok()
            .and_then(|at| NAMES.get(at))
            .map(|(_, name)| *name)
    }
}

impl fmt::Display for Errno {
    /// `EACCES (13): Permission denied`; without a name only the number and the text.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = io::Error::from_raw_os_error(self.0).to_string();
        // The standard library ends its text with " (os error N)"; the number already stands in front here.
        let text = text
            .rsplit_once(" (os error")
            .map_or(text.as_str(), |(head, _)| head);
        match self.name() {
            Some(name) => write!(f, "{name} ({}): {text}", self.0),
            None => write!(f, "errno {}: {text}", self.0),
        }
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "Errno({name})"),
            None => write!(f, "Errno({})", self.0),
        }
    }
}

impl serde::Serialize for Errno {
    /// A number, so that a reader in another language needs no table.
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_i32(self.0)
    }
}

/// Linux numbers in order (x86-64 and every architecture that shares its table; MIPS, Alpha, PA-RISC and SPARC differ).
const NAMES: &[(i32, &str)] = &[
    (1, "EPERM"),
    (2, "ENOENT"),
    (3, "ESRCH"),
    (4, "EINTR"),
    (5, "EIO"),
    (6, "ENXIO"),
    (7, "E2BIG"),
    (8, "ENOEXEC"),
    (9, "EBADF"),
    (10, "ECHILD"),
    (11, "EAGAIN"),
    (12, "ENOMEM"),
    (13, "EACCES"),
    (14, "EFAULT"),
    (15, "ENOTBLK"),
    (16, "EBUSY"),
    (17, "EEXIST"),
    (18, "EXDEV"),
    (19, "ENODEV"),
    (20, "ENOTDIR"),
    (21, "EISDIR"),
    (22, "EINVAL"),
    (23, "ENFILE"),
    (24, "EMFILE"),
    (25, "ENOTTY"),
    (26, "ETXTBSY"),
    (27, "EFBIG"),
    (28, "ENOSPC"),
    (29, "ESPIPE"),
    (30, "EROFS"),
    (31, "EMLINK"),
    (32, "EPIPE"),
    (33, "EDOM"),
    (34, "ERANGE"),
    (35, "EDEADLK"),
    (36, "ENAMETOOLONG"),
    (37, "ENOLCK"),
    (38, "ENOSYS"),
    (39, "ENOTEMPTY"),
    (40, "ELOOP"),
    (42, "ENOMSG"),
    (43, "EIDRM"),
    (44, "ECHRNG"),
    (45, "EL2NSYNC"),
    (46, "EL3HLT"),
    (47, "EL3RST"),
    (48, "ELNRNG"),
    (49, "EUNATCH"),
    (50, "ENOCSI"),
    (51, "EL2HLT"),
    (52, "EBADE"),
    (53, "EBADR"),
    (54, "EXFULL"),
    (55, "ENOANO"),
    (56, "EBADRQC"),
    (57, "EBADSLT"),
    (59, "EBFONT"),
    (60, "ENOSTR"),
    (61, "ENODATA"),
    (62, "ETIME"),
    (63, "ENOSR"),
    (64, "ENONET"),
    (65, "ENOPKG"),
    (66, "EREMOTE"),
    (67, "ENOLINK"),
    (68, "EADV"),
    (69, "ESRMNT"),
    (70, "ECOMM"),
    (71, "EPROTO"),
    (72, "EMULTIHOP"),
    (73, "EDOTDOT"),
    (74, "EBADMSG"),
    (75, "EOVERFLOW"),
    (76, "ENOTUNIQ"),
    (77, "EBADFD"),
    (78, "EREMCHG"),
    (79, "ELIBACC"),
    (80, "ELIBBAD"),
    (81, "ELIBSCN"),
    (82, "ELIBMAX"),
    (83, "ELIBEXEC"),
    (84, "EILSEQ"),
    (85, "ERESTART"),
    (86, "ESTRPIPE"),
    (87, "EUSERS"),
    (88, "ENOTSOCK"),
    (89, "EDESTADDRREQ"),
    (90, "EMSGSIZE"),
    (91, "EPROTOTYPE"),
    (92, "ENOPROTOOPT"),
    (93, "EPROTONOSUPPORT"),
    (94, "ESOCKTNOSUPPORT"),
    (95, "EOPNOTSUPP"),
    (96, "EPFNOSUPPORT"),
    (97, "EAFNOSUPPORT"),
    (98, "EADDRINUSE"),
    (99, "EADDRNOTAVAIL"),
    (100, "ENETDOWN"),
    (101, "ENETUNREACH"),
    (102, "ENETRESET"),
    (103, "ECONNABORTED"),
    (104, "ECONNRESET"),
    (105, "ENOBUFS"),
    (106, "EISCONN"),
    (107, "ENOTCONN"),
    (108, "ESHUTDOWN"),
    (109, "ETOOMANYREFS"),
    (110, "ETIMEDOUT"),
    (111, "ECONNREFUSED"),
    (112, "EHOSTDOWN"),
    (113, "EHOSTUNREACH"),
    (114, "EALREADY"),
    (115, "EINPROGRESS"),
    (116, "ESTALE"),
    (117, "EUCLEAN"),
    (118, "ENOTNAM"),
    (119, "ENAVAIL"),
    (120, "EISNAM"),
    (121, "EREMOTEIO"),
    (122, "EDQUOT"),
    (123, "ENOMEDIUM"),
    (124, "EMEDIUMTYPE"),
    (125, "ECANCELED"),
    (126, "ENOKEY"),
    (127, "EKEYEXPIRED"),
    (128, "EKEYREVOKED"),
    (129, "EKEYREJECTED"),
    (130, "EOWNERDEAD"),
    (131, "ENOTRECOVERABLE"),
    (132, "ERFKILL"),
    (133, "EHWPOISON"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_in_order_so_that_the_search_finds_them() {
        assert!(NAMES.windows(2).all(|pair| pair[0].0 < pair[1].0));
        assert_eq!(Errno::BUSY.name(), Some("EBUSY"));
        assert_eq!(Errno::from_raw(-95).name(), Some("EOPNOTSUPP"));
    }

    #[test]
    fn text_has_name_number_and_meaning_once() {
        assert_eq!(Errno::ACCES.to_string(), "EACCES (13): Permission denied");
        assert_eq!(
            Errno::from_raw(4000).to_string(),
            "errno 4000: Unknown error 4000"
        );
    }
}
