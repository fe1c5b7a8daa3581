#!/usr/bin/env python3
"""Checks that the .proto files can still talk to yesterday's callers.

    wire_check.py PROTO_DIR BASELINE.json            compare, exit 1 if something broke
    wire_check.py PROTO_DIR BASELINE.json --update   write the baseline from the working tree

The baseline is the API as last agreed: every message with its fields by number, every enum with
its values by number, every service with its methods. Whatever it lists must still be there and
mean the same: removing, renumbering, renaming, retyping, and changing a label, a oneof or the
presence of a field all fail. Adding passes; run --update once the addition is agreed, so that it
is guarded too.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

from google.protobuf import descriptor_pb2

_FIELD = descriptor_pb2.FieldDescriptorProto


def compile_protos(proto_dir, protoc="protoc"):
    """The descriptors of every .proto below `proto_dir`. Raises RuntimeError with protoc's words."""
    protos = sorted(p.relative_to(proto_dir).as_posix() for p in proto_dir.rglob("*.proto"))
    if not protos:
        raise RuntimeError(f"no .proto files under {proto_dir}")
    with tempfile.NamedTemporaryFile(suffix=".pb") as out:
        run = subprocess.run(
            [protoc, f"--proto_path={proto_dir}", f"--descriptor_set_out={out.name}", *protos],
            capture_output=True,
            text=True,
            check=False,
        )
        if run.returncode != 0:
            raise RuntimeError(run.stderr.strip())
        return descriptor_pb2.FileDescriptorSet.FromString(pathlib.Path(out.name).read_bytes())


def describe_field(field, message):
    """One field as the baseline stores it, such as "repeated int64 shape" or
    "bytes data in oneof storage". Proto3's plain fields carry no label."""
    kind = _FIELD.Type.Name(field.type)[len("TYPE_") :].lower()
    words = [field.type_name.lstrip(".") or kind, field.name]
    if field.label != _FIELD.LABEL_OPTIONAL:
        words.insert(0, _FIELD.Label.Name(field.label)[len("LABEL_") :].lower())
    elif field.proto3_optional:
        words.insert(0, "optional")
    elif field.HasField("oneof_index"):
        words.append(f"in oneof {message.oneof_decl[field.oneof_index].name}")
    return " ".join(words)


def describe_messages(messages, scope, api):
    for message in messages:
        name = f"{scope}.{message.name}"
        api["messages"][name] = {
            str(field.number): describe_field(field, message)
            for field in sorted(message.field, key=lambda field: field.number)
        }
        describe_enums(message.enum_type, name, api)
        describe_messages(message.nested_type, name, api)


def describe_enums(enums, scope, api):
    for enum in enums:
        # Values by name: an alias gives one number several names.
        api["enums"][f"{scope}.{enum.name}"] = {value.name: value.number for value in enum.value}


def describe_method(method):
    def side(streams, type_name):
        return ("stream " if streams else "") + type_name.lstrip(".")

    request = side(method.client_streaming, method.input_type)
    response = side(method.server_streaming, method.output_type)
    return f"({request}) returns ({response})"


def describe(descriptors):
    """The whole API as plain data, as the baseline stores it."""
    api = {"messages": {}, "enums": {}, "services": {}}
    for file in descriptors.file:
        describe_messages(file.message_type, file.package, api)
        describe_enums(file.enum_type, file.package, api)
        for service in file.service:
            api["services"][f"{file.package}.{service.name}"] = {
                method.name: describe_method(method) for method in service.method
            }
    return api


def breaks(before, after):
    """What `after` no longer keeps of `before`: a list of sentences, empty if nothing broke."""
    found = []
    for kind, members in (("messages", "field"), ("enums", "value"), ("services", "method")):
        for name, old in before[kind].items():
            new = after[kind].get(name)
            if new is None:
                found.append(f"{name}: gone")
                continue
            for key, was in old.items():
                if key not in new:
                    found.append(f"{name}: {members} {key} ({was}) is gone")
                elif new[key] != was:
                    found.append(f"{name}: {members} {key} was {was}, is {new[key]}")
    return found


def main(argv):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("proto_dir", type=pathlib.Path)
    parser.add_argument("baseline", type=pathlib.Path)
    parser.add_argument("--update", action="store_true", help="write the baseline")
    parser.add_argument("--protoc", default="protoc")
    args = parser.parse_args(argv)
    try:
        api = describe(compile_protos(args.proto_dir, args.protoc))
        if args.update:
            args.baseline.write_text(json.dumps(api, indent=2) + "\n", encoding="utf-8")
            return 0
        before = json.loads(args.baseline.read_text(encoding="utf-8"))
    except (OSError, RuntimeError, ValueError) as error:
        print(f"wire_check: {error}", file=sys.stderr)
        return 2
    found = breaks(before, api)
    for sentence in found:
        print(sentence)
    print(f"wire_check: {len(before['messages'])} messages, {len(found)} incompatible changes")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
