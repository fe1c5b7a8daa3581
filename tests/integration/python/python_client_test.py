#!/usr/bin/env python3
"""The server as a Python program meets it: stubs from protoc, numpy arrays, standard services.

    python_client_test.py SERVER_BINARY PROTO_ROOT
"""

import pathlib
import sys
import tempfile
import unittest
import urllib.request

import grpc
import numpy as np
from google.protobuf import descriptor_pb2

import harness

SERVER_BINARY, PROTO_ROOT = sys.argv[1], pathlib.Path(sys.argv[2])
_STUBS = tempfile.TemporaryDirectory(prefix="attend-stubs-")
harness.make_stubs(PROTO_ROOT, pathlib.Path(_STUBS.name))

# pylint: disable=wrong-import-position
import health_pb2
import health_pb2_grpc
import reflection_pb2
import reflection_pb2_grpc
from attend.v1 import attention_pb2, attention_pb2_grpc, error_pb2, tensor_pb2


def tensor(array):
    """A float32 array as a message."""
    return tensor_pb2.Tensor(dtype=tensor_pb2.DATA_TYPE_FLOAT32, shape=array.shape,
                             data=array.astype("<f4").tobytes())


def attend(channel, query, key, value, **fields):
    """The dozen lines that a caller writes."""
    stub = attention_pb2_grpc.AttentionServiceStub(channel)
    request = attention_pb2.AttendRequest(query=tensor(query), key=tensor(key), value=tensor(value),
                                          **fields)
    output = stub.Attend(request, timeout=harness.PATIENCE_SECONDS).output
    return np.frombuffer(output.data, "<f4").reshape(output.shape)


def softmax_attention(query, key, value, causal=False):
    """The same in float64."""
    query, key, value = (array.astype(np.float64) for array in (query, key, value))
    group = query.shape[1] // key.shape[1]
    key, value = key.repeat(group, axis=1), value.repeat(group, axis=1)
    scores = query @ key.swapaxes(2, 3) / np.sqrt(query.shape[3])
    if causal:
        scores[..., np.triu(np.ones(scores.shape[2:], bool), 1)] = -np.inf
    weights = np.exp(scores - scores.max(axis=3, keepdims=True))
    return weights / weights.sum(axis=3, keepdims=True) @ value


class PythonClientTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.server = harness.Server(SERVER_BINARY)

    @classmethod
    def tearDownClass(cls):
        log = cls.server.log()
        assert cls.server.stop() == 0, log

    def setUp(self):
        self.channel = grpc.insecure_channel(self.server.target,
                                             [("grpc.max_receive_message_length", -1)])
        self.addCleanup(self.channel.close)

    def check(self, channel, query_len, kv_len, causal):
        random = np.random.default_rng(7)
        query = random.standard_normal((2, 6, query_len, 16), np.float32)
        key = random.standard_normal((2, 3, kv_len, 16), np.float32)
        value = random.standard_normal((2, 3, kv_len, 24), np.float32)
        options = attention_pb2.AttentionOptions(causal=causal)
        output = attend(channel, query, key, value, options=options)
        np.testing.assert_allclose(output, softmax_attention(query, key, value, causal), rtol=0,
                                   atol=1e-5)

    def test_answers_equal_numpy(self):
        for causal in (False, True):
            for query_len, kv_len in ((1, 1), (5, 9), (130, 200)):
                self.check(self.channel, query_len, kv_len, causal)

    def test_answers_over_a_unix_socket(self):
        with grpc.insecure_channel(self.server.unix_target) as channel:
            self.check(channel, 5, 9, True)

    def test_messages_of_more_than_4_mib(self):
        self.check(self.channel, 8000, 64, False)

    def test_stream(self):
        random = np.random.default_rng(8)
        inputs = {i: random.standard_normal((3, 1, 2, 1 + i, 8), np.float32) for i in range(20)}
        requests = [attention_pb2.AttendStreamRequest(id=i, attend=attention_pb2.AttendRequest(
            query=tensor(query), key=tensor(key), value=tensor(value)))
                    for i, (query, key, value) in inputs.items()]
        stub = attention_pb2_grpc.AttentionServiceStub(self.channel)
        for answer in stub.AttendStream(iter(requests), timeout=harness.PATIENCE_SECONDS):
            output = answer.response.output
            np.testing.assert_allclose(np.frombuffer(output.data, "<f4").reshape(output.shape),
                                       softmax_attention(*inputs.pop(answer.id)), rtol=0, atol=1e-5)
        self.assertFalse(inputs)

    def test_error_names_the_field(self):
        array = np.ones((1, 1, 1, 4), np.float32)
        with self.assertRaises(grpc.RpcError) as raised:
            attend(self.channel, array, np.ones((1, 1, 1, 5), np.float32), array)
        self.assertEqual(raised.exception.code(), grpc.StatusCode.INVALID_ARGUMENT)
        trailers = dict(raised.exception.trailing_metadata())
        error = error_pb2.Error.FromString(trailers["grpc-status-details-bin"])
        bad_request = error_pb2.BadRequest.FromString(error.details[0].value)
        self.assertEqual(error.details[0].type_url, "type.googleapis.com/google.rpc.BadRequest")
        self.assertEqual(bad_request.field_violations[0].field, "key.shape[3]")

    def test_server_info(self):
        stub = attention_pb2_grpc.AttentionServiceStub(self.channel)
        info = stub.GetServerInfo(attention_pb2.GetServerInfoRequest())
        self.assertIn("causal", info.options)
        self.assertEqual(info.limits.max_message_bytes, 256 << 20)

    def test_health(self):
        stub = health_pb2_grpc.HealthStub(self.channel)
        for service in ("", "attend.v1.AttentionService"):
            response = stub.Check(health_pb2.HealthCheckRequest(service=service))
            self.assertEqual(response.status, health_pb2.HealthCheckResponse.SERVING)
        with self.assertRaises(grpc.RpcError) as raised:
            stub.Check(health_pb2.HealthCheckRequest(service="nothing"))
        self.assertEqual(raised.exception.code(), grpc.StatusCode.NOT_FOUND)

    def reflect(self, **request):
        stub = reflection_pb2_grpc.ServerReflectionStub(self.channel)
        requests = iter([reflection_pb2.ServerReflectionRequest(**request)])
        return next(stub.ServerReflectionInfo(requests))

    def described_files(self, symbol):
        response = self.reflect(file_containing_symbol=symbol)
        self.assertEqual(response.WhichOneof("message_response"), "file_descriptor_response",
                         response)
        return [descriptor_pb2.FileDescriptorProto.FromString(file)
                for file in response.file_descriptor_response.file_descriptor_proto]

    def test_reflection_lists_the_services(self):
        response = self.reflect(list_services="*")
        names = {service.name for service in response.list_services_response.service}
        self.assertLessEqual({"attend.v1.AttentionService", "grpc.health.v1.Health",
                              "grpc.reflection.v1alpha.ServerReflection"}, names)

    def test_reflection_describes_the_service(self):
        files = {file.name: file for file in self.described_files("attend.v1.AttentionService")}
        described = files["attend/v1/attention.proto"]
        expected = descriptor_pb2.FileDescriptorProto()
        attention_pb2.DESCRIPTOR.CopyToProto(expected)
        self.assertEqual(described, expected)

    def test_reflection_describes_health(self):  # B60
        services = [service.name for file in self.described_files("grpc.health.v1.Health")
                    for service in file.service]
        self.assertIn("Health", services)

    def test_metrics_over_http(self):
        with urllib.request.urlopen(f"http://{self.server.admin}/metrics") as response:
            self.assertEqual(response.status, 200)
            self.assertIn("attend_requests_total", response.read().decode())


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
