//! The self-test: sends a numbered stream to a receiver from a second thread, and verifies every byte and number that arrives.
//!
//! Promises: what was sent is received or counted as lost by place, or the test fails; every wait has an end. Does not do:
//! measuring the network. The rates and times are those of this host, this build and whatever else runs meanwhile.

mod loopback;
mod pass;
#[cfg(test)]
mod tests;
mod udp;

use std::net::SocketAddr;
use std::time::Duration;

use lockgate::receive::{Losses, Receiver};
use serde::Serialize;

use crate::exit::Exit;
use crate::host::Host;
use crate::interrupt::Interrupt;
use crate::providers::Providers;
use crate::report::ErrorReport;

pub(crate) use pass::Pass;
use pass::{Outlet, Pace};

/// The bytes of each packet: a common size of market data.
const PAYLOAD: usize = 256;

/// As fast as the receiver takes them; 64 packets under way fit into every default receive buffer.
const BURST: Pace = Pace {
    packets: 100_000,
    under_way: Some(64),
    rate: None,
    limit: Duration::from_secs(2),
};

/// At a rate that leaves the processor idle in between, for the latency.
const PACED: Pace = Pace {
    packets: 8_000,
    under_way: None,
    rate: Some(4_000),
    limit: Duration::from_secs(3),
};

/// What came of one provider's test.
#[derive(Debug, Serialize)]
pub(crate) struct SelfTest {
    /// The provider.
    pub(crate) provider: &'static str,
    /// What the packets went through.
    pub(crate) path: String,
    /// The bytes of each packet.
    pub(crate) payload_bytes: usize,
    /// How it ended.
    pub(crate) exit: Exit,
    /// Why it did not end well.
    pub(crate) problem: Option<Problem>,
    /// As fast as the receiver takes them.
    pub(crate) burst: Option<Pass>,
    /// At a steady rate.
    pub(crate) paced: Option<Pass>,
}

/// Why a test did not end well.
#[derive(Debug, Serialize)]
pub(crate) struct Problem {
    /// What happened.
    pub(crate) text: String,
    /// What to do about it, where that is known.
    pub(crate) remedy: Option<String>,
    /// The library's error, if there was one.
    #[serde(serialize_with = "error_report")]
    pub(crate) error: Option<lockgate::Error>,
}

fn error_report<S: serde::Serializer>(
    error: &Option<lockgate::Error>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    error.as_ref().map(ErrorReport::from).serialize(serializer)
}

impl Problem {
    fn plain(text: impl Into<String>, remedy: Option<&str>) -> Self {
        Self {
            text: text.into(),
            remedy: remedy.map(str::to_owned),
            error: None,
        }
    }

    fn of(error: &lockgate::Error) -> Self {
        Self {
            text: error.to_string(),
            remedy: error.remedy().map(str::to_owned),
            error: Some(error.clone()),
        }
    }
}

/// A receiver, the way to it, and what its packets must say.
struct Setup {
    receiver: Receiver,
    outlet: Box<dyn Outlet>,
    source: SocketAddr,
    destination: SocketAddr,
}

/// Tests `udp` over the loopback interface.
pub(crate) fn udp(providers: &Providers, host: &Host, interrupt: &Interrupt) -> SelfTest {
    match udp::setup(providers, host) {
        Ok((path, setup)) => run("udp", path, setup, interrupt),
        Err((path, exit, problem)) => SelfTest {
            exit,
            problem: Some(problem),
            ..SelfTest::new("udp", path)
        },
    }
}

/// Tests `loopback` within the process.
pub(crate) fn loopback(providers: &Providers, interrupt: &Interrupt) -> SelfTest {
    match loopback::setup(providers) {
        Ok((path, setup)) => run("loopback", path, setup, interrupt),
        Err(error) => SelfTest {
            exit: Exit::of(&error),
            problem: Some(Problem::of(&error)),
            ..SelfTest::new("loopback", "within the process".to_owned())
        },
    }
}

impl SelfTest {
    fn new(provider: &'static str, path: String) -> Self {
        Self {
            provider,
            path,
            payload_bytes: PAYLOAD,
            exit: Exit::Ok,
            problem: None,
            burst: None,
            paced: None,
        }
    }

    /// Judges a pass and hands it back.
    fn judge(
        &mut self,
        pass: Result<Pass, lockgate::Error>,
        interrupt: &Interrupt,
    ) -> Option<Pass> {
        let pass = match pass {
            Ok(pass) => pass,
            Err(error) => {
                self.fail(Exit::of(&error), Problem::of(&error));
                return None;
            }
        };
        if interrupt.asked() {
            self.fail(
                Exit::Interrupted,
                Problem::plain("stopped by a signal", None),
            );
        } else if let Some(error) = &pass.send_error {
            self.fail(Exit::of(error), Problem::of(error));
        } else if pass.arrived == 0 {
            let text = format!("{} packets were sent and none arrived", pass.sent);
            let remedy = "look for a rule that drops them: nft list ruleset, iptables -S";
            self.fail(Exit::NoPackets, Problem::plain(text, Some(remedy)));
        } else if let Some(wrong) = pass.wrong() {
            let remedy = "run it again; if it stays, report it with the output of probe --json";
            self.fail(Exit::Verification, Problem::plain(wrong, Some(remedy)));
        }
        Some(pass)
    }

    fn fail(&mut self, exit: Exit, problem: Problem) {
        self.exit = exit;
        self.problem = Some(problem);
    }
}

fn run(provider: &'static str, path: String, mut setup: Setup, interrupt: &Interrupt) -> SelfTest {
    let mut test = SelfTest::new(provider, path);
    let burst = pass::run(&mut setup, &BURST, PAYLOAD, interrupt);
    test.burst = test.judge(burst, interrupt);
    if test.exit == Exit::Ok {
        let paced = pass::run(&mut setup, &PACED, PAYLOAD, interrupt);
        test.paced = test.judge(paced, interrupt);
    }
    if let Err(error) = setup.receiver.close() {
        test.fail(Exit::of(&error), Problem::of(&error));
    }
    test
}

/// What was lost during a pass: the later totals less the earlier ones, place by place.
fn lost_between(before: &Losses, after: &Losses) -> Losses {
    let less = |after: Option<u64>, before: Option<u64>| {
        after.map(|after| after.saturating_sub(before.unwrap_or(0)))
    };
    let mut lost = Losses::default();
    lost.kernel_drop = less(after.kernel_drop, before.kernel_drop);
    lost.ring_full = less(after.ring_full, before.ring_full);
    lost.no_buffer = less(after.no_buffer, before.no_buffer);
    lost.truncated = less(after.truncated, before.truncated);
    lost.filtered = less(after.filtered, before.filtered);
    lost.checksum = less(after.checksum, before.checksum);
    lost.fragment = less(after.fragment, before.fragment);
    lost.malformed = less(after.malformed, before.malformed);
    lost
}

/// A number that differs from run to run. Not for secrets: the standard library's hash keys.
pub(crate) fn random() -> u64 {
    use std::hash::{BuildHasher, Hasher, RandomState};
    RandomState::new().build_hasher().finish()
}
