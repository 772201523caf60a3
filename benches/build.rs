//! Compiles the C loops that the benchmarks compare with, as a user would: by `cc -O2`, or what `CC` and `CFLAGS` name.

fn main() {
    println!("cargo::rerun-if-changed=c/recvmmsg.c");
    cc::Build::new()
        .file("c/recvmmsg.c")
        .opt_level(2)
        .flag("-std=c11")
        .extra_warnings(true)
        .warnings_into_errors(true)
        .compile("lockgate_bench_recvmmsg");
}
