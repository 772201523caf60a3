//! libFuzzer's entry to what the reader of packet rings must survive. The checks stand beside the reader; ordinary tests run them over
//! random contents.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| lockgate_providers::packet::fuzz_ring(input));
