#!/usr/bin/env python3
"""Hold a real server under load: clients that send requests of random sizes for some minutes, for each backend in turn.

    build/servers/bin/python3 tools/scripts/serve_load.py MODEL.onnx [--server triton|ray] [--minutes 10] [--clients 16] [--rows 4]
        [--length 128] [--below INPUT=N] [--backends tessera,onnxruntime] [--instances 2] [--threads 1] [--max-batch 32] [--reloads 0]
        [--kills 0] [--json FILE]

Prints latency (p50, p99, the worst) and requests a second, errors, requests lost, the growth of the server's memory after the first tenth
of the time, and the load of the machine. Every hundredth answer is compared with ONNX Runtime's. Free sizes are random: up to --rows as
dimension 0, up to --length elsewhere, one for each symbol. Integers are 1, or random below N.

--reloads: how often the model is loaded anew meanwhile; no request may fail then. --kills: how often an instance is killed: Triton's server,
which is started again, or one replica of Ray's, which Ray replaces. What was under way in it is lost; another failure is an error, and so is
a client that loses more than one request by a kill. Latency includes both.

Servers and clients come from `tools/setup --servers`. Triton's has no backend for ONNX Runtime there: "onnxruntime" is one in its Python
backend, with the same batches, instances and threads, and the cost of passing tensors through that backend's shared memory. In Ray Serve it
is a deployment with the same batches (tessera.serve's replica with another model). Exit code 1 after an error.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import onnxruntime

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "servers"), str(ROOT / "build" / "python")]
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


Arrays = dict[str, numpy.ndarray]


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


class Triton:
    """A Triton server with the model."""

    def __init__(self, options: argparse.Namespace, backend: str, folder: Path) -> None:
        models, backends = repository(options, backend, folder / backend)
        self._model = models / "model"
        self._start = lambda: server.Server(models, "--log-info=false", "--model-control-mode=explicit", "--load-model=model", backends=backends)
        self._at = self._start()
        self._at.wait_ready()
        if not self._at.http().is_model_ready("model"):
            sys.exit(f"the model is not served:\n{self._at.log()}")

    def client(self) -> Callable[[Arrays], Arrays]:
        """A connection: what sends a request."""
        connection = self._at.grpc()

        def infer(inputs: Arrays) -> Arrays:
            result = server.infer(connection, "model", inputs)
            return {o.name: result.as_numpy(o.name) for o in result.get_response().outputs}

        return infer

    def reload(self) -> None:
        for file in self._model.rglob("*"):
            os.utime(file)  # what is older than the loaded model is not loaded again
        self._at.http().load_model("model")

    def kill(self) -> None:
        self._at.kill()
        self._at = self._start()
        self._at.wait_ready()

    def processes(self) -> list[int]:
        return [self._at.process.pid]

    def close(self) -> None:
        self._at.__exit__()


class OnnxRuntimeModel:
    """The interface of a model that tessera.serve's replica needs, on ONNX Runtime."""

    class _Value:
        def __init__(self, value: Any) -> None:
            self.name, self.shape = value.name, tuple(value.shape)

    def __init__(self, path: str, threads: int) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        self._session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        self.inputs = [self._Value(v) for v in self._session.get_inputs()]
        self.outputs = [self._Value(v) for v in self._session.get_outputs()]

    def __call__(self, *arrays: numpy.ndarray) -> tuple[numpy.ndarray, ...]:
        return tuple(self._session.run(None, {i.name: a for i, a in zip(self.inputs, arrays, strict=True)}))


class Ray:
    """A local cluster of Ray's with the model as a deployment."""

    def __init__(self, options: argparse.Namespace, backend: str, folder: Path) -> None:
        import ray
        import tessera.serve
        from ray import serve

        self._ray, self._serve = ray, serve
        os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT / "build" / "python"), str(ROOT / "tests" / "servers"), str(Path(__file__).parent)])
        # More CPUs than there may be: replicas are processes of --threads threads.
        ray.init(address="local", num_cpus=64, include_dashboard=False, log_to_driver=False, configure_logging=False)
        (port,) = server.free_ports(1)
        serve.start(http_options={"host": "127.0.0.1", "port": port})
        path = os.path.abspath(options.model)
        names = [o.name for o in onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).get_outputs()]

        class Peer(tessera.serve._class_of(serve, options.max_batch, 0.002)):  # type: ignore[misc]
            def __init__(self, path: str, threads: int) -> None:
                self._model = OnnxRuntimeModel(path, threads)  # type: ignore[assignment]
                self._outputs = tuple(o.name for o in self._model.outputs)

        def run() -> Any:
            made = tessera.serve.deployment(path, device="cpu", threads=options.threads, max_batch=options.max_batch, replicas=options.instances)
            if backend == "onnxruntime":
                settings = {"num_replicas": options.instances, "max_ongoing_requests": 2 * options.max_batch, "ray_actor_options": {"num_cpus": options.threads}}
                made = serve.deployment(name="TesseraModel", **settings)(Peer).bind(path, options.threads)
            return serve.run(made, name="model", route_prefix="/model")

        self._run, self._names = run, names
        self._handle = run()

    def client(self) -> Callable[[Arrays], Arrays]:
        def infer(inputs: Arrays) -> Arrays:
            values = self._handle.infer.remote(**inputs).result(timeout_s=120)
            return dict(zip(self._names, values if isinstance(values, tuple) else (values,), strict=True))

        return infer

    def reload(self) -> None:
        self._run()

    def _replicas(self) -> list[str]:
        return [a["name"] for a in self._ray.util.list_named_actors(all_namespaces=True) if "TesseraModel" in a["name"]]

    def kill(self) -> None:
        self._ray.kill(self._ray.get_actor(self._replicas()[0], namespace="serve"))

    def processes(self) -> list[int]:
        """The process ids of the replicas."""
        out = []
        for process in Path("/proc").glob("[0-9]*"):
            try:
                if b"ServeReplica" in (process / "cmdline").read_bytes():
                    out.append(int(process.name))
            except OSError:
                pass
        return out

    def close(self) -> None:
        self._serve.shutdown()
        self._ray.shutdown()


class Load:
    """Clients of one server, and what happens to it meanwhile."""

    def __init__(self, options: argparse.Namespace, at: Triton | Ray, session: onnxruntime.InferenceSession) -> None:
        self.options, self.at, self.session = options, at, session
        self.below = {name: int(n) for name, _, n in (b.partition("=") for b in options.below)}
        self.lock = threading.Lock()
        self.latencies: list[float] = []
        self.errors: list[str] = []
        self.lost = self.compared = self.kills = self.reloads = 0
        self.back = threading.Event()  # no instance is being killed
        self.back.set()

    def inputs(self, draw: numpy.random.Generator) -> Arrays:
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

    def client(self, index: int, end: float) -> None:
        infer, draw, count = self.at.client(), numpy.random.default_rng(index), 0
        losses: dict[int, int] = {}  # by the kill that may have caused them
        while time.monotonic() < end:
            inputs = self.inputs(draw)
            start, kill = time.monotonic(), self.kills
            try:
                result = infer(inputs)
            except Exception as e:
                self.failed(e, losses, kill)
                self.back.wait()
                infer = self.at.client()
                continue
            took = time.monotonic() - start
            with self.lock:
                self.latencies.append(took)
            count += 1
            if count % 100 == 1:
                self.compare(inputs, result)

    def failed(self, error: Exception, losses: dict[int, int], kill: int) -> None:
        """A request that was sent after `kill` kills: it is lost where another came meanwhile, and otherwise an error."""
        with self.lock:
            losses[self.kills] = losses.get(self.kills, 0) + 1
            if self.kills > kill and losses[self.kills] == 1:
                self.lost += 1
            else:
                self.errors.append(f"{type(error).__name__}: {error}"[:400])

    def happenings(self, begin: float, end: float) -> None:
        """Reloads and kills, evenly spread over the time."""
        o = self.options
        times = [(begin + (end - begin) * (i + 1) / (n + 1), what) for what, n in (("reload", o.reloads), ("kill", o.kills)) for i in range(n)]
        for when, what in sorted(times):
            time.sleep(max(0.0, when - time.monotonic()))
            try:
                if what == "reload":
                    self.at.reload()
                    self.reloads += 1
                    continue
                self.back.clear()
                with self.lock:
                    self.kills += 1
                self.at.kill()
            except Exception as e:
                with self.lock:
                    self.errors.append(f"{what}: {type(e).__name__}: {e}"[:400])
            finally:
                self.back.set()

    def compare(self, inputs: Arrays, result: Arrays) -> None:
        values = self.session.run(None, inputs)
        for output, value in zip(self.session.get_outputs(), values, strict=True):
            got = result[output.name]
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
    one = onnxruntime.SessionOptions()
    one.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(options.model, one, providers=["CPUExecutionProvider"])
    at = {"triton": Triton, "ray": Ray}[options.server](options, backend, folder)
    try:
        load = Load(options, at, session)
        begin = time.monotonic()
        end = begin + 60 * options.minutes
        threads = [threading.Thread(target=load.client, args=(i, end), daemon=True) for i in range(options.clients)]
        threads.append(threading.Thread(target=load.happenings, args=(begin, end), daemon=True))
        for t in threads:
            t.start()
        time.sleep(6 * options.minutes)
        early = sum(map(resident, at.processes()))
        for t in threads:
            t.join()
        seconds = time.monotonic() - begin
        late = sum(map(resident, at.processes()))
    finally:
        at.close()
    milliseconds = 1000 * numpy.array(load.latencies)
    return {
        "server": options.server, "backend": backend, "minutes": options.minutes, "clients": options.clients, "requests": len(milliseconds),
        "errors": len(load.errors), "first_error": load.errors[0] if load.errors else None, "lost": load.lost, "reloads": load.reloads,
        "kills": load.kills, "compared": load.compared, "per_second": round(len(milliseconds) / seconds, 1),
        "p50_ms": round(float(numpy.percentile(milliseconds, 50)), 2), "p99_ms": round(float(numpy.percentile(milliseconds, 99)), 2),
        "max_ms": round(float(milliseconds.max()), 1), "memory_mb": round(late / 1e6), "growth_mb": round((late - early) / 1e6, 1), "load": os.getloadavg(),
        "cores": len(os.sched_getaffinity(0)),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--server", choices=("triton", "ray"), default="triton")
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--rows", type=int, default=4)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--below", action="append", default=[], metavar="INPUT=N")
    parser.add_argument("--backends", default="tessera,onnxruntime")
    parser.add_argument("--instances", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--max-batch", type=int, default=32)
    parser.add_argument("--reloads", type=int, default=0)
    parser.add_argument("--kills", type=int, default=0)
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
