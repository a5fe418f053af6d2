#!/usr/bin/env python3
"""Hold a Triton server under load: clients that send requests of random sizes for some minutes, for each backend in turn.

    build/servers/bin/python3 tools/scripts/serve_load.py MODEL.onnx [--minutes 10] [--clients 16] [--rows 4] [--length 128]
        [--below INPUT=N] [--backends tessera,onnxruntime] [--instances 2] [--threads 1] [--max-batch 32] [--json FILE]

Prints latency (p50, p99, the worst) and requests a second, errors, the growth of the server's memory after the first tenth of the time, and
the load of the machine. Every hundredth answer is compared with ONNX Runtime's. Free sizes are random: up to --rows as dimension 0, up to
--length elsewhere, one for each symbol. Integers are 1, or random below N. Servers and clients come from `tools/setup --servers`. That server
has no backend for ONNX Runtime: "onnxruntime" is one in its Python backend, with the same batches, instances and threads, and the cost of
passing tensors through that backend's shared memory.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy
import onnxruntime

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "servers"))
import server  # noqa: E402

NUMPY = {"tensor(float)": "float32", "tensor(float16)": "float16", "tensor(int64)": "int64", "tensor(int32)": "int32", "tensor(bool)": "bool"}

PYTHON_MODEL = '''
import os, sys
sys.path.append(%r)  # the backend's interpreter knows no virtual environment
import numpy, onnxruntime
import triton_python_backend_utils as utils


class TritonPythonModel:
    """ONNX Runtime on the CPU; requests of equal sizes are one call, as in Tessera's backend."""

    def initialize(self, args):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = %d
        file = os.path.join(args["model_repository"], args["model_version"], "model.onnx")
        self.session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
        self.inputs = [i.name for i in self.session.get_inputs()]
        self.outputs = [o.name for o in self.session.get_outputs()]

    def execute(self, requests):
        groups, responses = {}, [None] * len(requests)
        for index, request in enumerate(requests):
            arrays = [utils.get_input_tensor_by_name(request, n).as_numpy() for n in self.inputs]
            groups.setdefault(tuple(a.shape[1:] for a in arrays), []).append((index, arrays))
        for members in groups.values():
            whole = [numpy.concatenate(parts) for parts in zip(*(arrays for _, arrays in members))]
            values = self.session.run(None, dict(zip(self.inputs, whole)))
            row = 0
            for index, arrays in members:
                end = row + len(arrays[0])
                responses[index] = utils.InferenceResponse([utils.Tensor(n, v[row:end]) for n, v in zip(self.outputs, values)])
                row = end
        return responses
'''


def repository(options: argparse.Namespace, backend: str, folder: Path) -> tuple[Path, Path]:
    """The repository for a backend, and the folder of its backends. Both have the configuration that `tessera triton` writes."""
    arguments = ["--name", "model", "--device", "cpu", "--instances", options.instances, "--threads", options.threads, "--max-batch", options.max_batch]
    done = server.command("triton", options.model, "-o", folder, *arguments)
    if done.returncode:
        sys.exit(done.stderr)
    if backend == "tessera":
        return folder, server.BACKENDS
    config = folder / "model" / "config.pbtxt"
    lines = config.read_text().replace('backend: "tessera"', 'backend: "python"').splitlines()
    config.write_text("\n".join(line for line in lines if not line.startswith("default_model_filename")))
    (folder / "model" / "1" / "model.py").write_text(PYTHON_MODEL % (str(Path(numpy.__file__).parents[1]), options.threads))
    triton = server.program().parents[1]
    python = folder.parent / f"{folder.name}-backends" / "python"
    python.mkdir(parents=True)
    for file in (*(triton / "backends" / "python").iterdir(), triton / "python_backend_stubs" / f"{sys.version_info[0]}.{sys.version_info[1]}" / "triton_python_backend_stub"):
        (python / file.name).symlink_to(file)
    return folder, python.parent


class Load:
    """Clients of one server."""

    def __init__(self, options: argparse.Namespace, session: onnxruntime.InferenceSession) -> None:
        self.options, self.session = options, session
        self.below = {name: int(n) for name, _, n in (b.partition("=") for b in options.below)}
        self.lock = threading.Lock()
        self.latencies: list[float] = []
        self.errors: list[str] = []
        self.compared = 0

    def inputs(self, draw: numpy.random.Generator) -> dict[str, numpy.ndarray]:
        sizes: dict[str, int] = {}
        out = {}
        for i in self.session.get_inputs():
            dims = []
            for at, d in enumerate(i.shape):
                if isinstance(d, int):
                    dims.append(d)
                    continue
                most = self.options.rows if at == 0 else self.options.length
                dims.append(sizes.setdefault(d, int(draw.integers(1, most + 1))))
            dtype = NUMPY[i.type]
            if dtype.startswith("float"):
                out[i.name] = draw.standard_normal(dims).astype(dtype)
            elif i.name in self.below:
                out[i.name] = draw.integers(0, self.below[i.name], dims).astype(dtype)
            else:
                out[i.name] = numpy.ones(dims, dtype)
        return out

    def client(self, at: server.Server, index: int, end: float) -> None:
        connection, draw, count = at.grpc(), numpy.random.default_rng(index), 0
        while time.monotonic() < end:
            inputs = self.inputs(draw)
            start = time.monotonic()
            try:
                result = server.infer(connection, "model", inputs)
            except Exception as e:
                with self.lock:
                    self.errors.append(str(e))
                continue
            took = time.monotonic() - start
            with self.lock:
                self.latencies.append(took)
            count += 1
            if count % 100 == 1:
                self.compare(inputs, result)

    def compare(self, inputs: dict[str, numpy.ndarray], result: Any) -> None:
        values = self.session.run(None, inputs)
        for output, value in zip(self.session.get_outputs(), values, strict=True):
            got = result.as_numpy(output.name)
            if not numpy.allclose(got.reshape(value.shape), value, rtol=1e-2, atol=1e-3):
                with self.lock:
                    self.errors.append(f"output {output.name} differs by {abs(got - value).max()}")
        with self.lock:
            self.compared += 1


def resident(pid: int) -> int:
    """Bytes in memory of a process and its children."""
    children = [int(c) for task in Path(f"/proc/{pid}/task").iterdir() for c in (task / "children").read_text().split()]
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") + sum(map(resident, children))


def measure(options: argparse.Namespace, backend: str, folder: Path) -> dict[str, Any]:
    models, backends = repository(options, backend, folder / backend)
    one = onnxruntime.SessionOptions()
    one.intra_op_num_threads = 1
    load = Load(options, onnxruntime.InferenceSession(options.model, one, providers=["CPUExecutionProvider"]))
    with server.Server(models, "--log-info=false", backends=backends) as at:
        if not at.http().is_model_ready("model"):
            sys.exit(f"the model is not served:\n{at.log()}")
        begin = time.monotonic()
        end = begin + 60 * options.minutes
        threads = [threading.Thread(target=load.client, args=(at, i, end), daemon=True) for i in range(options.clients)]
        for t in threads:
            t.start()
        time.sleep(6 * options.minutes)
        early = resident(at.process.pid)
        for t in threads:
            t.join()
        seconds = time.monotonic() - begin
        late = resident(at.process.pid)
    milliseconds = 1000 * numpy.array(load.latencies)
    return {
        "backend": backend, "minutes": options.minutes, "clients": options.clients, "requests": len(milliseconds), "errors": len(load.errors),
        "first_error": load.errors[0] if load.errors else None, "compared": load.compared, "per_second": round(len(milliseconds) / seconds, 1),
        "p50_ms": round(float(numpy.percentile(milliseconds, 50)), 2), "p99_ms": round(float(numpy.percentile(milliseconds, 99)), 2),
        "max_ms": round(float(milliseconds.max()), 1), "memory_mb": round(late / 1e6), "growth_mb": round((late - early) / 1e6, 1), "load": os.getloadavg(),
        "cores": len(os.sched_getaffinity(0)),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--rows", type=int, default=4)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--below", action="append", default=[], metavar="INPUT=N")
    parser.add_argument("--backends", default="tessera,onnxruntime")
    parser.add_argument("--instances", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--max-batch", type=int, default=32)
    parser.add_argument("--json")
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for backend in options.backends.split(","):
            rows.append(measure(options, backend, Path(folder)))
            print(json.dumps(rows[-1]), flush=True)
    if options.json:
        Path(options.json).write_text(json.dumps(rows, indent=1) + "\n")
    sys.exit(any(r["errors"] for r in rows))


if __name__ == "__main__":
    main()
