//! Ctrl-C and SIGTERM as a flag.
//!
//! Promises: the first signal asks for an orderly end; the second one ends the process at once. Does not do: anything else in a
//! signal handler.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use lockgate::Error;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use crate::exit::Exit;

/// Whether the user has asked for the end.
#[derive(Clone, Debug, Default)]
pub(crate) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Sets the handlers.
    pub(crate) fn install() -> lockgate::Result<Self> {
        let asked = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            // In this order: the second signal finds the flag set.
            flag::register_conditional_shutdown(
                signal,
                i32::from(Exit::Interrupted.code()),
                Arc::clone(&asked),
            )
            .and_then(|_| flag::register(signal, Arc::clone(&asked)))
            .map_err(|error| Error::from_io("set signal handler", error))?;
        }
        Ok(Self(asked))
    }

    /// Whether a signal has come.
    pub(crate) fn asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
