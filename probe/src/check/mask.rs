//! Masking what is private in a text: names of the host and of users, addresses of networks and of hardware.
//!
//! Promises: the same value gets the same mask throughout one [`Mask`], so that what belongs together still shows; a null address, the
//! loopback's and masks of other kinds stay. Does not do: knowing what else somebody may think private: versions, paths and limits stay.

use std::collections::HashMap;
use std::net::{Ipv4Addr, Ipv6Addr};

/// Masks texts.
pub(crate) struct Mask {
    names: Vec<(String, &'static str)>,
    known: HashMap<(Kind, String), usize>,
    counts: HashMap<Kind, usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    Address,
    Gid,
    Guid,
    Identifier,
    Mac,
    User,
}

impl Kind {
    const fn word(self) -> &'static str {
        match self {
            Self::Address => "ip",
            Self::Gid => "gid",
            Self::Guid => "guid",
            Self::Identifier => "id",
            Self::Mac => "mac",
            Self::User => "user",
        }
    }
}

impl Mask {
    /// One that knows the name of this host.
    pub(crate) fn of_this_host() -> Self {
        let name = rustix::system::uname()
            .nodename()
            .to_string_lossy()
            .into_owned();
        Self::of_host(&name)
    }

    fn of_host(name: &str) -> Self {
        let mut names = vec![(name.to_owned(), "<host>")];
        if let Some((short, _)) = name.split_once('.') {
            names.push((short.to_owned(), "<host>"));
        }
        // A name such as `a` would mask half of the text, and `localhost` tells nothing.
        names.retain(|(name, _)| name.len() > 2 && name != "localhost");
        Self {
            names,
            known: HashMap::new(),
            counts: HashMap::new(),
        }
    }

    /// The text with everything private masked.
    pub(crate) fn text(&mut self, text: &str) -> String {
        let mut masked = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(first) = rest.chars().next() {
            let length = rest.find(|one: char| !is_part(one)).unwrap_or(rest.len());
            if length == 0 {
                let (front, behind) = rest.split_at(first.len_utf8());
                masked.push_str(front);
                rest = behind;
                if first == '/' {
                    rest = self.home(&mut masked, rest);
                }
                continue;
            }
            let (token, behind) = rest.split_at(length);
            self.token(token, &mut masked);
            rest = behind;
        }
        masked
    }

    /// Behind a slash: the name of a user if a folder of homes was in front.
    fn home<'a>(&mut self, masked: &mut String, rest: &'a str) -> &'a str {
        let homes = masked
            .strip_suffix("home/")
            .is_some_and(|front| front.ends_with('/'));
        if !homes {
            return rest;
        }
        let end = rest.find(['/', '"', ':', ' ', '\n']).unwrap_or(rest.len());
        let (name, behind) = rest.split_at(end);
        if !name.is_empty() {
            let mask = self.mask(Kind::User, name);
            masked.push_str(&mask);
        }
        behind
    }

    /// A run of letters, digits, colons, dots, dashes and underlines.
    fn token(&mut self, token: &str, masked: &mut String) {
        // What stands at the end of a sentence is no part of an address.
        let core = token.trim_end_matches(['.', ':', '-']);
        let behind = &token[core.len()..];
        match self.whole(core) {
            Some(mask) => masked.push_str(&mask),
            None => {
                // `name:value` and `key=value` in one run.
                match core.split_once(':') {
                    Some((front, rest)) if !front.is_empty() && self.whole(rest).is_some() => {
                        masked.push_str(&self.named(front));
                        masked.push(':');
                        let mask = self.whole(rest).unwrap_or_default();
                        masked.push_str(&mask);
                    }
                    _ => masked.push_str(&self.named(core)),
                }
            }
        }
        masked.push_str(behind);
    }

    fn whole(&mut self, token: &str) -> Option<String> {
        let kind = kind(token)?;
        Some(self.mask(kind, &token.to_ascii_lowercase()))
    }

    /// Names within a run, where they are not part of a longer word.
    fn named(&self, token: &str) -> String {
        let mut text = token.to_owned();
        for (name, mask) in &self.names {
            let mut from = 0;
            while let Some(at) = text.get(from..).and_then(|rest| rest.find(name.as_str())) {
                let at = from + at;
                let end = at + name.len();
                let inner = |one: Option<char>| one.is_some_and(char::is_alphanumeric);
                if inner(text[..at].chars().next_back()) || inner(text[end..].chars().next()) {
                    from = end;
                } else {
                    text.replace_range(at..end, mask);
                    from = at + mask.len();
                }
            }
        }
        text
    }

    fn mask(&mut self, kind: Kind, value: &str) -> String {
        let next = self.counts.entry(kind).or_insert(0);
        let number = *self
            .known
            .entry((kind, value.to_owned()))
            .or_insert_with(|| {
                *next += 1;
                *next
            });
        format!("<{}-{number}>", kind.word())
    }
}

fn is_part(one: char) -> bool {
    one.is_ascii_alphanumeric() || matches!(one, ':' | '.' | '-' | '_')
}

/// What a token is, if it is private. Nulls and the loopback's addresses are not.
fn kind(token: &str) -> Option<Kind> {
    if token.bytes().all(|byte| matches!(byte, b'0' | b':' | b'.')) {
        return None;
    }
    let parts: Vec<&str> = token.split(':').collect();
    let all_hex = |length: usize| {
        parts
            .iter()
            .all(|part| part.len() == length && part.bytes().all(|byte| byte.is_ascii_hexdigit()))
    };
    match parts.len() {
        4 if all_hex(4) => return Some(Kind::Guid),
        6 | 8 | 20 if all_hex(2) => return Some(Kind::Mac),
        _ => {}
    }
    if parts.len() > 2
        && let Ok(address) = token.parse::<Ipv6Addr>()
    {
        let gid = parts.len() == 8 && all_hex(4);
        let plain = address.is_loopback() || address.is_unspecified();
        return (!plain).then_some(if gid { Kind::Gid } else { Kind::Address });
    }
    if let Ok(address) = token.parse::<Ipv4Addr>() {
        return (!address.is_loopback() && !address.is_unspecified()).then_some(Kind::Address);
    }
    let hex = |text: &str| text.bytes().all(|byte| byte.is_ascii_hexdigit());
    match token.strip_prefix("0x").or(token.strip_prefix("0X")) {
        Some(digits) if digits.len() == 16 && hex(digits) => Some(Kind::Guid),
        None if token.len() >= 32 && hex(token) => Some(Kind::Identifier),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_private_is_masked_and_the_same_value_alike() {
        let mut mask = Mask::of_host("db7.example.org");
        for (text, expected) in [
            ("guid 0c42:a103:00ab:cdef.", "guid <guid-1>."),
            ("\"0x0c42a10300abcdee\"", "\"<guid-2>\""),
            (
                "mac b8:59:9f:01:02:03, again b8:59:9F:01:02:03",
                "mac <mac-1>, again <mac-1>",
            ),
            ("fe80:0000:0000:0000:ba59:9fff:fe01:0203", "<gid-1>"),
            ("0000:0000:0000:0000:0000:ffff:0a00:0001", "<gid-2>"),
            ("2001:db8::1/64 10.0.0.1/24", "<ip-1>/64 <ip-2>/24"),
            ("addr:10.0.0.1 10.0.0.2", "addr:<ip-2> <ip-3>"),
            (
                "on db7.example.org and db7: db77 xdb7 db7_0",
                "on <host> and <host>: db77 xdb7 <host>_0",
            ),
            (
                "/docker/0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
                "/docker/<id-1>",
            ),
        ] {
            assert_eq!(mask.text(text), expected);
        }
        let homes = |names: [&str; 2]| {
            names
                .map(|name| format!("/{}/{name}/lib", "home"))
                .join(":")
        };
        let masked = mask.text(&homes(["alice", "bob"]));
        assert_eq!(masked, homes(["<user-1>", "<user-2>"]));
    }

    #[test]
    fn what_is_not_private_stays() {
        let mut mask = Mask::of_host("localhost");
        for text in [
            "0000:17:00.0 NUMA 0",
            "IBVERBS_1.14, rdma-core 44.0-2, 6.1.0-18-amd64",
            "::1 127.0.0.1 0.0.0.0 0000:0000:0000:0000:0000:0000:0000:0000",
            "\"numbers\": \"231:192\", 1:3",
            "/usr/lib/x86_64-linux-gnu/libibverbs.so.1.14.44.0",
            "localhost 12:34 00:00:00:00:00:00 äöü",
        ] {
            assert_eq!(mask.text(text), text);
        }
    }
}
