#!/usr/bin/env python3
"""Runs README.md's examples, as they stand there, against the real server.

    readme_test.py ROOT BUILD_DIR

The C++ example is built against the installed package, the way a user of it would. Only the
server's address is exchanged, for that of a free port.
"""

import contextlib
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

ROOT, BUILD = (pathlib.Path(path).resolve() for path in sys.argv[1:3])
ADDRESS = "127.0.0.1:50051"

PYTHON_CHECK = """
scores = np.einsum("bhid,bhjd->bhij", query, key) / 8
scores = np.where(np.tri(512, dtype=bool), scores, -np.inf)
weights = np.exp(scores - scores.max(-1, keepdims=True))
expected = np.einsum("bhij,bhjd->bhid", weights / weights.sum(-1, keepdims=True), value)
np.testing.assert_allclose(output, expected, rtol=0, atol=2e-5)
print("as expected")
"""


def block(language, containing):
    """The one fenced block of README.md in `language` that contains a text."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    (found,) = [candidate for candidate in blocks if containing in candidate]
    return found


def run(command, **options):
    """The output of a command, whose failure is one of the test, with all that it printed."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    if done.returncode != 0:
        raise AssertionError(f"{command} exited {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


@contextlib.contextmanager
def running_server(folder):
    """Starts attend-server on a free port, gives its address, and stops it."""
    ready = folder / "ready.json"
    command = [BUILD / "bin/attend-server", "--listen", "127.0.0.1:0", "--admin-listen"]
    with subprocess.Popen([*command, "127.0.0.1:0", "--ready-file", ready]) as server:
        try:
            until = time.monotonic() + 60
            while not ready.exists():
                if server.poll() is not None or time.monotonic() > until:
                    raise AssertionError("attend-server does not serve")
                time.sleep(0.02)
            yield json.loads(ready.read_text(encoding="utf-8"))["grpc"][0]
        finally:
            server.send_signal(signal.SIGTERM)


class Readme(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def example(self, language, containing, address):
        text = block(language, containing)
        self.assertEqual(text.count(ADDRESS), 1)
        return text.replace(ADDRESS, address)

    def test_python(self):
        (self.folder / "proto").symlink_to(ROOT / "proto")
        run(["sh", "-e", "-c", block("sh", "protoc")], cwd=self.folder)
        environment = {**os.environ, "PYTHONPATH": str(self.folder / "build/python")}
        with running_server(self.folder) as address:
            code = self.example("python", "import grpc", address) + PYTHON_CHECK
            printed = run([sys.executable, "-c", code], cwd=self.folder, env=environment)
        self.assertRegex(printed, r"^\(1, 12, 512, 64\) \d+ FLOPs\nas expected\n$")

    def test_cpp(self):
        prefix, project = self.folder / "prefix", self.folder / "project"
        run(["cmake", "--install", BUILD, "--prefix", prefix, "--component", "client"])
        project.mkdir()
        (project / "CMakeLists.txt").write_text(
            "cmake_minimum_required(VERSION 3.25)\nproject(mine CXX)\nadd_executable(mine mine.cc)\n"
            + block("cmake", "find_package"),
            encoding="utf-8",
        )
        with running_server(self.folder) as address:
            (project / "mine.cc").write_text(
                self.example("cpp", "int main()", address), encoding="utf-8"
            )
            build = project / "build"
            run(["cmake", "-S", project, "-B", build, f"-DCMAKE_PREFIX_PATH={prefix}"])
            run(["cmake", "--build", build])
            printed = run([build / "mine"])
        # Equal weights for equal keys; 2 * (64 + 64) FLOPs for each of the triangle's pairs.
        self.assertEqual(printed, f"2, {2 * 128 * 12 * 512 * 513 // 2} FLOPs\n")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
