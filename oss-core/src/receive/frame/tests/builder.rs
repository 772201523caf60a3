//! The builder and rewriting: what they refuse, and that the parser finds again what they wrote.

use super::*;

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
    let other = V6.0[0].parse().unwrap();
    let family = RewriteError::Family { value: other };
    let mac = Some(MacAddress::BROADCAST);
    let source = Rewrite {
        source: Some(other),
        ..Rewrite::default()
    };
    let destination = Rewrite {
        destination: Some(other),
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
fn what_is_built_is_found_again() {
    let mut random = Random::new();
    for _ in 0..5_000 {
        let (builder, entry) = random.builder();
        let len = random.below(200);
        let payload = random.bytes(len);
        let bytes = written(builder, &payload);
        let frame = entry(&bytes, &STRICT).unwrap();
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
        let (builder, entry) = random.builder();
        let mut bytes = written(builder, PAYLOAD);
        let frame = entry(&bytes, &STRICT).unwrap();
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
        let frame = entry(&bytes, &policy).unwrap();
        let change = Rewrite {
            source: Some(random.address(six)),
            destination: Some(random.address(six)),
            ..Rewrite::default()
        };
        let changed = rewrite(&mut bytes, &frame, &change).unwrap();
        let found = entry(&bytes, &STRICT.delivered(Origin::MayBePartial));
        assert_eq!(found.map(|frame| frame.udp_checksum), Ok(Checksum::Partial));
        complete_checksum(&mut bytes, &changed).unwrap();
        assert_eq!(
            entry(&bytes, &STRICT).map(|f| f.udp_checksum),
            Ok(Checksum::Verified)
        );
    }
}
