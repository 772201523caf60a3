//! The Internet checksum (RFC 1071) and its incremental update (RFC 1624).
//!
//! Promises: sums in ones' complement over any bytes, an odd last octet padded with zero. Sums are held in the machine's
//! own byte order while they grow, which RFC 1071 section 2(B) allows, and turned once at the end.
//! Does not do: deciding what a wrong sum means.

/// A running sum. Wide enough for any packet: a carry out of its low half lands in its high half and is folded at the end.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sum(u128);

impl Sum {
    /// Adds a 16-bit word in its value, not its byte order.
    #[inline]
    pub(super) const fn word(self, word: u16) -> Self {
        Self(self.0 + word.to_be() as u128)
    }

    /// Adds bytes that stand at an even place of what is summed. Only the last ones added may be odd in number.
    #[inline]
    pub(super) fn bytes(self, bytes: &[u8]) -> Self {
        // Eight octets a step: on x86-64 one addition and one carry each. Then what is left, by halves and without a loop.
        let mut sum = self.0;
        let (rounds, mut rest) = bytes.as_chunks::<32>();
        for round in rounds {
            sum = add32(sum, round);
        }
        if let Some((half, after)) = rest.split_first_chunk::<16>() {
            sum += word64(half, 0) + word64(half, 8);
            rest = after;
        }
        if let Some((half, after)) = rest.split_first_chunk::<8>() {
            sum += word64(half, 0);
            rest = after;
        }
        if let Some((half, after)) = rest.split_first_chunk::<4>() {
            sum += u128::from(u32::from_ne_bytes(*half));
            rest = after;
        }
        if let Some((half, after)) = rest.split_first_chunk::<2>() {
            sum += u128::from(u16::from_ne_bytes(*half));
            rest = after;
        }
        if let [last] = rest {
            sum += u128::from(u16::from_ne_bytes([*last, 0]));
        }
        Self(sum)
    }

    /// The sum folded to 16 bits, in its value. `0xffff` over data that contains its own right checksum.
    #[inline]
    pub(super) const fn fold(self) -> u16 {
        // Each step adds the upper half to the lower one, which keeps the value modulo 0xffff.
        let wide = (self.0 & 0xffff_ffff_ffff_ffff) + (self.0 >> 64);
        let wide = (wide as u64 as u128) + (wide >> 64);
        let wide = wide as u64;
        let half = (wide & 0xffff_ffff) + (wide >> 32);
        let half = (half & 0xffff) + (half >> 16);
        let half = (half & 0xffff) + (half >> 16);
        let half = (half & 0xffff) + (half >> 16);
        u16::from_be(half as u16)
    }
}

#[inline]
fn add32(sum: u128, bytes: &[u8; 32]) -> u128 {
    sum + word64(bytes, 0) + word64(bytes, 8) + word64(bytes, 16) + word64(bytes, 24)
}

/// The eight octets at `at`, which lies at least eight before the end.
#[inline]
fn word64<const N: usize>(bytes: &[u8; N], at: usize) -> u128 {
    let mut octets = [0; 8];
    octets.copy_from_slice(&bytes[at..at + 8]);
    u128::from(u64::from_ne_bytes(octets))
}

/// `checksum`, a field in a packet, after the 16-bit words `old` became `new` (RFC 1624, equation 3). Both have the same
/// even length.
pub(super) fn update(checksum: u16, old: &[u8], new: &[u8]) -> u16 {
    !replaced(!checksum, old, new)
}

/// `sum`, not complemented, after `old` became `new`.
pub(super) fn replaced(sum: u16, old: &[u8], new: &[u8]) -> u16 {
    let (old, _) = old.as_chunks::<2>();
    let (new, _) = new.as_chunks::<2>();
    let mut total = Sum::default().word(sum);
    for (old, new) in old.iter().zip(new) {
        total = total
            .word(!u16::from_be_bytes(*old))
            .word(u16::from_be_bytes(*new));
    }
    total.fold()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 1071's own loop, two octets at a time.
    fn slow(bytes: &[u8]) -> u16 {
        let mut sum = 0u64;
        for pair in bytes.chunks(2) {
            sum += u64::from(pair[0]) << 8 | u64::from(*pair.get(1).unwrap_or(&0));
        }
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        sum as u16
    }

    #[test]
    fn agrees_with_the_plain_loop_at_every_length() {
        let bytes: Vec<u8> = (0..400u32).map(|n| (n * 7 + n / 3) as u8).collect();
        for start in 0..8 {
            for end in start..bytes.len() {
                assert_eq!(
                    Sum::default().bytes(&bytes[start..end]).fold(),
                    slow(&bytes[start..end])
                );
            }
        }
    }

    #[test]
    fn keeps_every_carry_of_the_largest_packet() {
        for length in [65_535, 65_536, 65_527] {
            let ones = vec![0xff; length];
            assert_eq!(
                Sum::default().bytes(&ones).fold(),
                slow(&ones),
                "length {length}"
            );
        }
    }

    #[test]
    fn example_of_rfc_1071() {
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(Sum::default().bytes(&bytes).fold(), 0xddf2);
        assert_eq!(
            Sum::default()
                .word(0x0001)
                .word(0xf203)
                .bytes(&bytes[4..])
                .fold(),
            0xddf2
        );
    }

    #[test]
    fn example_of_rfc_1624() {
        // Section 4: the field 0xdd2f with 0x5555 becoming 0x3285 must give 0x0000, not 0xffff.
        assert_eq!(update(0xdd2f, &[0x55, 0x55], &[0x32, 0x85]), 0x0000);
    }
}
