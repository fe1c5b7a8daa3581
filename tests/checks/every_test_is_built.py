#!/usr/bin/env python3
"""Checks that no test was written and then forgotten in the build.

    every_test_is_built.py ROOT COMPILE_COMMANDS.json

Every tests/**/*_test.cc and *_fuzz.cc must be compiled, a fuzzer by builds that do not run it too;
prints those that are not and exits 1.
"""

import json
import pathlib
import sys


def main(argv):
    root, commands = pathlib.Path(argv[1]).resolve(), pathlib.Path(argv[2])
    compiled = set()
    for command in json.loads(commands.read_text(encoding="utf-8")):
        compiled.add(pathlib.Path(command["directory"], command["file"]).resolve())
    written = set()
    for pattern in ("*_test.cc", "*_fuzz.cc"):
        found = set((root / "tests").rglob(pattern))
        if not found:
            print(f"no {pattern} under {root / 'tests'}", file=sys.stderr)
            return 2
        written |= found
    forgotten = sorted(written - compiled)
    for file in forgotten:
        print(f"{file.relative_to(root)}: in no CMakeLists.txt")
    print(f"every_test_is_built: {len(written)} tests, {len(forgotten)} forgotten")
    return 1 if forgotten else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
