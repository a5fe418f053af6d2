"""A real Triton server on loopback, models for it, and clients: what the tests of servers share.

The server is that of the package nvidia-pytriton. It is started as its own program, with the backend of this build.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy
import onnx.parser
import tritonclient.grpc
import tritonclient.http

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("TESSERA_BUILD", ROOT / "build"))
COMMAND = BUILD / "bin" / "tessera"
BACKENDS = BUILD / "lib" / "triton"
START_SECONDS = 120
_cache = tempfile.TemporaryDirectory()
os.environ.setdefault("TESSERA_CACHE_DIR", _cache.name)


def save(graph: str, path: Path) -> Path:
    """A file of the graph, such as "(float[n] x) => (float[n] y) { y = Relu(x) }"."""
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 21]> g {graph}')
    for io in (*model.graph.input, *model.graph.output):
        io.type.tensor_type.shape.SetInParent()  # "float[]" is a scalar
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(model, path)
    return path


def command(*arguments: object) -> subprocess.CompletedProcess[str]:
    """`tessera` with these arguments."""
    return subprocess.run([str(COMMAND), *map(str, arguments)], capture_output=True, text=True, check=False)


def repository(folder: Path, graphs: dict[str, str], *options: object) -> Path:
    """A repository that `tessera triton` made of these models."""
    for name, graph in graphs.items():
        done = command("triton", save(graph, folder / "models" / f"{name}.onnx"), "-o", folder / "repository", "--device", "cpu", *options)
        if done.returncode:
            raise RuntimeError(done.stderr)
    return folder / "repository"


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on. Somebody may take one before the server does; its start fails then."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for s in sockets:
            s.bind(("127.0.0.1", 0))
        return [s.getsockname()[1] for s in sockets]
    finally:
        for s in sockets:
            s.close()


def program() -> Path:
    spec = find_spec("pytriton")
    assert spec and spec.submodule_search_locations
    return Path(spec.submodule_search_locations[0]) / "tritonserver" / "bin" / "tritonserver"


class Server:
    """A running tritonserver; a context manager that ends it."""

    def __init__(self, models: Path, *options: str, backends: Path = BACKENDS) -> None:
        self.http_port, self.grpc_port = free_ports(2)
        self._clients: list[Any] = []
        self._log = tempfile.TemporaryFile("a+")  # the server appends, wherever this process reads
        environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "LD_PRELOAD")}
        self.process = subprocess.Popen(
            [
                str(program()), f"--model-repository={models}", f"--backend-directory={backends}", "--http-address=127.0.0.1",
                f"--http-port={self.http_port}", "--grpc-address=127.0.0.1", f"--grpc-port={self.grpc_port}", "--allow-metrics=false",
                "--exit-on-error=false", "--exit-timeout-secs=2", *options,
            ],
            stdout=self._log, stderr=subprocess.STDOUT, env=environment,
        )  # fmt: skip

    def __enter__(self) -> Server:
        try:
            self.wait_ready()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for client in self._clients:  # the server waits until their connections are closed
            client.close()
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.kill()
                raise
        self._log.close()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def log(self) -> str:
        self._log.seek(0)
        return self._log.read()

    def wait_ready(self) -> None:
        client = self.http()
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end:
            if self.process.poll() is not None:
                raise RuntimeError(f"the server ended with {self.process.returncode}:\n{self.log()}")
            try:
                if client.is_server_live():
                    return
            except OSError:
                pass
            time.sleep(0.05)
        raise RuntimeError(f"the server is not there after {START_SECONDS} s:\n{self.log()}")

    def http(self) -> Any:
        return self._opened(tritonclient.http.InferenceServerClient(f"127.0.0.1:{self.http_port}", network_timeout=60, connection_timeout=60))

    def grpc(self) -> Any:
        return self._opened(tritonclient.grpc.InferenceServerClient(f"127.0.0.1:{self.grpc_port}"))

    def _opened(self, client: Any) -> Any:
        self._clients.append(client)
        return client

    def resident(self) -> int:
        """Bytes of the server's in memory."""
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")


TYPES = {numpy.dtype(numpy.float32): "FP32", numpy.dtype(numpy.float16): "FP16", numpy.dtype(numpy.float64): "FP64", numpy.dtype(bool): "BOOL",
         numpy.dtype(object): "BYTES"}  # fmt: skip


def type_name(array: numpy.ndarray) -> str:
    return TYPES.get(array.dtype) or array.dtype.name.upper()  # INT32, UINT8


def infer(client: Any, model: str, inputs: dict[str, numpy.ndarray], outputs: Sequence[str] = ()) -> Any:
    """One request; the result, of which as_numpy(name) is an output. Works with clients of both protocols."""
    api = tritonclient.grpc if isinstance(client, tritonclient.grpc.InferenceServerClient) else tritonclient.http
    given = []
    for name, array in inputs.items():
        one = api.InferInput(name, list(array.shape), type_name(array))
        one.set_data_from_numpy(array)
        given.append(one)
    return client.infer(model, given, outputs=[api.InferRequestedOutput(o) for o in outputs] or None)
