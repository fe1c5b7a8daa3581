#!/usr/bin/env python3
"""The wire check catches each kind of incompatible change, and lets additions through."""

import pathlib
import tempfile
import unittest

import wire_check

BASE = """
syntax = "proto3";
package sample.v1;
service Sums {
  rpc Add(Request) returns (Answer);
  rpc Follow(stream Request) returns (stream Answer);
}
enum Kind { KIND_UNSPECIFIED = 0; KIND_ONE = 1; }
message Request {
  Kind kind = 1;
  repeated int64 shape = 2;
  optional float scale = 3;
  oneof storage { bytes data = 4; string handle = 5; }
  message Inner { uint32 count = 1; }
  Inner inner = 6;
  map<string, int32> sizes = 7;
}
message Answer { bytes output = 1; int32 spare = 2; }
"""


def api_of(text):
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "sample.proto").write_text(text, encoding="utf-8")
        return wire_check.describe(wire_check.compile_protos(pathlib.Path(folder)))


def changed(*replacements):
    text = BASE
    for old, new in replacements:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return wire_check.breaks(api_of(BASE), api_of(text))


class Incompatible(unittest.TestCase):
    CASES = {
        "field removed": ("repeated int64 shape = 2;", ""),
        "field removed and reserved": ("repeated int64 shape = 2;", "reserved 2;"),
        "field renumbered": ("repeated int64 shape = 2;", "repeated int64 shape = 9;"),
        "field renamed": ("repeated int64 shape = 2;", "repeated int64 extent = 2;"),
        "field retyped": ("repeated int64 shape = 2;", "repeated int32 shape = 2;"),
        "field to another message": ("Inner inner = 6;", "Answer inner = 6;"),
        "label changed": ("repeated int64 shape = 2;", "int64 shape = 2;"),
        "presence dropped": ("optional float scale = 3;", "float scale = 3;"),
        "moved out of its oneof": ("string handle = 5; }", "} string handle = 5;"),
        "map value retyped": ("map<string, int32> sizes", "map<string, int64> sizes"),
        "nested field removed": ("uint32 count = 1;", ""),
        "enum value removed": ("KIND_ONE = 1;", ""),
        "enum value renumbered": ("KIND_ONE = 1;", "KIND_ONE = 2;"),
        "enum value renamed": ("KIND_ONE = 1;", "KIND_FIRST = 1;"),
        "method removed": ("rpc Add(Request) returns (Answer);", ""),
        "method renamed": ("rpc Add(", "rpc Plus("),
        "method retyped": ("rpc Add(Request) returns (Answer);", "rpc Add(Request) returns (Request);"),
        "streaming dropped": ("rpc Follow(stream Request)", "rpc Follow(Request)"),
        "package renamed": ("package sample.v1;", "package sample.v2;"),
    }

    def test_each_change_is_caught(self):
        for name, replacement in self.CASES.items():
            with self.subTest(name):
                self.assertNotEqual(changed(replacement), [])

    def test_a_removed_message_is_caught(self):
        found = changed(
            ("message Answer { bytes output = 1; int32 spare = 2; }", ""),
            ("rpc Add(Request) returns (Answer);", "rpc Add(Request) returns (Request);"),
            ("returns (stream Answer)", "returns (stream Request)"),
        )
        self.assertIn("sample.v1.Answer: gone", found)

    def test_the_message_and_field_are_named(self):
        (sentence,) = changed(("int32 spare = 2;", "int64 spare = 2;"))
        self.assertIn("sample.v1.Answer: field 2", sentence)


class Compatible(unittest.TestCase):
    CASES = {
        "nothing": ("int32 spare = 2;", "int32 spare = 2;"),
        "a comment": ("int32 spare = 2;", "/* rarely */ int32 spare = 2;"),
        "a field": ("int32 spare = 2;", "int32 spare = 2; string note = 3;"),
        "a member of a oneof": ("string handle = 5;", "string handle = 5; uint64 id = 8;"),
        "an enum value": ("KIND_ONE = 1;", "KIND_ONE = 1; KIND_TWO = 2;"),
        "a method": ("rpc Add(", "rpc Scale(Request) returns (Answer); rpc Add("),
        "a message": ("message Answer", "message Extra {} message Answer"),
    }

    def test_each_addition_passes(self):
        for name, replacement in self.CASES.items():
            with self.subTest(name):
                self.assertEqual(changed(replacement), [])


class CommandLine(unittest.TestCase):
    def test_update_then_compare_then_break(self):
        with tempfile.TemporaryDirectory() as folder:
            proto, baseline = pathlib.Path(folder, "a.proto"), pathlib.Path(folder, "baseline.json")
            proto.write_text(BASE, encoding="utf-8")
            self.assertEqual(wire_check.main([folder, str(baseline)]), 2, "no baseline yet")
            self.assertEqual(wire_check.main([folder, str(baseline), "--update"]), 0)
            self.assertEqual(wire_check.main([folder, str(baseline)]), 0)
            proto.write_text(BASE.replace("int32 spare = 2;", ""), encoding="utf-8")
            self.assertEqual(wire_check.main([folder, str(baseline)]), 1)

    def test_a_proto_that_does_not_compile_is_an_error(self):
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "a.proto").write_text("message", encoding="utf-8")
            self.assertEqual(wire_check.main([folder, str(pathlib.Path(folder, "b.json"))]), 2)


if __name__ == "__main__":
    unittest.main()
