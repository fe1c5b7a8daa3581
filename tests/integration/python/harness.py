"""Starts attend-server and makes Python stubs from the .proto files."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

PATIENCE_SECONDS = 60


def make_stubs(proto_root, out):
    """Runs protoc with gRPC's plugin, as any user of the API would, and makes `out` importable."""
    here = pathlib.Path(__file__).parent
    health = proto_root / "grpc" / "health" / "v1"
    attend = sorted(str(file.relative_to(proto_root)) for file in proto_root.glob("attend/v1/*.proto"))
    for include, files in ((proto_root, attend), (health, ["health.proto"]),
                           (here, ["reflection.proto"])):
        subprocess.run(
            ["protoc", f"--proto_path={include}", f"--python_out={out}", f"--grpc_out={out}",
             "--plugin=protoc-gen-grpc=" + os.environ["ATTEND_TEST_GRPC_PYTHON_PLUGIN"], *files],
            check=True)
    sys.path.insert(0, str(out))


class Server:
    """A running attend-server; `target`, `unix_target` and `admin` say where."""

    def __init__(self, binary, *arguments):
        self._folder = tempfile.TemporaryDirectory(prefix="attend-test-")
        folder = pathlib.Path(self._folder.name)
        ready_file = folder / "ready.json"
        environment = {name: value for name, value in os.environ.items()
                       if not name.startswith("ATTEND_")}
        self._log = open(folder / "log", "w+", encoding="utf-8")
        self.process = subprocess.Popen(
            [binary, "--listen", f"127.0.0.1:0,unix:{folder}/socket", "--admin-listen",
             "127.0.0.1:0", "--ready-file", str(ready_file), *arguments],
            env=environment, stderr=self._log)
        ready = self._wait_for(ready_file)
        self.target, self.unix_target = ready["grpc"]
        self.admin = ready["admin"]

    def _wait_for(self, ready_file):
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline and self.process.poll() is None:
            if ready_file.exists():
                return json.loads(ready_file.read_text(encoding="utf-8"))
            time.sleep(0.002)
        self.process.kill()
        raise RuntimeError(f"attend-server does not serve:\n{self.log()}")

    def log(self):
        self._log.seek(0)
        return self._log.read()

    def stop(self):
        """Asks it to stop and returns its exit code."""
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(PATIENCE_SECONDS)
        finally:
            self.process.kill()
            self._log.close()
            self._folder.cleanup()
