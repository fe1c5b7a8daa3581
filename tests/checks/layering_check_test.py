#!/usr/bin/env python3
"""The layering check catches what it is there for, and lets through what is meant to be."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

import layering_check

SCRIPT = pathlib.Path(layering_check.__file__)


def faults(path, *includes):
    text = "".join(f"#include {include}\n" for include in includes)
    return layering_check.check_text(path, text)


class Violations(unittest.TestCase):
    CASES = (
        ("core/base/tensor.h", '"core/simd/softmax_pass.h"'),
        ("core/base/tensor.cc", '"core/attention/attention.h"'),
        ("core/base/tensor.cc", '"hwy/highway.h"'),
        ("core/base/tensor.cc", "<tbb/task_arena.h>"),
        ("core/base/tensor.cc", '"dnnl.hpp"'),
        ("core/base/tensor.cc", '"attend/v1/tensor.pb.h"'),
        ("core/base/tensor.cc", "<google/protobuf/message.h>"),
        ("core/base/tensor.cc", "<spdlog/spdlog.h>"),
        ("core/simd/softmax_pass.cc", '"core/gemm/tile_gemm.h"'),
        ("core/simd/softmax_pass.cc", '"core/executor/executor.h"'),
        ("core/gemm/tile_gemm.cc", '"hwy/highway.h"'),
        ("core/executor/executor.cc", '"core/attention/attention.h"'),
        ("core/attention/attention.cc", '"oneapi/dnnl/dnnl.hpp"'),
        ("core/attention/attention.cc", '"hwy/highway.h"'),
        ("core/attention/attention.cc", '"core/layer/layer.h"'),
        ("core/attention/attention.cc", '"server/wire/status.h"'),
        ("core/attention/attention.cc", "<grpcpp/grpcpp.h>"),
        ("core/kv/cache.cc", '"core/layer/layer.h"'),
        ("core/kv/cache.cc", "<prometheus/counter.h>"),
        ("client/cpp/client.cc", '"core/attention/attention.h"'),
        ("client/cpp/client.cc", '"core/executor/executor.h"'),
        ("client/cpp/client.cc", '"server/wire/status.h"'),
        ("client/cli/main.cc", "<spdlog/spdlog.h>"),
        ("server/rpc/attend.cc", '"client/cpp/client.h"'),
        ("server/rpc/attend.cc", '"dnnl.hpp"'),
        ("server/schedule/queue.cc", '"attend/v1/attention.pb.h"'),
        ("server/schedule/queue.cc", '"server/rpc/attend.h"'),
        ("server/wire/tensor.cc", '"server/rpc/attend.h"'),
        ("server/settings/load.cc", "<grpcpp/grpcpp.h>"),
        ("server/process/main.cc", "<CLI/CLI.hpp>"),
        ("server/process/main.cc", '"attend/client.h"'),
        ("server/schedule/queue.cc", "<boost/asio.hpp>"),
        ("server/schedule/queue.cc", '"queue.h"'),
        ("server/schedule/queue.cc", '"../core/base/tensor.h"'),
        ("core/newlayer/thing.cc", "<vector>"),
    )

    def test_each_is_caught(self):
        for path, include in self.CASES:
            with self.subTest(path=path, include=include):
                self.assertEqual(len(faults(path, include)), 1)

    def test_the_line_is_named(self):
        found = faults("core/base/tensor.cc", "<vector>", '"absl/strings/str_cat.h"', "<grpcpp/grpcpp.h>")
        self.assertEqual(found, [(3, "core/base/ may not use grpc")])

    def test_spacing_does_not_hide_an_include(self):
        text = "  #  include   <grpcpp/grpcpp.h>\n"
        self.assertEqual(len(layering_check.check_text("core/base/tensor.cc", text)), 1)


class Allowed(unittest.TestCase):
    CASES = (
        ("core/base/tensor.cc", '"core/base/tensor.h"'),
        ("core/base/safetensors.cc", "<nlohmann/json.hpp>"),
        ("core/base/npy.cc", "<sys/stat.h>"),
        ("core/base/dtype.cc", '"absl/strings/str_cat.h"'),
        ("core/executor/executor.cc", "<tbb/task_arena.h>"),
        ("core/simd/softmax_pass.cc", '"hwy/foreach_target.h"'),
        ("core/gemm/tile_gemm.cc", "<dnnl.hpp>"),
        ("core/attention/attention.cc", '"core/gemm/tile_gemm.h"'),
        ("core/kv/cache.cc", '"core/attention/attention.h"'),
        ("client/cpp/client.cc", '"core/base/tensor.h"'),
        ("client/cpp/client.cc", '"attend/v1/attention.grpc.pb.h"'),
        ("server/rpc/attend.cc", '"server/wire/status.h"'),
        ("server/process/main.cc", "<spdlog/spdlog.h>"),
        ("tests/unit/core/tensor_test.cc", "<gmock/gmock.h>"),
        ("tests/unit/client/install/main.cc", '"attend/client.h"'),
    )

    def test_each_passes(self):
        for path, include in self.CASES:
            with self.subTest(path=path, include=include):
                self.assertEqual(faults(path, include), [])


class CommandLine(unittest.TestCase):
    def run_on(self, files):
        with tempfile.TemporaryDirectory() as folder:
            for name, text in files.items():
                path = pathlib.Path(folder, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
            return subprocess.run(
                [sys.executable, SCRIPT, folder], capture_output=True, text=True, check=False
            )

    def test_a_violation_fails_and_is_printed(self):
        run = self.run_on({"core/base/a.cc": "#include <vector>\n#include <grpcpp/grpcpp.h>\n"})
        self.assertEqual(run.returncode, 1)
        self.assertIn("core/base/a.cc:2: core/base/ may not use grpc", run.stdout)

    def test_a_clean_tree_passes(self):
        run = self.run_on({"core/base/a.cc": "#include <vector>\n", "README.md": "#include <x/y>\n"})
        self.assertEqual(run.returncode, 0, run.stdout)

    def test_an_empty_tree_is_an_error(self):
        self.assertEqual(self.run_on({}).returncode, 2)


if __name__ == "__main__":
    unittest.main()
