//! Compiles the C loops that the benchmarks compare with, as a user would: by `cc -O2`, or what `CC` and `CFLAGS` name.
//!
//! libpcap is compared with where its header is found, or where `LOCKGATE_BENCH_PCAP` says 1; 0 leaves it out.

use std::path::Path;

fn main() {
    println!("cargo::rerun-if-changed=c/recvmmsg.c");
    println!("cargo::rerun-if-changed=c/raw.c");
    println!("cargo::rerun-if-env-changed=LOCKGATE_BENCH_PCAP");
    println!("cargo::rustc-check-cfg=cfg(with_pcap)");
    let pcap = match std::env::var("LOCKGATE_BENCH_PCAP").as_deref() {
        Ok("1") => true,
        Ok("0") => false,
        _ => Path::new("/usr/include/pcap/pcap.h").exists(),
    };
    let build = || {
        let mut build = cc::Build::new();
        build
            .opt_level(2)
            .extra_warnings(true)
            .warnings_into_errors(true);
        build
    };
    build()
        .flag("-std=c11")
        .file("c/recvmmsg.c")
        .compile("lockgate_bench_recvmmsg");
    let mut raw = build();
    // The kernel's headers use what C11 leaves to GNU.
    raw.flag("-std=gnu11").file("c/raw.c");
    if pcap {
        raw.define("WITH_PCAP", None);
        println!("cargo::rustc-cfg=with_pcap");
        println!("cargo::rustc-link-arg-benches=-lpcap");
    }
    raw.compile("lockgate_bench_raw");
}
