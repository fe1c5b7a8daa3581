#!/bin/sh
# Runs the fuzzer of BUILD_DIR for some seconds; its corpus grows in BUILD_DIR/corpus.
#
#   fuzz.sh BUILD_DIR SECONDS
#
# What fails is kept as BUILD_DIR/crash-*; the program computes it again if given the file's name.
set -eu
build=$1
seconds=$2
mkdir -p "$build/corpus"
# Leaks are for the preset asan: to look for them here, each input is run twice.
UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 \
  "$build/tests/fuzz/attend-attention-fuzz" -max_total_time="$seconds" -timeout=60 \
  -max_len=256 -len_control=0 -detect_leaks=0 -print_final_stats=1 \
  -artifact_prefix="$build/" "$build/corpus"
