//! Tests of the parser and the builder together: every kind of frame, every cut of it, every reason for a refusal, and
//! random bytes. Frames are put together octet by octet here where the builder can't make them.

use super::*;

const V4: ([&str; 2], u16) = (["192.0.2.1:4000", "239.1.2.3:5000"], 0x0800);
const V6: ([&str; 2], u16) = (["[2001:db8::1]:4000", "[ff3e::4321]:5000"], 0x86dd);
const PAYLOAD: &[u8] = b"an odd number of octets";

/// What a strict receiver accepts from a wire.
const STRICT: Policy = Policy {
    ip: Check::Drop,
    udp: Check::Drop,
    ipv6_zero: Ipv6Zero::Drop,
    origin: Origin::Wire,
};
/// Looks at no sum.
const TRUST: Policy = Policy {
    ip: Check::Trust,
    udp: Check::Trust,
    ipv6_zero: Ipv6Zero::Accept,
    origin: Origin::Wire,
};
/// Looks at every sum and refuses none.
const FLAG: Policy = Policy {
    ip: Check::Flag,
    udp: Check::Flag,
    ipv6_zero: Ipv6Zero::Accept,
    origin: Origin::Wire,
};

fn builder(family: ([&str; 2], u16)) -> Builder {
    let [source, destination] = family.0.map(|text| text.parse().unwrap());
    Builder::udp(source, destination).unwrap()
}

fn written(builder: Builder, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0xee; builder.len(payload.len()) + 3];
    let len = builder.write(payload, &mut bytes).unwrap();
    assert_eq!(bytes[len..], [0xee; 3], "the builder wrote behind its end");
    bytes.truncate(len);
    bytes
}

fn framed(family: ([&str; 2], u16), vlan: VlanTags) -> Vec<u8> {
    let ethernet = builder(family).ethernet(
        MacAddress::new([2, 0, 0, 0, 0, 1]),
        MacAddress::BROADCAST,
        vlan,
    );
    written(ethernet, PAYLOAD)
}

fn plain(family: ([&str; 2], u16)) -> Vec<u8> {
    framed(family, VlanTags::NONE)
}

/// An untagged IPv4 frame with these options, a multiple of four octets, and the header's sum mended.
fn with_options(options: &[u8]) -> Vec<u8> {
    let mut bytes = plain(V4);
    bytes.splice(34..34, options.iter().copied());
    bytes[14] += (options.len() / 4) as u8;
    let total = (bytes.len() - 14) as u16;
    bytes[16..18].copy_from_slice(&total.to_be_bytes());
    mend_ipv4(&mut bytes);
    bytes
}

/// Puts the right sum into an untagged frame's IPv4 header.
fn mend_ipv4(bytes: &mut [u8]) {
    let end = 14 + usize::from(bytes[14] & 15) * 4;
    bytes[24..26].fill(0);
    let sum = !checksum::Sum::default().bytes(&bytes[14..end]).fold();
    bytes[24..26].copy_from_slice(&sum.to_be_bytes());
}

/// An untagged IPv6 frame with these extension headers: kind, and all of the header behind its first octet.
fn with_extensions(chain: &[(u8, &[u8])]) -> Vec<u8> {
    let mut bytes = plain(V6);
    let mut headers = Vec::new();
    for (place, (_, rest)) in chain.iter().enumerate() {
        headers.push(chain.get(place + 1).map_or(17, |(kind, _)| *kind));
        headers.extend_from_slice(rest);
    }
    bytes[20] = chain[0].0;
    bytes.splice(54..54, headers);
    let len = (bytes.len() - 54) as u16;
    bytes[18..20].copy_from_slice(&len.to_be_bytes());
    bytes
}

const PADDING: &[u8] = &[0, 1, 4, 0, 0, 0, 0];
const NO_SEGMENTS: &[u8] = &[0, 4, 0, 0, 0, 0, 0];
const ATOMIC: &[u8] = &[0, 0, 0, 1, 2, 3, 4];
const AH: &[u8] = &[
    4, 0, 0, 0, 0, 1, 7, 0, 0, 0, 1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12,
];

/// Every kind of frame that is taken, with the place of its IP header and of its payload.
fn kinds() -> Vec<(&'static str, Vec<u8>, u32, u32)> {
    let one = VlanTags::single(VlanTag::customer(0x2fff));
    let two = VlanTags::double(VlanTag::service(0x0064), VlanTag::customer(0x2007));
    let old = VlanTags::double(
        VlanTag {
            protocol: 0x9100,
            tci: 5,
        },
        VlanTag::customer(6),
    );
    let mut padded = plain(V4);
    padded.resize(padded.len() + 9, 0);
    let mut surplus = plain(V6);
    surplus.extend_from_slice(&[7; 5]);
    surplus[19] += 5;
    vec![
        ("IPv4", plain(V4), 14, 42),
        ("IPv4, one tag", framed(V4, one), 18, 46),
        ("IPv4, two tags", framed(V4, two), 22, 50),
        ("IPv4, 0x9100", framed(V4, old), 22, 50),
        (
            "IPv4, four octets of options",
            with_options(&[1, 1, 1, 0]),
            14,
            46,
        ),
        (
            "IPv4, forty octets of options",
            with_options(&[1; 40]),
            14,
            82,
        ),
        ("IPv4, padded", padded, 14, 42),
        ("IPv6", plain(V6), 14, 62),
        ("IPv6, one tag", framed(V6, one), 18, 66),
        ("IPv6, two tags", framed(V6, two), 22, 70),
        ("IPv6, surplus behind UDP", surplus, 14, 62),
        ("IPv6, hop-by-hop", with_extensions(&[(0, PADDING)]), 14, 70),
        (
            "IPv6, destination options",
            with_extensions(&[(60, PADDING)]),
            14,
            70,
        ),
        (
            "IPv6, routing, none left",
            with_extensions(&[(43, NO_SEGMENTS)]),
            14,
            70,
        ),
        (
            "IPv6, atomic fragment",
            with_extensions(&[(44, ATOMIC)]),
            14,
            70,
        ),
        ("IPv6, AH", with_extensions(&[(51, AH)]), 14, 86),
        (
            "IPv6, every kind",
            with_extensions(&[
                (0, PADDING),
                (60, PADDING),
                (43, NO_SEGMENTS),
                (44, ATOMIC),
                (51, AH),
                (60, PADDING),
            ]),
            14,
            62 + 5 * 8 + 24,
        ),
        (
            "IPv6, the longest chain",
            with_extensions(&[(60, PADDING); MAX_EXTENSIONS]),
            14,
            126,
        ),
    ]
}

/// Whether all that `frame` says of places lies inside `len` octets.
fn lies_inside(frame: &Frame, len: usize) -> bool {
    let (l3, payload) = (u64::from(frame.l3_offset), u64::from(frame.payload_offset));
    let header = match frame.addresses {
        Addresses::V4 { .. } => 20,
        Addresses::V6 { .. } => 40,
    };
    l3 + header + 8 <= payload && payload + u64::from(frame.payload_len) <= len as u64
}

#[test]
fn takes_every_kind() {
    for (kind, bytes, l3, payload) in kinds() {
        let frame = parse(&bytes, &STRICT).unwrap_or_else(|reject| panic!("{kind}: {reject}"));
        assert_eq!(
            (frame.l3_offset, frame.payload_offset),
            (l3, payload),
            "{kind}"
        );
        assert_eq!(frame.payload(&bytes), PAYLOAD, "{kind}");
        let (family, ip_checksum) = if kind.starts_with("IPv4") {
            (V4, Checksum::Verified)
        } else {
            (V6, Checksum::Absent)
        };
        assert_eq!(
            [frame.source(), frame.destination()],
            family.0.map(|a| a.parse().unwrap()),
            "{kind}"
        );
        assert_eq!(
            (frame.ip_checksum, frame.udp_checksum),
            (ip_checksum, Checksum::Verified),
            "{kind}"
        );
        assert!(lies_inside(&frame, bytes.len()));

        // The same without the link header.
        let raw = parse_ip(&bytes[l3 as usize..], &STRICT)
            .unwrap_or_else(|reject| panic!("{kind}: {reject}"));
        assert_eq!(raw.payload(&bytes[l3 as usize..]), PAYLOAD, "{kind}");
        assert_eq!(
            (raw.l3_offset, raw.payload_offset, raw.vlan),
            (0, payload - l3, VlanTags::NONE),
            "{kind}"
        );
        assert_eq!(raw.addresses, frame.addresses, "{kind}");
    }
}

#[test]
fn refuses_every_cut_of_every_kind_as_truncated() {
    for (kind, bytes, l3, payload) in kinds() {
        let whole = parse(&bytes, &STRICT).unwrap();
        let end = match kind {
            "IPv6, surplus behind UDP" => bytes.len(),
            _ => payload as usize + PAYLOAD.len(),
        };
        for cut in 0..bytes.len() {
            for policy in [STRICT, TRUST, FLAG] {
                let result = parse(&bytes[..cut], &policy);
                if cut >= end {
                    assert_eq!(
                        result.map(|frame| frame.payload_offset),
                        Ok(whole.payload_offset),
                        "{kind} at {cut}"
                    );
                    continue;
                }
                let Err(Reject::Truncated {
                    layer,
                    needed,
                    captured,
                }) = result
                else {
                    panic!("{kind} cut at {cut}: {result:?}");
                };
                assert_eq!(captured as usize, cut, "{kind}");
                assert!(
                    cut < needed as usize && needed as usize <= end,
                    "{kind} at {cut}: {needed}"
                );
                let header = if kind.starts_with("IPv4") { 20 } else { 40 };
                match layer {
                    Layer::Ethernet => assert!(cut < 14, "{kind} at {cut}"),
                    Layer::Vlan => assert!((14..l3 as usize).contains(&cut), "{kind} at {cut}"),
                    Layer::IpHeader => assert!(
                        (l3 as usize..l3 as usize + header + 40).contains(&cut),
                        "{kind} at {cut}"
                    ),
                    Layer::IpPayload => assert!(cut >= l3 as usize + header, "{kind} at {cut}"),
                }
                if let Some(packet) = bytes[..cut].get(l3 as usize..) {
                    let raw = parse_ip(packet, &policy);
                    assert!(
                        matches!(raw, Err(Reject::Truncated { .. })),
                        "{kind} cut at {cut}: {raw:?}"
                    );
                }
            }
        }
    }
}

#[test]
fn refuses_at_one_place_with_its_reason() {
    /// A frame, changed, and its IPv4 header mended.
    fn v4(change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut bytes = plain(V4);
        change(&mut bytes);
        mend_ipv4(&mut bytes);
        bytes
    }
    fn v6(change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut bytes = plain(V6);
        change(&mut bytes);
        bytes
    }
    fn v4_fragment(field: u16) -> Vec<u8> {
        v4(|b| b[20..22].copy_from_slice(&field.to_be_bytes()))
    }
    let tag = VlanTag::customer(1);
    let mut three = framed(V4, VlanTags::double(tag, tag));
    three.splice(12..12, [0x88, 0xa8, 0, 1]);
    let jumbo: &[u8] = &[0, 0xc2, 4, 0, 1, 0, 0];
    let padded_jumbo: &[u8] = &[1, 0, 1, 1, 9, 0xc2, 4, 0, 1, 0, 0, 0, 0, 0, 0];
    let fragment = |field: u16| -> [u8; 7] {
        let [a, b] = field.to_be_bytes();
        [0, a, b, 0, 0, 0, 9]
    };

    use Fault as F;
    use Reject as R;
    use Unsupported as U;
    for (bytes, expected) in [
        (
            v4(|b| b[12..14].copy_from_slice(&[8, 6])),
            R::NotIp { ether_type: 0x0806 },
        ),
        (
            v4(|b| b[12..14].copy_from_slice(&[0, 60])),
            R::NotIp { ether_type: 60 },
        ),
        (three, R::Unsupported(U::VlanDepth)),
        (v4(|b| b[14] = 0x65), R::Malformed(F::IpVersion)),
        (v6(|b| b[14] = 0x40), R::Malformed(F::IpVersion)),
        (v4(|b| b[14] = 0x44), R::Malformed(F::IpHeaderLength)),
        (
            v4(|b| b[16..18].copy_from_slice(&[0, 19])),
            R::Malformed(F::TotalLength),
        ),
        (
            v4(|b| b[16..18].copy_from_slice(&[0, 0])),
            R::Malformed(F::TotalLength),
        ),
        (
            v4(|b| b[16..18].copy_from_slice(&[0, 27])),
            R::Malformed(F::UdpHeader),
        ),
        (v4(|b| b[17] -= 1), R::Malformed(F::UdpLength)),
        (
            v4(|b| b[38..40].copy_from_slice(&[0, 7])),
            R::Malformed(F::UdpLength),
        ),
        (
            v4(|b| b[38..40].copy_from_slice(&[0, 0])),
            R::Malformed(F::UdpLength),
        ),
        (
            v6(|b| b[58..60].copy_from_slice(&[0, 0])),
            R::Malformed(F::UdpLength),
        ),
        (v4(|b| b[39] += 1), R::Malformed(F::UdpLength)),
        (v6(|b| b[59] += 1), R::Malformed(F::UdpLength)),
        (
            v6(|b| b[18..20].copy_from_slice(&[0, 7])),
            R::Malformed(F::UdpHeader),
        ),
        (
            v6(|b| b[18..20].copy_from_slice(&[0, 0])),
            R::Malformed(F::UdpHeader),
        ),
        (v4(|b| b[23] = 6), R::NotUdp { protocol: 6 }),
        (v4(|b| b[23] = 51), R::NotUdp { protocol: 51 }),
        (v6(|b| b[20] = 58), R::NotUdp { protocol: 58 }),
        (v6(|b| b[20] = 59), R::NotUdp { protocol: 59 }),
        (
            with_extensions(&[(60, PADDING), (50, PADDING)]),
            R::NotUdp { protocol: 50 },
        ),
        // Fragments of IPv4: the first, a middle one, the last. "Don't fragment" and the reserved bit are none.
        (
            v4_fragment(0x2000),
            R::Fragment {
                offset: 0,
                more: true,
            },
        ),
        (
            v4_fragment(0x2001),
            R::Fragment {
                offset: 8,
                more: true,
            },
        ),
        (
            v4_fragment(0x1fff),
            R::Fragment {
                offset: 65_528,
                more: false,
            },
        ),
        (
            v4_fragment(0x6000),
            R::Fragment {
                offset: 0,
                more: true,
            },
        ),
        (
            with_extensions(&[(44, &fragment(1))]),
            R::Fragment {
                offset: 0,
                more: true,
            },
        ),
        (
            with_extensions(&[(44, &fragment(8))]),
            R::Fragment {
                offset: 8,
                more: false,
            },
        ),
        (
            with_extensions(&[(0, PADDING), (44, &fragment(0xfff9))]),
            R::Fragment {
                offset: 65_528,
                more: true,
            },
        ),
        // A fragment wins over the protocol that it carries a part of.
        (
            v4(|b| {
                b[20] = 0x20;
                b[23] = 6;
            }),
            R::Fragment {
                offset: 0,
                more: true,
            },
        ),
        (
            with_extensions(&[(60, PADDING), (0, PADDING)]),
            R::Malformed(F::HopByHopPlace),
        ),
        (
            with_extensions(&[(60, &[200, 1, 4, 0, 0, 0, 0])]),
            R::Malformed(F::ExtensionLength),
        ),
        (
            with_extensions(&[(51, &[200, 0, 0, 0, 0, 0, 0])]),
            R::Malformed(F::ExtensionLength),
        ),
        (
            v6(|b| (b[18], b[19], b[20]) = (0, 7, 60)),
            R::Malformed(F::ExtensionLength),
        ),
        (
            with_extensions(&[(60, PADDING); MAX_EXTENSIONS + 1]),
            R::Unsupported(U::ExtensionChain),
        ),
        (
            with_extensions(&[(43, &[0, 0, 1, 0, 0, 0, 0])]),
            R::Unsupported(U::RoutingHeader),
        ),
        (with_extensions(&[(0, jumbo)]), R::Unsupported(U::Jumbogram)),
        (
            with_extensions(&[(0, padded_jumbo)]),
            R::Unsupported(U::Jumbogram),
        ),
        (
            {
                let mut bytes = with_extensions(&[(0, jumbo)]);
                bytes[18..20].fill(0);
                bytes
            },
            R::Unsupported(U::Jumbogram),
        ),
    ] {
        for policy in [STRICT, TRUST, FLAG] {
            assert_eq!(parse(&bytes, &policy), Err(expected), "{bytes:02x?}");
        }
    }
    assert_eq!(
        parse_ip(&[0x50; 40], &TRUST),
        Err(R::Malformed(F::IpVersion))
    );
    assert!(parse(&v4_fragment(0xc000), &STRICT).is_ok());
    assert!(
        parse(&with_extensions(&[(44, &fragment(0x0006))]), &STRICT).is_ok(),
        "reserved bits only"
    );
}

#[test]
fn sums_follow_the_policy() {
    let good = plain(V4);
    let mut bad_udp = good.clone();
    bad_udp[50] ^= 1;
    let mut bad_header = good.clone();
    bad_header[22] ^= 1;
    let zero = written(builder(V4).without_checksum(), PAYLOAD);
    let zero6 = written(builder(V6).without_checksum(), PAYLOAD);
    let state = |bytes: &[u8], policy: Policy| {
        let result = if bytes[0] == 0xff {
            parse(bytes, &policy)
        } else {
            parse_ip(bytes, &policy)
        };
        result.map(|frame| (frame.ip_checksum, frame.udp_checksum))
    };
    use Checksum::{Absent, Bad, NotChecked, Partial, Verified, Vouched, Zero};

    assert_eq!(state(&good, STRICT), Ok((Verified, Verified)));
    assert_eq!(state(&good, TRUST), Ok((NotChecked, NotChecked)));
    assert_eq!(state(&good, FLAG), Ok((Verified, Verified)));
    assert_eq!(state(&bad_udp, STRICT), Err(Reject::Checksum(BadSum::Udp)));
    assert_eq!(state(&bad_udp, TRUST), Ok((NotChecked, NotChecked)));
    assert_eq!(state(&bad_udp, FLAG), Ok((Verified, Bad)));
    assert_eq!(
        state(&bad_header, STRICT),
        Err(Reject::Checksum(BadSum::IpHeader))
    );
    assert_eq!(state(&bad_header, TRUST), Ok((NotChecked, NotChecked)));
    assert_eq!(state(&bad_header, FLAG), Ok((Bad, Verified)));

    assert_eq!(state(&zero, STRICT), Ok((Verified, Zero)));
    assert_eq!(state(&zero, TRUST), Ok((NotChecked, Zero)));
    assert_eq!(
        state(&zero6, STRICT),
        Err(Reject::Checksum(BadSum::Ipv6Zero))
    );
    assert_eq!(state(&zero6, FLAG), Ok((Absent, Zero)));

    // Nothing that a device or the kernel vouches for is computed again.
    assert_eq!(
        state(&bad_udp, STRICT.delivered(Origin::Verified)),
        Ok((Verified, Vouched))
    );
    assert_eq!(
        state(&zero, STRICT.delivered(Origin::Verified)),
        Ok((Verified, Zero))
    );
    assert_eq!(
        state(&bad_header, STRICT.delivered(Origin::Verified)),
        Err(Reject::Checksum(BadSum::IpHeader))
    );

    // A sum left to a device: the pseudo-header's alone, for both families.
    for family in [V4, V6] {
        let mut partial = plain(family);
        let frame = parse(&partial, &STRICT).unwrap();
        let at = frame.payload_offset as usize - 2;
        let addresses = if family == V4 { 26..34 } else { 22..54 };
        let sum = checksum::Sum::default()
            .bytes(&partial[addresses])
            .word(17)
            .word(8 + PAYLOAD.len() as u16);
        partial[at..at + 2].copy_from_slice(&sum.fold().to_be_bytes());
        let udp = |policy: Policy| state(&partial, policy).map(|(_, udp)| udp);
        assert_eq!(udp(STRICT), Err(Reject::Checksum(BadSum::Udp)));
        assert_eq!(udp(FLAG), Ok(Bad));
        assert_eq!(udp(STRICT.delivered(Origin::Partial)), Ok(Partial));
        assert_eq!(udp(STRICT.delivered(Origin::MayBePartial)), Ok(Partial));

        let frame = parse(&partial, &STRICT.delivered(Origin::Partial)).unwrap();
        let complete = complete_checksum(&mut partial, &frame).unwrap();
        assert_eq!(complete, parse(&partial, &STRICT).unwrap());
        assert_eq!(partial, plain(family));
    }
    // What may be partial is still checked: a right sum, and one that is neither.
    assert_eq!(
        state(&good, STRICT.delivered(Origin::MayBePartial)),
        Ok((Verified, Verified))
    );
    assert_eq!(
        state(&bad_udp, STRICT.delivered(Origin::MayBePartial)),
        Err(Reject::Checksum(BadSum::Udp))
    );
}

#[test]
fn a_sum_of_zero_is_sent_as_its_other_form() {
    // The payload's last word takes each value once, so one of them makes the sum zero.
    let builder = builder(V4);
    let mut bytes = [0; 64];
    let mut seen = 0;
    for word in 0..=u16::MAX {
        let len = builder.write(&word.to_be_bytes(), &mut bytes).unwrap();
        assert_ne!(bytes[26..28], [0, 0]);
        assert_eq!(
            parse_ip(&bytes[..len], &STRICT).map(|f| f.udp_checksum),
            Ok(Checksum::Verified)
        );
        seen += u32::from(bytes[26..28] == [0xff, 0xff]);
    }
    assert_eq!(seen, 1, "0x0000 and 0xffff as the data's sum are one value");
}

#[test]
fn tags_are_kept_as_they_are() {
    let outer = VlanTag::service(0xf064);
    let inner = VlanTag::customer(0x0fff);
    for (vlan, count) in [
        (VlanTags::NONE, 0),
        (VlanTags::single(inner), 1),
        (VlanTags::double(outer, inner), 2),
    ] {
        let frame = parse(&framed(V6, vlan), &STRICT).unwrap();
        assert_eq!(frame.vlan, vlan);
        assert_eq!(
            (frame.vlan.count(), frame.vlan.iter().count()),
            (count, count)
        );
    }
    assert_eq!(
        (outer.id(), outer.priority(), outer.is_drop_eligible()),
        (0x64, 7, true)
    );
    assert_eq!(
        (inner.id(), inner.priority(), inner.is_drop_eligible()),
        (4095, 0, false)
    );
    let pushed = VlanTags::NONE.pushed(inner).unwrap();
    assert_eq!(pushed, VlanTags::single(inner));
    assert_eq!(pushed.pushed(outer), Some(VlanTags::double(outer, inner)));
    assert_eq!(VlanTags::double(outer, inner).pushed(outer), None);
    assert_eq!(format!("{:?}", VlanTags::NONE), "[]");
}

#[test]
fn largest_and_smallest_payloads() {
    for family in [V4, V6] {
        let builder = builder(family);
        let most = vec![0xff; builder.max_payload()];
        for payload in [&most[..], &[]] {
            let bytes = written(builder, payload);
            let frame = parse_ip(&bytes, &STRICT).unwrap();
            assert_eq!(frame.payload(&bytes), payload);
        }
        let more = vec![0; builder.max_payload() + 1];
        let error = builder.write(&more, &mut [0; 70_000]).unwrap_err();
        assert_eq!(
            error,
            BuildError::Payload {
                len: more.len(),
                max: most.len()
            }
        );
        assert!(
            error
                .to_string()
                .contains(&format!("at most {} fit", most.len()))
        );
    }
}

#[test]
fn builder_refuses_and_writes_nothing() {
    let [v4, v6] = [V4, V6].map(|family| family.0[0].parse().unwrap());
    let error = Builder::udp(v4, v6).unwrap_err();
    assert_eq!(
        error,
        BuildError::Families {
            sender: v4,
            receiver: v6
        }
    );
    assert!(error.to_string().contains("both must be IPv4 or both IPv6"));
    let mut short = [9; 31];
    let error = builder(V4).write(b"tick", &mut short).unwrap_err();
    assert_eq!(
        error,
        BuildError::Space {
            needed: 32,
            have: 31
        }
    );
    assert_eq!(short, [9; 31]);
}

#[test]
fn rewriting_refuses_and_leaves_the_bytes() {
    let original = plain(V4);
    let frame = parse(&original, &STRICT).unwrap();
    let raw = parse_ip(&original[14..], &STRICT).unwrap();
    let other = Some(V6.0[0].parse().unwrap());
    let family = RewriteError::Family {
        value: other.unwrap(),
    };
    let mac = Some(MacAddress::BROADCAST);
    let source = Rewrite {
        source: other,
        ..Rewrite::default()
    };
    let destination = Rewrite {
        destination: other,
        ..Rewrite::default()
    };
    let link = Rewrite {
        source_mac: mac,
        ..Rewrite::default()
    };
    let mut bytes = original.clone();
    assert_eq!(rewrite(&mut bytes, &frame, &source), Err(family));
    assert_eq!(rewrite(&mut bytes, &frame, &destination), Err(family));
    assert_eq!(
        rewrite(&mut bytes[14..], &raw, &link),
        Err(RewriteError::NoEthernet)
    );
    // The description of another packet: shifted, of the other family, too long, with other ports.
    let v6 = parse(&plain(V6), &STRICT).unwrap();
    let ports = Frame {
        source_port: 1,
        ..frame
    };
    let empty = Frame {
        payload_offset: 3,
        ..frame
    };
    for foreign in [raw, v6, ports, empty] {
        assert_eq!(
            rewrite(&mut bytes, &foreign, &Rewrite::default()),
            Err(RewriteError::Foreign)
        );
        assert_eq!(
            complete_checksum(&mut bytes, &foreign),
            Err(RewriteError::Foreign)
        );
    }
    assert_eq!(
        rewrite(&mut bytes[..50], &frame, &Rewrite::default()),
        Err(RewriteError::Foreign)
    );
    assert_eq!(bytes, original);
    assert!(frame.payload(&bytes[..50]).is_empty());
}

#[test]
fn texts_name_the_place_and_the_value() {
    for (reject, place, text) in [
        (Reject::Checksum(BadSum::Udp), "checksum", "checksum: UDP"),
        (
            Reject::Fragment {
                offset: 1480,
                more: false,
            },
            "fragment",
            "fragment at octet 1480 of its packet, the last one",
        ),
        (
            Reject::Malformed(Fault::IpVersion),
            "malformed",
            "malformed: IP version does not fit",
        ),
        (
            Reject::NotIp { ether_type: 0x0806 },
            "not_ip",
            "not IP: EtherType 0x0806",
        ),
        (
            Reject::NotUdp { protocol: 6 },
            "not_udp",
            "not UDP: IP protocol 6",
        ),
        (
            Reject::Truncated {
                layer: Layer::IpPayload,
                needed: 60,
                captured: 59,
            },
            "truncated",
            "truncated in the IP payload: 59 octets of 60",
        ),
        (
            Reject::Unsupported(Unsupported::ExtensionChain),
            "unsupported",
            "unsupported: more than 8 IPv6 extension headers",
        ),
    ] {
        assert_eq!(
            (reject.place().name(), reject.to_string().as_str()),
            (place, text)
        );
        assert_eq!(reject.place().to_string(), place);
    }
    for (position, place) in Place::ALL.into_iter().enumerate() {
        assert_eq!(place as usize, position);
    }
}

#[test]
fn policy_reads_from_a_configuration() {
    let policy: Policy = read(r#"{"udp": "flag", "ipv6_zero": "accept"}"#).unwrap();
    let expected = Policy {
        udp: Check::Flag,
        ipv6_zero: Ipv6Zero::Accept,
        ..Policy::default()
    };
    assert_eq!(policy, expected);
    assert_eq!(read("{}").unwrap(), STRICT);
    for wrong in [
        r#"{"udp": "maybe"}"#,
        r#"{"origin": "wire"}"#,
        r#"{"tcp": "drop"}"#,
    ] {
        assert!(read(wrong).is_err(), "{wrong}");
    }
    let text = serde_json::to_string(&TRUST).unwrap();
    assert_eq!(text, r#"{"ip":"trust","udp":"trust","ipv6_zero":"accept"}"#);
}

fn read(text: &str) -> Result<Policy, serde_json::Error> {
    serde_json::from_str(text)
}

/// SplitMix64: small, seeded, and the same everywhere.
struct Random(u64);

impl Random {
    /// Takes the seed from `LOCKGATE_SEED` if it is set, and prints it; the test runner shows it when a test fails.
    fn new() -> Self {
        let seed = std::env::var("LOCKGATE_SEED")
            .ok()
            .and_then(|text| text.parse().ok())
            .unwrap_or(20_240_229);
        println!("seed {seed}; set LOCKGATE_SEED to change it");
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }

    fn address(&mut self, six: bool) -> SocketAddr {
        let port = self.next() as u16;
        let wide = u128::from(self.next()) << 64 | u128::from(self.next());
        if six {
            (Ipv6Addr::from(wide), port).into()
        } else {
            (Ipv4Addr::from(wide as u32), port).into()
        }
    }

    fn builder(&mut self) -> Builder {
        let six = self.below(2) == 1;
        let builder = Builder::udp(self.address(six), self.address(six)).unwrap();
        let tag = VlanTag::customer(self.next() as u16);
        match self.below(4) {
            0 => builder,
            1 => builder.ethernet(MacAddress::ZERO, MacAddress::BROADCAST, VlanTags::NONE),
            2 => builder.ethernet(
                MacAddress::ZERO,
                MacAddress::BROADCAST,
                VlanTags::single(tag),
            ),
            _ => builder.ethernet(
                MacAddress::ZERO,
                MacAddress::BROADCAST,
                VlanTags::double(tag, tag),
            ),
        }
    }
}

/// Parses with or without a link header, whichever `builder` writes.
fn parse_any(builder: &Builder, bytes: &[u8], policy: &Policy) -> Result<Frame, Reject> {
    if builder.len(0) - 8 > 40 || builder.len(0) - 8 == 34 || builder.len(0) - 8 == 38 {
        parse(bytes, policy)
    } else {
        parse_ip(bytes, policy)
    }
}

#[test]
fn what_is_built_is_found_again() {
    let mut random = Random::new();
    for _ in 0..5_000 {
        let builder = random.builder();
        let len = random.below(200);
        let payload = random.bytes(len);
        let bytes = written(builder, &payload);
        let frame = parse_any(&builder, &bytes, &STRICT).unwrap();
        assert_eq!(frame.payload(&bytes), payload);
        assert_eq!(frame.udp_checksum, Checksum::Verified);
        assert_eq!(frame.payload_offset as usize, builder.len(0));
        assert!(lies_inside(&frame, bytes.len()));
    }
}

#[test]
fn rewriting_equals_building_anew() {
    let mut random = Random::new();
    for _ in 0..5_000 {
        let six = random.below(2) == 1;
        let [from, to, new_from, new_to] = [(); 4].map(|()| random.address(six));
        let mac = MacAddress::new([2, 9, 8, 7, 6, 5]);
        let build = |source, destination, mac| {
            let builder = Builder::udp(source, destination).unwrap();
            builder.ethernet(mac, mac, VlanTags::NONE)
        };
        let len = random.below(64);
        let payload = random.bytes(len);
        let mut bytes = written(build(from, to, MacAddress::ZERO), &payload);
        let change = Rewrite {
            source: Some(new_from).filter(|_| random.below(4) > 0),
            destination: Some(new_to).filter(|_| random.below(4) > 0),
            source_mac: Some(mac),
            destination_mac: Some(mac),
        };
        let frame = parse(&bytes, &STRICT).unwrap();
        let changed = rewrite(&mut bytes, &frame, &change).unwrap();
        assert_eq!(parse(&bytes, &STRICT), Ok(changed));
        let expected = written(
            build(
                change.source.unwrap_or(from),
                change.destination.unwrap_or(to),
                mac,
            ),
            &payload,
        );
        assert_eq!(bytes, expected);

        // A wrong sum stays wrong, so a corrupted packet is not made to look whole.
        let at = frame.payload_offset as usize - 2;
        bytes[at] ^= 0x40;
        let frame = parse(&bytes, &FLAG).unwrap();
        if frame.udp_checksum == Checksum::Bad {
            rewrite(
                &mut bytes,
                &frame,
                &Rewrite {
                    source: Some(from),
                    ..change
                },
            )
            .unwrap();
            assert_eq!(parse(&bytes, &FLAG).unwrap().udp_checksum, Checksum::Bad);
        }
    }
}

#[test]
fn a_partial_sum_stays_partial_when_rewritten() {
    let mut random = Random::new();
    for _ in 0..500 {
        let builder = random.builder();
        let mut bytes = written(builder, PAYLOAD);
        let frame = parse_any(&builder, &bytes, &STRICT).unwrap();
        let six = frame.source().is_ipv6();
        let (from, len) = if six { (8, 32) } else { (12, 8) };
        let from = frame.l3_offset as usize + from;
        let sum = checksum::Sum::default()
            .bytes(&bytes[from..from + len])
            .word(17)
            .word(8 + PAYLOAD.len() as u16);
        let at = frame.payload_offset as usize - 2;
        bytes[at..at + 2].copy_from_slice(&sum.fold().to_be_bytes());
        let policy = STRICT.delivered(Origin::Partial);
        let frame = parse_any(&builder, &bytes, &policy).unwrap();
        let change = Rewrite {
            source: Some(random.address(six)),
            destination: Some(random.address(six)),
            ..Rewrite::default()
        };
        let changed = rewrite(&mut bytes, &frame, &change).unwrap();
        let found = parse_any(&builder, &bytes, &STRICT.delivered(Origin::MayBePartial));
        assert_eq!(found.map(|frame| frame.udp_checksum), Ok(Checksum::Partial));
        complete_checksum(&mut bytes, &changed).unwrap();
        assert_eq!(
            parse_any(&builder, &bytes, &STRICT).map(|f| f.udp_checksum),
            Ok(Checksum::Verified)
        );
    }
}

#[test]
fn any_bytes_give_places_inside_them() {
    let mut random = Random::new();
    let kinds = kinds();
    let mut taken = 0u32;
    for round in 0..200_000 {
        let bytes = if round % 4 == 0 {
            let len = random.below(120);
            random.bytes(len)
        } else {
            // A good frame with one to four octets of its headers changed, perhaps cut.
            let (_, bytes, _, payload) = &kinds[random.below(kinds.len())];
            let mut bytes = bytes.clone();
            for _ in 0..=random.below(4) {
                let at = random.below(*payload as usize);
                bytes[at] = random.next() as u8;
            }
            if round % 8 == 1 {
                bytes.truncate(random.below(bytes.len()));
            }
            bytes
        };
        for (skip, function) in [(0, parse as fn(&[u8], &Policy) -> _), (14, parse_ip)] {
            let bytes = bytes.get(skip..).unwrap_or_default();
            for policy in [STRICT, TRUST, FLAG] {
                let Ok(frame) = function(bytes, &policy) else {
                    continue;
                };
                assert!(
                    lies_inside(&frame, bytes.len()),
                    "{frame:?} of {bytes:02x?}"
                );
                assert_eq!(frame.payload(bytes).len(), frame.payload_len as usize);
                taken += 1;
            }
        }
    }
    assert!(
        taken > 100_000,
        "only {taken} were taken: the changes no longer leave good frames"
    );
}
