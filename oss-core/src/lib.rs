//! Lockgate's open core: explicit providers and custody for fast I/O.

