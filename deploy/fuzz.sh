#!/bin/sh
# Runs the fuzzers of BUILD_DIR for some seconds, half of them each; the corpora grow in BUILD_DIR/corpus and
# BUILD_DIR/wire-corpus.
#
#   fuzz.sh BUILD_DIR SECONDS
#
# What fails is kept as BUILD_DIR/crash-*; the program computes it again if given the file's name.
set -eu
build=$1
seconds=$2
half=$(((seconds + 1) / 2))
export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
mkdir -p "$build/corpus" "$build/wire-corpus"
# Leaks are for the preset asan: to look for them here, each input is run twice.
"$build/tests/fuzz/attend-attention-fuzz" -max_total_time="$half" -timeout=60 \
  -max_len=256 -len_control=0 -detect_leaks=0 -print_final_stats=1 \
  -artifact_prefix="$build/" "$build/corpus"
"$build/tests/fuzz/attend-wire-fuzz" -max_total_time="$half" -timeout=60 \
  -max_len=1024 -len_control=0 -detect_leaks=0 -print_final_stats=1 \
  -artifact_prefix="$build/wire-" "$build/wire-corpus"
