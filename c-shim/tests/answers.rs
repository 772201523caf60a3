//! What the shim answers without a device: the typed refusal of a stub, and what the library says on a bare host.

#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "a helper that fails fails its test"
)]

use lockgate_verbs_shim::{
    DeviceList, Errno, LinkMode, Optional, fork_status, link_mode, rkey_next,
};

#[test]
fn the_link_mode_is_that_of_the_build() {
    let expected = if cfg!(lockgate_verbs_stub) {
        LinkMode::Stub
    } else {
        LinkMode::Library
    };
    assert_eq!(link_mode(), expected);
}

#[test]
fn an_enumeration_lists_devices_or_says_why_it_can_not() {
    let answer = DeviceList::read();
    match link_mode() {
        LinkMode::Stub => assert_eq!(answer.unwrap_err(), Errno::NOT_LINKED),
        LinkMode::Library => match answer {
            Ok(list) => {
                assert_eq!(list.iter().count(), list.len());
                for device in list.iter() {
                    assert!(!device.info().unwrap().name.is_empty());
                }
            }
            // A kernel without the RDMA subsystem has neither the netlink family nor the sysfs class.
            Err(errno) => {
                assert_eq!(errno, Errno::NO_SYSTEM);
                assert!(!std::path::Path::new("/sys/class/infiniband_verbs").exists());
            }
        },
    }
}

#[test]
fn a_stub_has_no_optional_verb_and_refuses_each_by_its_reason() {
    if link_mode() == LinkMode::Stub {
        for verb in [Optional::DmaBuf, Optional::ForkStatus, Optional::GidEntry] {
            assert!(!verb.is_there(), "{verb:?}");
        }
        assert_eq!(fork_status(), Err(Errno::NOT_LINKED));
    } else {
        // There or not, by the library's age; what isn't there is refused as such.
        let status = fork_status();
        assert_eq!(
            status == Err(Errno::NOT_SUPPORTED),
            !Optional::ForkStatus.is_there()
        );
    }
}

#[test]
fn arithmetic_needs_no_library() {
    assert_eq!(rkey_next(0x0102_03fe), 0x0102_03ff);
}
