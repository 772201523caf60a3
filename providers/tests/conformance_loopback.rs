//! The conformance kit over `loopback`, the reference: what it does not pass is wrong in the kit or in the reference.

mod equipment;

use equipment::loopback::Loopback;

mod payloads {
    use super::Loopback;

    fn loopback() -> Loopback {
        Loopback::new()
    }

    lockgate_conformance::mount!(loopback);
}

mod frames {
    use super::Loopback;

    fn loopback() -> Loopback {
        Loopback::with_frames()
    }

    lockgate_conformance::mount!(loopback);
}
