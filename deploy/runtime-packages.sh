#!/bin/sh
# Prints the Debian packages that hold the shared libraries of PROGRAM..., one a line.
#
#   runtime-packages.sh PROGRAM...
set -eu
[ $# -gt 0 ] || { sed -n '2,4s/^# \{0,1\}//p' "$0" >&2; exit 2; }

# dpkg knows a file by the path it was packaged under, ldd by the one it was found under: with
# /lib a link to /usr/lib these differ.
owner() {
  for path in "$1" "/usr$1" "${1#/usr}"; do
    if dpkg-query -S "$path" 2>/dev/null; then return 0; fi
  done
  echo "runtime-packages: no package holds $1" >&2
  return 1
}

libraries=$(ldd "$@" | sed -n 's/.*=> \(\/[^ ]*\) (.*/\1/p' | sort -u)
[ -n "$libraries" ] || { echo "runtime-packages: nothing found by ldd $*" >&2; exit 1; }
packages=
for library in $libraries; do
  found=$(owner "$library")
  packages="$packages ${found%%:*}"
done
printf '%s\n' $packages | sort -u
