#!/bin/sh
# Runs clang-tidy (.clang-tidy) over every source of ours that BUILD_DIR's compile commands name.
#
#   lint.sh BUILD_DIR [FILE_REGEX]
set -eu
build=$1
pattern=${2:-"^$(pwd)/(core|server|client|tests)/"}
run-clang-tidy -quiet -p "$build" -j "$(nproc)" "$pattern" >"$build/clang-tidy.log" 2>&1 || {
  grep -v -e '^clang-tidy' -e 'warnings generated' "$build/clang-tidy.log"
  exit 1
}
echo "lint: clang-tidy found nothing"
