//! Reads and writes the netlink messages about links.
//!
//! Promises: every length is checked; what is not about links is skipped. Does not do: remembering anything.

/// `struct nlmsghdr`: length, type, flags, sequence, port.
const HEADER: usize = 16;
/// `struct ifinfomsg`: family, padding, type, index, flags, change mask.
const LINK: usize = 16;

/// What one netlink message says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Message<'a> {
    /// A request was refused, with this number.
    Refused(i32),
    /// A link is there, or has changed.
    New(Link<'a>),
    /// A link is gone.
    Gone(u32),
}

/// A link as the kernel describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Link<'a> {
    pub(super) index: u32,
    pub(super) name: &'a [u8],
    /// Whether it is set up and has its carrier.
    pub(super) running: bool,
}

/// Calls `each` for every message about links in a datagram.
pub(super) fn parse<'a>(mut bytes: &'a [u8], mut each: impl FnMut(Message<'a>)) {
    while let Some(len) = word(bytes, 0) {
        let len = len as usize;
        let (Some(message), Some(kind)) = (bytes.get(HEADER..len), half(bytes, 4)) else {
            return;
        };
        if let Some(message) = one(kind, message) {
            each(message);
        }
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or(&[]);
    }
}

fn one(kind: u16, message: &[u8]) -> Option<Message<'_>> {
    match kind {
        libc::RTM_NEWLINK | libc::RTM_DELLINK => {
            // A bridge tells the same about its ports with its own family: a port that leaves it is no link that goes.
            if i32::from(*message.first()?) != libc::AF_UNSPEC {
                return None;
            }
            let index = word(message, 4)?;
            if kind == libc::RTM_DELLINK {
                return Some(Message::Gone(index));
            }
            let flags = word(message, 8)?;
            let wanted = (libc::IFF_UP | libc::IFF_RUNNING) as u32;
            Some(Message::New(Link {
                index,
                name: attribute(message.get(LINK..)?, libc::IFLA_IFNAME)?,
                running: flags & wanted == wanted,
            }))
        }
        kind if i32::from(kind) == libc::NLMSG_ERROR => match word(message, 0)? as i32 {
            0 => None,
            errno => Some(Message::Refused(errno.saturating_abs())),
        },
        _ => None,
    }
}

/// The value of an attribute, without its closing zero.
fn attribute(mut bytes: &[u8], wanted: u16) -> Option<&[u8]> {
    loop {
        let len = usize::from(half(bytes, 0)?);
        let value = bytes.get(4..len)?;
        if half(bytes, 2)? == wanted {
            return Some(value.strip_suffix(&[0]).unwrap_or(value));
        }
        bytes = bytes.get(len.next_multiple_of(4)..)?;
    }
}

/// The request to describe one link: by its index, or by its name if that is not known.
pub(super) fn request(index: Option<u32>, name: &str) -> Vec<u8> {
    let value = name.len() + 1;
    let named = index.is_none();
    let len = HEADER + LINK + if named { 4 + value } else { 0 };
    let mut bytes = Vec::with_capacity(len.next_multiple_of(4));
    bytes.extend((len as u32).to_ne_bytes());
    bytes.extend(libc::RTM_GETLINK.to_ne_bytes());
    bytes.extend((libc::NLM_F_REQUEST as u16).to_ne_bytes());
    // Sequence and port; then family, padding and type of the link.
    bytes.extend([0; 8 + 4]);
    bytes.extend(index.unwrap_or(0).to_ne_bytes());
    bytes.extend([0; 8]);
    if named {
        bytes.extend((4 + value as u16).to_ne_bytes());
        bytes.extend(libc::IFLA_IFNAME.to_ne_bytes());
        bytes.extend(name.as_bytes());
    }
    bytes.resize(len.next_multiple_of(4), 0);
    bytes
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(*bytes.get(at..)?.first_chunk::<2>()?))
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk::<4>()?))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A message about a link, as the kernel sends it.
    pub(in crate::kernel::link) fn link(
        kind: u16,
        family: u8,
        index: u32,
        flags: i32,
        name: &str,
    ) -> Vec<u8> {
        let mut body = vec![family, 0, 1, 0];
        body.extend(index.to_ne_bytes());
        body.extend((flags as u32).to_ne_bytes());
        body.extend(0_u32.to_ne_bytes());
        // Another attribute first: a queue length of four bytes.
        body.extend(8_u16.to_ne_bytes());
        body.extend(13_u16.to_ne_bytes());
        body.extend([0; 4]);
        body.extend((5 + name.len() as u16).to_ne_bytes());
        body.extend(libc::IFLA_IFNAME.to_ne_bytes());
        body.extend(name.as_bytes());
        body.push(0);
        frame(kind, &body)
    }

    pub(in crate::kernel::link) fn frame(kind: u16, body: &[u8]) -> Vec<u8> {
        let mut bytes = ((HEADER + body.len()) as u32).to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend([0; 10]);
        bytes.extend(body);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    fn all(bytes: &[u8]) -> Vec<Message<'_>> {
        let mut found = Vec::new();
        parse(bytes, |message| found.push(message));
        found
    }

    #[test]
    fn links_that_come_change_and_go_are_told_apart() {
        let up = libc::IFF_UP | libc::IFF_RUNNING;
        let bytes = [
            link(libc::RTM_NEWLINK, 0, 7, up, "veth0"),
            link(libc::RTM_NEWLINK, 0, 7, libc::IFF_UP, "veth0"),
            link(libc::RTM_DELLINK, 0, 7, 0, "veth0"),
            frame(libc::NLMSG_ERROR as u16, &(-19_i32).to_ne_bytes()),
        ]
        .concat();
        let new = |running| {
            Message::New(Link {
                index: 7,
                name: b"veth0",
                running,
            })
        };
        assert_eq!(
            all(&bytes),
            [
                new(true),
                new(false),
                Message::Gone(7),
                Message::Refused(19)
            ]
        );
    }

    #[test]
    fn a_port_that_leaves_a_bridge_is_not_a_link_that_goes() {
        let bytes = link(libc::RTM_DELLINK, libc::AF_BRIDGE as u8, 7, 0, "veth0");
        assert_eq!(all(&bytes), []);
    }

    #[test]
    fn an_acknowledgement_and_other_kinds_say_nothing() {
        let bytes = [
            frame(libc::NLMSG_ERROR as u16, &0_i32.to_ne_bytes()),
            frame(libc::RTM_NEWADDR, &[0; 24]),
        ]
        .concat();
        assert_eq!(all(&bytes), []);
    }

    #[test]
    fn nothing_is_read_beyond_a_cut_or_from_a_wrong_length() {
        let whole = link(libc::RTM_NEWLINK, 0, 7, 0, "veth0");
        for cut in 0..whole.len() {
            // The padding at the end does not count.
            let complete = cut >= HEADER + LINK + 8 + 4 + 6;
            assert_eq!(all(&whole[..cut]).len(), usize::from(complete), "cut {cut}");
        }
        for len in [0_u32, 1, 15, 17, u32::MAX] {
            let mut bytes = whole.clone();
            bytes[..4].copy_from_slice(&len.to_ne_bytes());
            assert_eq!(all(&bytes), [], "length {len}");
        }
    }
}
