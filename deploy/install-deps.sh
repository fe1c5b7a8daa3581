#!/bin/sh
# Installs what building, testing and checking need, from Debian 12's or 13's own packages.
#
#   install-deps.sh [--only GROUP[,GROUP...]] [--print]
#
# Groups: build    compiler, build tools and libraries
#         test     what the tests, benchmarks, demo and repository checks need on top
#         format   clang-format
#         lint     clang and clang-tidy
#         fuzz     clang with libFuzzer and the sanitizers, of the release's own version
# Default: build,test. --print lists the packages instead of installing them.
# As root, or as a user that may use sudo. Does nothing when everything is there already.
set -eu

build_packages="
  g++ cmake ninja-build
  libgrpc++-dev protobuf-compiler protobuf-compiler-grpc libprotobuf-dev
  libdnnl-dev ocl-icd-opencl-dev libhwy-dev libtbb-dev libabsl-dev
  libspdlog-dev prometheus-cpp-dev libcivetweb-dev libcli11-dev nlohmann-json3-dev
  libssl-dev libc-ares-dev libre2-dev zlib1g-dev"
test_packages="
  make git ccache
  libgtest-dev libgmock-dev libbenchmark-dev
  python3 python3-grpcio python3-protobuf python3-numpy"
format_packages="clang-format"
lint_packages="clang clang-tidy libomp-dev python3 make"
fuzz_packages="clang libclang-rt-dev libomp-dev ccache make"

usage() {
  sed -n '2,/^set -eu/s/^# \{0,1\}//p' "$0"
}

fail() {
  printf 'install-deps: %s\n' "$1" >&2
  exit "${2:-1}"
}

groups=build,test
print=no
while [ $# -gt 0 ]; do
  case $1 in
    --only)
      [ $# -ge 2 ] || fail "--only needs a list of groups, such as build,test" 2
      groups=$2
      shift
      ;;
    --print) print=yes ;;
    -h | --help)
      usage
      exit 0
      ;;
    *) fail "unknown argument '$1' (see --help)" 2 ;;
  esac
  shift
done

packages=
for group in $(printf '%s' "$groups" | tr ',' ' '); do
  case $group in
    build) packages="$packages $build_packages" ;;
    test) packages="$packages $test_packages" ;;
    format) packages="$packages $format_packages" ;;
    lint) packages="$packages $lint_packages" ;;
    fuzz) packages="$packages $fuzz_packages" ;;
    *) fail "unknown group '$group': build, test, format, lint or fuzz" 2 ;;
  esac
done
packages=$(printf '%s\n' $packages | sort -u)

if [ "$print" = yes ]; then
  printf '%s\n' "$packages"
  exit 0
fi

command -v dpkg-query >/dev/null || fail "needs Debian: there is no dpkg-query here"

missing=
for package in $packages; do
  state=$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null) || state=
  [ "$state" = installed ] || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

as_root=
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || fail "run me as root, or install sudo; missing:$missing"
  as_root=sudo
fi
printf 'install-deps: installing%s\n' "$missing"
$as_root apt-get update -qq
$as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing
