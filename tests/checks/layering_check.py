#!/usr/bin/env python3
"""Checks that every #include points down the layers.

Debian puts the headers of every library into /usr/include and a static library hides what it
uses, so neither the compiler nor the linker notices when a layer reaches past what it may use.
This script does: each folder has an allow-list of our own folders and of outside libraries.

    layering_check.py ROOT

prints one line a violation (path:line: what) and exits 1 if there is any.
"""

import dataclasses
import pathlib
import re
import sys

# Header prefixes of the outside libraries. A header that belongs to none of them, to none of our
# folders and not to the language or POSIX is a violation: name its library here first.
LIBRARIES = {
    "absl": ("absl/",),
    "json": ("nlohmann/",),
    "onednn": ("dnnl", "oneapi/dnnl/"),
    "openmp": ("omp.h",),
    "highway": ("hwy/",),
    "tbb": ("tbb/", "oneapi/tbb"),
    "grpc": ("grpc/", "grpcpp/"),
    "protobuf": ("google/protobuf/",),
    "spdlog": ("spdlog/", "fmt/"),
    "prometheus": ("prometheus/",),
    "civetweb": ("civetweb.h", "CivetServer.h"),
    "cli11": ("CLI/",),
    "openssl": ("openssl/",),
    "gtest": ("gtest/", "gmock/"),
    "benchmark": ("benchmark/",),
}

# Headers of the C library and of Linux that the code may use without a rule.
SYSTEM = re.compile(
    r"^(?:[a-z_0-9]+"  # <vector>, <cmath>
    r"|(?:sys|linux|sanitizer|netinet|arpa|net|asm|bits)/[a-z_0-9/]+\.h"
    r"|(?:dirent|dlfcn|errno|fcntl|fenv|limits|netdb|poll|pthread|sched|semaphore|signal|spawn"
    r"|malloc|stdint|stdio|stdlib|string|termios|time|unistd|cpuid|immintrin|x86intrin)\.h)$"
)

OURS = ("core/", "server/", "client/", "tests/")
# The client library's header under the name that it is installed by.
INSTALLED = "attend/client.h"
PROTO = re.compile(r"^(?:attend/v1/|grpc/health/|grpc/reflection/).*\.pb\.h$")


@dataclasses.dataclass(frozen=True)
class Layer:
    """What the files under `folder` may include beside themselves, the language and POSIX."""

    folder: str
    ours: tuple = ()
    libraries: tuple = ()


# The longest folder that holds a file decides. "proto" in `ours` means the generated headers.
LAYERS = (
    Layer("core/base/", (), ("absl", "json")),
    Layer("core/executor/", ("core/base/",), ("absl", "tbb")),
    Layer("core/simd/", ("core/base/",), ("absl", "highway")),
    Layer("core/gemm/", ("core/base/",), ("absl", "onednn", "openmp")),
    Layer(
        "core/attention/",
        ("core/gemm/", "core/simd/", "core/executor/", "core/base/"),
        ("absl", "tbb"),
    ),
    Layer(
        "core/layer/",
        ("core/attention/", "core/gemm/", "core/simd/", "core/executor/", "core/base/"),
        ("absl",),
    ),
    Layer("core/kv/", ("core/attention/", "core/executor/", "core/base/"), ("absl",)),
    Layer("server/settings/", ("core/base/",), ("absl", "json", "cli11")),
    Layer(
        "server/observe/",
        ("core/base/", "server/settings/"),
        ("absl", "json", "grpc", "protobuf", "spdlog", "prometheus", "civetweb"),
    ),
    Layer("server/schedule/", ("core/", "server/observe/"), ("absl",)),
    Layer("server/shared_memory/", ("core/base/", "server/schedule/"), ("absl",)),
    Layer(
        "server/wire/",
        ("core/", "server/schedule/", "server/shared_memory/", "proto"),
        ("absl", "grpc", "protobuf"),
    ),
    Layer(
        "server/rpc/",
        (
            "core/",
            "server/wire/",
            "server/schedule/",
            "server/shared_memory/",
            "server/observe/",
            "proto",
        ),
        ("absl", "grpc", "protobuf", "spdlog"),
    ),
    Layer("server/secure/", ("core/base/", "server/observe/"), ("absl", "grpc", "openssl", "spdlog")),
    # What puts the parts together: server/process/ and main.
    Layer(
        "server/",
        ("core/", "server/", "proto"),
        ("absl", "json", "grpc", "protobuf", "spdlog", "prometheus", "civetweb", "openssl"),
    ),
    Layer(
        "client/",
        ("core/base/", "client/", "proto"),
        ("absl", "json", "grpc", "protobuf", "cli11", "civetweb", "openssl"),
    ),
    Layer(
        "tests/unit/core/",
        ("core/", "tests/"),
        ("absl", "json", "onednn", "highway", "tbb", "gtest"),
    ),
    Layer(
        "tests/",
        ("core/", "server/", "client/", "tests/", "proto", INSTALLED),
        (
            "absl",
            "json",
            "highway",
            "grpc",
            "protobuf",
            "spdlog",
            "prometheus",
            "civetweb",
            "cli11",
            "openssl",
            "gtest",
            "benchmark",
        ),
    ),
)

SUFFIXES = {".h", ".cc", ".hpp", ".cpp"}
INCLUDE = re.compile(r'^\s*#\s*(?:include|import)\s*([<"])([^>"]+)[>"]')


def layer_of(path):
    """The rule for a file, given its path from the root, or None."""
    matches = [layer for layer in LAYERS if path.startswith(layer.folder)]
    return max(matches, key=lambda layer: len(layer.folder), default=None)


def library_of(header):
    for name, prefixes in LIBRARIES.items():
        if header.startswith(prefixes):
            return name
    return None


def fault_of(layer, bracket, header):
    """Why a file of `layer` may not include `header`, or None."""
    if PROTO.match(header):
        return None if "proto" in layer.ours else f"{layer.folder} may not use generated protos"
    if header.startswith((*OURS, INSTALLED)):
        if header.startswith(layer.folder) or header.startswith(layer.ours):
            return None
        return f"{layer.folder} may not use {header}"
    library = library_of(header)
    if library is not None:
        return None if library in layer.libraries else f"{layer.folder} may not use {library}"
    if bracket == '"':
        return f'"{header}" is not a path from the root of the repository'
    if SYSTEM.match(header):
        return None
    return f"<{header}> belongs to no library that layering_check.py knows"


def check_text(path, text):
    """Violations in one file: a list of (line number, message). Files outside every layer of
    ours, such as those of a build folder, are never passed in."""
    layer = layer_of(path)
    if layer is None:
        return [(1, "lies in a folder for which layering_check.py has no rule")]
    found = []
    for number, line in enumerate(text.splitlines(), start=1):
        match = INCLUDE.match(line)
        if match:
            fault = fault_of(layer, *match.groups())
            if fault:
                found.append((number, fault))
    return found


def check_tree(root):
    """Returns (violations as printable lines, number of files read)."""
    lines, count = [], 0
    for top in OURS:
        for file in sorted((root / top).rglob("*")):
            if file.suffix not in SUFFIXES or not file.is_file():
                continue
            path = file.relative_to(root).as_posix()
            count += 1
            for number, fault in check_text(path, file.read_text(encoding="utf-8")):
                lines.append(f"{path}:{number}: {fault}")
    return lines, count


def main(argv):
    if len(argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    lines, count = check_tree(pathlib.Path(argv[1]))
    if count == 0:
        print(f"layering_check: no sources under {argv[1]}", file=sys.stderr)
        return 2
    for line in lines:
        print(line)
    print(f"layering_check: {count} files, {len(lines)} violations")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
