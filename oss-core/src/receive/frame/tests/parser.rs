//! The parser: every kind of frame, every cut of it, every reason for a refusal, every policy, and random bytes.

use super::*;

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
            "not-ip",
            "not IP: EtherType 0x0806",
        ),
        (
            Reject::NotUdp { protocol: 6 },
            "not-udp",
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
fn policy_follows_the_configuration() {
    use crate::receive::{ChecksumAction, ChecksumPolicy};
    assert_eq!(Policy::from(ChecksumPolicy::default()), STRICT);
    assert_eq!(Policy::default(), STRICT);
    let lax = ChecksumPolicy {
        bad: ChecksumAction::Deliver,
        absent_ipv6: ChecksumAction::Deliver,
    };
    assert_eq!(Policy::from(lax), FLAG);

    use crate::receive::Checksum as Told;
    for (state, told) in [
        (Checksum::Absent, Told::Absent),
        (Checksum::Bad, Told::Bad),
        (Checksum::NotChecked, Told::Unknown),
        (Checksum::Partial, Told::Unknown),
        (Checksum::Verified, Told::Good),
        (Checksum::Vouched, Told::Good),
        (Checksum::Zero, Told::Absent),
    ] {
        assert_eq!(Told::from(state), told, "{state:?}");
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
        for (skip, function) in [(0, parse as Entry), (14, parse_ip)] {
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
