//! The kernel's counters of UDP datagrams that it did not hand to anybody: `/proc/net/snmp` and `/proc/net/snmp6`.
//!
//! Promises: both families together, of this network namespace, over all its sockets. Does not do: telling sockets apart.

use serde::Serialize;

use super::reading::{self, Reading};

/// What became of datagrams since the namespace was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct UdpCounters {
    /// Handed to a socket.
    pub(crate) delivered: u64,
    /// Dropped because the checksum was wrong.
    pub(crate) checksum_errors: u64,
    /// Dropped because a socket's receive buffer was full.
    pub(crate) buffer_errors: u64,
    /// Dropped because no socket had the port.
    pub(crate) no_port: u64,
}

/// Reads them.
pub(super) fn read() -> Reading<UdpCounters> {
    reading::file("/proc/net/snmp").and_then(|v4| {
        // A kernel without IPv6 has no snmp6, and nothing to count there.
        let v6 = reading::file("/proc/net/snmp6");
        let v6 = v6.value().map_or("", String::as_str);
        match parse(&v4, v6) {
            Some(counters) => Reading::Value(counters),
            None => Reading::Unreadable("/proc/net/snmp: no counters of Udp".to_owned()),
        }
    })
}

/// IPv4: a line of names and a line of numbers, both beginning with `Udp:`. IPv6: a name and a number a line.
fn parse(v4: &str, v6: &str) -> Option<UdpCounters> {
    let mut lines = v4.lines().filter_map(|line| line.strip_prefix("Udp:"));
    let names: Vec<_> = lines.next()?.split_whitespace().collect();
    let numbers: Vec<_> = lines.next()?.split_whitespace().collect();
    let count = |name: &str| {
        let at = names.iter().position(|one| *one == name)?;
        let v4: u64 = numbers.get(at)?.parse().ok()?;
        let v6 = v6.lines().find_map(|line| {
            let mut words = line.strip_prefix("Udp6")?.split_whitespace();
            (words.next()? == name).then(|| words.next()?.parse::<u64>().ok())?
        });
        Some(v4 + v6.unwrap_or(0))
    };
    Some(UdpCounters {
        delivered: count("InDatagrams")?,
        checksum_errors: count("InCsumErrors")?,
        buffer_errors: count("RcvbufErrors")?,
        no_port: count("NoPorts")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const V4: &str = "Ip: Forwarding\nIp: 1\n\
        Udp: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors SndbufErrors InCsumErrors\n\
        Udp: 10 2 7 20 3 0 4\nUdpLite: InDatagrams\nUdpLite: 99\n";
    const V6: &str = "Udp6InDatagrams                 \t5\nUdp6NoPorts \t1\nUdp6InCsumErrors\t6\nUdpLite6InDatagrams\t99\n";

    #[test]
    fn both_families_are_added() {
        let expected = UdpCounters {
            delivered: 15,
            checksum_errors: 10,
            buffer_errors: 3,
            no_port: 3,
        };
        assert_eq!(parse(V4, V6), Some(expected));
        assert_eq!(parse(V4, "").unwrap().delivered, 10);
        assert_eq!(parse("Udp: InDatagrams\nUdp: x\n", ""), None);
        assert_eq!(parse("", V6), None);
    }

    #[test]
    fn the_kernels_files_are_understood() {
        assert!(matches!(read(), Reading::Value(_)), "{:?}", read());
    }
}
