//! A factory around the factory under test that counts how often it was asked to open.
//!
//! Promises: everything else passes through unchanged. It proves that a refusal came before the provider saw the call.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use lockgate::Result;
use lockgate::receive::{ConfigFaults, PacketReceiver, ReceiverConfig, ReceiverFactory};
use lockgate::registry::{Availability, Description, Factory, Inspection, OpenContext};

/// The factory under test, watched.
pub(crate) struct Spy {
    inner: Arc<dyn Factory>,
    opens: AtomicU32,
}

impl Spy {
    pub(crate) fn new(inner: Arc<dyn Factory>) -> Arc<Self> {
        Arc::new(Self {
            inner,
            opens: AtomicU32::new(0),
        })
    }

    /// How often the provider was asked to open a receiver.
    pub(crate) fn opens(&self) -> u32 {
        self.opens.load(Ordering::Relaxed)
    }
}

impl Factory for Spy {
    fn description(&self) -> &Description {
        self.inner.description()
    }

    fn availability(&self) -> Availability {
        self.inner.availability()
    }

    fn inspect(&self) -> Inspection {
        self.inner.inspect()
    }

    fn receiver(&self) -> Option<&dyn ReceiverFactory> {
        self.inner.receiver()?;
        Some(self)
    }
}

impl ReceiverFactory for Spy {
    fn validate(&self, config: &ReceiverConfig, faults: &mut ConfigFaults) {
        if let Some(inner) = self.inner.receiver() {
            inner.validate(config, faults);
        }
    }

    fn open(
        &self,
        config: &ReceiverConfig,
        context: &OpenContext<'_>,
    ) -> Result<Box<dyn PacketReceiver>> {
        self.opens.fetch_add(1, Ordering::Relaxed);
        match self.inner.receiver() {
            Some(inner) => inner.open(config, context),
            None => Err(
                lockgate::Error::new(lockgate::ErrorKind::Bug, "open receiver")
                    .with_detail("the factory had a receiver side before"),
            ),
        }
    }
}
