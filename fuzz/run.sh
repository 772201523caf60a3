#!/usr/bin/env bash
# Builds one fuzz target for libFuzzer with the stable toolchain and runs it: fuzz/run.sh TARGET SECONDS [libFuzzer options].
# Promises: coverage feedback without cargo-fuzz and without a sanitizer (the targets have no unsafe code to sanitise);
# new inputs go to fuzz/target/corpus/TARGET, so the checked-in corpus is read and never written; a crash leaves its input
# under fuzz/artifacts/TARGET and a non-zero exit status. One process, so that it can run beside others.
# Does not do: shrinking the corpus. For that run the program itself with -merge=1 into an empty folder.
set -euo pipefail

if [ $# -lt 2 ]; then
    echo "usage: fuzz/run.sh TARGET SECONDS [libFuzzer options]" >&2
    exit 2
fi
target=$1
seconds=$2
shift 2

cd "$(dirname "$0")"
host=$(rustc -vV | sed -n 's/^host: //p')

# What cargo-fuzz passes for `-s none`. Naming the host as target keeps build scripts free of it.
RUSTFLAGS="--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
-Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1 ${RUSTFLAGS:-}" \
    cargo build --release --target "$host" --bin "$target"

mkdir -p "target/corpus/$target" "artifacts/$target"
exec "target/$host/release/$target" "target/corpus/$target" "corpus/$target" \
    -max_total_time="$seconds" -artifact_prefix="artifacts/$target/" -print_final_stats=1 "$@"
