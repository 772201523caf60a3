//! Captures in the other byte order, which none of the programs at hand writes.
//!
//! Promises: only the byte order of the numbers changes. Does not do: judging the outcome; `tshark` does, where these are used.
#![allow(clippy::unwrap_used, reason = "a helper that fails fails its test")]

/// Turns the numbers of a little-endian pcap file around.
///
/// # Panics
/// If it is none.
#[must_use]
pub fn turned_pcap(file: &[u8]) -> Vec<u8> {
    let mut file = file.to_vec();
    let numbers = |file: &mut [u8]| file.chunks_exact_mut(4).for_each(<[u8]>::reverse);
    numbers(&mut file[..4]);
    file[4..6].reverse();
    file[6..8].reverse();
    numbers(&mut file[8..24]);
    let mut at = 24;
    while at < file.len() {
        let len = u32::from_le_bytes(file[at + 8..at + 12].try_into().unwrap());
        numbers(&mut file[at..at + 16]);
        at += 16 + len as usize;
    }
    file
}

/// Turns the numbers of a little-endian pcapng file around: section, interfaces and packets; other blocks are left out.
///
/// # Panics
/// If it is none.
#[must_use]
pub fn turned_pcapng(file: &[u8]) -> Vec<u8> {
    let number = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().unwrap());
    let mut turned = Vec::new();
    let mut at = 0;
    while at < file.len() {
        let len = number(at + 4) as usize;
        let mut block = file[at..at + len].to_vec();
        let (shorts, longs, options) = match number(at) {
            // Version; the length of the section is all ones either way.
            0x0a0d_0d0a => (12..16, 8..12, 24),
            1 => (8..12, 12..16, 16),
            6 => {
                let captured = number(at + 20) as usize;
                (0..0, 8..28, 28 + captured.next_multiple_of(4))
            }
            _ => {
                at += len;
                continue;
            }
        };
        block[..8].chunks_exact_mut(4).for_each(<[u8]>::reverse);
        block[shorts].chunks_exact_mut(2).for_each(<[u8]>::reverse);
        block[longs].chunks_exact_mut(4).for_each(<[u8]>::reverse);
        block[len - 4..].reverse();
        let mut option = options;
        while option < len - 4 {
            let (code, size) = (
                u16::from_le_bytes([block[option], block[option + 1]]),
                u16::from_le_bytes([block[option + 2], block[option + 3]]),
            );
            // Texts and the unit of time have no byte order, and others are not written by these programs here.
            assert!(matches!(code, 0..=4 | 9 | 11 | 12), "option {code}");
            block[option..option + 2].reverse();
            block[option + 2..option + 4].reverse();
            option += 4 + usize::from(size).next_multiple_of(4);
        }
        turned.extend(block);
        at += len;
    }
    turned
}
