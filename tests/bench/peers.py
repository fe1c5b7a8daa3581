#!/usr/bin/env python3
"""The same attention on other libraries beside ours, on one thread each, as ratios.

usage: peers.py --bench BINARY [--rounds N]

Takes whatever of PyTorch (scaled_dot_product_attention) and ONNX Runtime (MultiHeadAttention) this
Python can import; always exits 0 when our own benchmark ran. All take turns for several rounds and
the best of each counts, since machines are shared. Unit: useful GFLOP/s, 4 * heads * length^2 *
head_dim, halved where causal.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

HEADS = 12
CASES = {
    "f32_d64_n128": (128, 64, False),
    "f32_d64_n512": (512, 64, False),
    "f32_d64_n2048": (2048, 64, False),
    "f32_d128_n512": (512, 128, False),
    "causal_f32_d64_n512": (512, 64, True),
    "causal_f32_d64_n2048": (2048, 64, True),
}


def useful_flops(length, dim, causal):
    return 4 * HEADS * length * length * dim / (2 if causal else 1)


def best_seconds(run, budget=0.5):
    """The least time of `run` within about `budget` seconds."""
    run()
    best = float("inf")
    end = time.perf_counter() + budget
    while time.perf_counter() < end:
        begin = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - begin)
    return best


def ours(binary):
    """GFLOP/s of each case by our own benchmark."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "core.json")
        names = "|".join(["fma_peak", *CASES])
        subprocess.run(
            [binary, "--no-workloads", "--json", path, f"--benchmark_filter=^({names})(/|$)"],
            check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        with open(path, encoding="utf-8") as file:
            figures = {entry["name"]: entry["value"] for entry in json.load(file)}
    return {name: figures[name] * figures["fma_peak_gflops"] for name in CASES}


def torch_runner():
    import torch
    torch.set_num_threads(1)

    def make(length, dim, causal):
        query, key, value = (torch.randn(1, HEADS, length, dim) for _ in range(3))
        attention = torch.nn.functional.scaled_dot_product_attention

        def run():
            with torch.inference_mode():
                attention(query, key, value, is_causal=causal)
        return run
    return f"PyTorch {torch.__version__}", make


def onnxruntime_runner():
    import numpy
    import onnx
    import onnxruntime
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1

    def make(length, dim, causal):
        if causal:
            return None  # the operator takes no such option
        shape = [1, length, HEADS * dim]
        inputs = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
                  for name in ("query", "key", "value")]
        output = onnx.helper.make_tensor_value_info("output", onnx.TensorProto.FLOAT, shape)
        node = onnx.helper.make_node("MultiHeadAttention", ["query", "key", "value"], ["output"],
                                     domain="com.microsoft", num_heads=HEADS)
        graph = onnx.helper.make_graph([node], "attention", inputs, [output])
        opsets = [onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid("com.microsoft", 1)]
        model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8)
        session = onnxruntime.InferenceSession(model.SerializeToString(), options,
                                               providers=["CPUExecutionProvider"])
        feed = {info.name: numpy.random.default_rng(1).standard_normal(shape, numpy.float32)
                for info in inputs}
        return lambda: session.run(None, feed)
    return f"ONNX Runtime {onnxruntime.__version__}", make


def importable_peers():
    peers = {}
    for runner in (torch_runner, onnxruntime_runner):
        try:
            name, make = runner()
            peers[name] = make
        except ImportError as error:
            print(f"left out: {error}")
    return peers


def measure(binary, rounds):
    peers = importable_peers()
    best = {}
    for _ in range(rounds):
        for name, rate in ours(binary).items():
            best[name, "attend"] = max(best.get((name, "attend"), 0), rate)
        for name, (length, dim, causal) in CASES.items():
            for peer, make in peers.items():
                run = make(length, dim, causal)
                if run is None:
                    continue
                rate = useful_flops(length, dim, causal) / best_seconds(run) / 1e9
                best[name, peer] = max(best.get((name, peer), 0), rate)
    return list(peers), best


def print_table(peers, best):
    print(f"{'name':24}{'attend':>10}" + "".join(f"{peer:>24}{'ratio':>8}" for peer in peers))
    for name in CASES:
        line = f"{name:24}{best[name, 'attend']:10.1f}"
        for peer in peers:
            if (name, peer) in best:
                ratio = best[name, "attend"] / best[name, peer]
                line += f"{best[name, peer]:24.1f}{ratio:8.2f}"
            else:
                line += f"{'-':>24}{'-':>8}"
        print(line)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bench", required=True, help="our attend-bench")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    peers, best = measure(args.bench, args.rounds)
    print_table(peers, best)
    return 0


if __name__ == "__main__":
    sys.exit(main())
