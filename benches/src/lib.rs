//! Benchmark support: placeholder head, replaced with the drivers.
