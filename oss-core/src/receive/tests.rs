//! Tests of configuration and receiver.
