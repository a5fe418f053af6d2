"""tessera.serve on a cluster of Ray's on this machine: right answers, batches, errors of one request, HTTP, autoscaling, a killed replica."""

from __future__ import annotations

import json
import math
import sys
import tempfile
import time
import unittest
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy
import ray
from ray import serve
from server import ROOT, free_ports, save

import tessera
import tessera.serve

sys.path.append(str(ROOT / "tests" / "torch"))
from shards import seeds  # noqa: E402

GRAPH = """(float[batch, n] x, float[batch, n] w) => (float[batch, n] y, float[batch] s)
    <int64[1] axis = {1}> { p = Mul(x, w)  y = Relu(p)  s = ReduceSum<keepdims = 0>(p, axis) }"""
REPLICAS = 2


def expected(x: numpy.ndarray, w: numpy.ndarray) -> tuple[numpy.ndarray, numpy.ndarray]:
    return numpy.maximum(x * w, 0), (x * w).sum(1)


folder = tempfile.TemporaryDirectory()
MODEL = Path(folder.name) / "model.onnx"
port = 0


def setUpModule() -> None:
    global port
    save(GRAPH, MODEL)
    (port,) = free_ports(1)
    # Ray starts a process for each CPU in advance. There may be fewer: replicas are processes of one thread.
    ray.init(address="local", num_cpus=REPLICAS, include_dashboard=False, log_to_driver=False, configure_logging=False)
    serve.start(http_options={"host": "127.0.0.1", "port": port})


def tearDownModule() -> None:
    serve.shutdown()
    ray.shutdown()
    folder.cleanup()


class Serve(unittest.TestCase):
    """Tests of one application. Its replicas are started once: that takes most of the time."""

    options: dict[str, Any]
    handle: Any

    @classmethod
    def setUpClass(cls) -> None:
        made = tessera.serve.deployment(MODEL, device="cpu", graceful_shutdown_wait_loop_s=0.1, **cls.options)
        cls.handle = serve.run(made, name="model", route_prefix="/model")

    @classmethod
    def tearDownClass(cls) -> None:
        serve.delete("model")

    def check(self, seed: int) -> None:
        draw = numpy.random.default_rng(seed)
        x, w = (draw.standard_normal((int(draw.integers(1, 5)), int(draw.integers(1, 4)) * 9)).astype(numpy.float32) for _ in range(2))
        w = numpy.resize(w, x.shape)
        y, s = self.handle.infer.remote(x, w=w).result(timeout_s=120)
        numpy.testing.assert_allclose(y, expected(x, w)[0], rtol=1e-5)
        numpy.testing.assert_allclose(s, expected(x, w)[1], rtol=1e-4, atol=1e-5)


class Replicas(Serve):
    options = {"max_batch": 8, "replicas": REPLICAS}

    def test_answers_and_errors_of_clients_at_once(self) -> None:
        def one(seed: int) -> None:
            if seed % 5:
                return self.check(seed)
            x = numpy.ones((2, 9), numpy.float32)
            with self.assertRaises(tessera.InputTypeError if seed % 2 else tessera.InputError):
                self.handle.infer.remote(x, w=x.astype(numpy.int32) if seed % 2 else x[:, :8]).result(timeout_s=120)

        with ThreadPoolExecutor(16) as clients:
            list(clients.map(one, range(seeds(200))))

    def test_http(self) -> None:
        def post(body: Any) -> Any:
            text = body if isinstance(body, bytes) else json.dumps(body).encode()
            request = urllib.request.Request(f"http://127.0.0.1:{port}/model", text, {"Content-Type": "application/json"})
            with urllib.request.urlopen(request, timeout=120) as answer:
                return json.load(answer)

        x = {"name": "x", "shape": [1, 3], "datatype": "FP32", "data": [1, 2, -3]}
        answer = post({"inputs": [x, {**x, "name": "w"}]})
        self.assertEqual([(o["name"], o["shape"], o["datatype"], o["data"]) for o in answer["outputs"]], [("y", [1, 3], "FP32", [1, 4, 9]), ("s", [1], "FP32", [14])])
        (y, _) = post({"inputs": [{**x, "data": [math.inf, math.nan, 1]}, {**x, "name": "w"}]})["outputs"]
        self.assertEqual(list(map(str, y["data"])), ["inf", "nan", "0.0"])
        for message, wrong in (
            ("the model's inputs are x, w", {"inputs": [x]}),
            ("input 'w': \"datatype\" is \"FP31\"", {"inputs": [x, {**x, "name": "w", "datatype": "FP31"}]}),
            ("input 'w': \"data\" has 3 elements", {"inputs": [x, {**x, "name": "w", "shape": [1, 4]}]}),
            ("input 'w': dimension 1 must be n", {"inputs": [x, {**x, "name": "w", "shape": [1, 2], "data": [1, 2]}]}),
            ("input 'x' is given twice", {"inputs": [x, x]}),
            ("no object with a list", []),
            ("nested too deeply", b"[" * 200000),
        ):
            with self.subTest(message=message), self.assertRaises(urllib.error.HTTPError) as caught:
                post(wrong)
            self.assertEqual(caught.exception.code, 400)
            self.assertIn(message, json.load(caught.exception)["error"])

    def test_killed(self) -> None:
        """Another one answers, and Ray starts a new one; only requests that were in the killed one are lost."""
        self.check(0)
        names = [a["name"] for a in ray.util.list_named_actors(all_namespaces=True) if "TesseraModel" in a["name"]]
        self.assertEqual(len(names), REPLICAS)
        ray.kill(ray.get_actor(names[0], namespace="serve"))
        lost = 0
        for seed in range(seeds(100)):
            try:
                self.check(seed)
            except ray.exceptions.RayError:
                lost += 1
        self.assertLessEqual(lost, 1)


class Autoscaling(Serve):
    """The model is compiled for the sizes of its calls, some of them in advance."""

    options = {
        "autoscaling": {"min_replicas": 1, "max_replicas": REPLICAS, "target_ongoing_requests": 1, "upscale_delay_s": 0.1, "look_back_period_s": 1.0},
        "policy": "exact", "max_variants": 12, "deterministic": True, "warm_up": {"batch": (1, 2, 4), "n": (9, 18, 27)},
    }  # fmt: skip

    def test_a_few(self) -> None:
        for seed in range(4):
            self.check(seed)

    def test_more_replicas_when_requests_wait(self) -> None:
        most, end = 1, time.monotonic() + 100
        with ThreadPoolExecutor(16) as clients:
            while most < 2 and time.monotonic() < end:
                list(clients.map(self.check, range(32)))
                most = max(most, serve.status().applications["model"].deployments["TesseraModel"].replica_states.get("RUNNING", 0))
        self.assertGreaterEqual(most, 2)


class WithoutServer(unittest.TestCase):
    def test_no_batch_dimension(self) -> None:
        square = save("(float[n, n] x) => (float[n, n] y) { y = Relu(x) }", Path(folder.name) / "square.onnx")
        self.assertIsNone(tessera.serve.batch_symbol(tessera.load(square, "cpu")))
        self.assertEqual(tessera.serve.batch_symbol(tessera.load(MODEL, "cpu")), "batch")
        with self.assertRaisesRegex(tessera.UsageError, "no batch dimension"):
            tessera.serve.Replica(str(square), {"device": "cpu"}, 4)
        with self.assertRaisesRegex(tessera.UsageError, "both"):
            tessera.serve.deployment(square, replicas=2, autoscaling={})

    def test_batches(self) -> None:
        """Requests of equal sizes are one call; where it fails, each is answered by itself."""
        replica = tessera.serve.Replica(str(MODEL), {"device": "cpu"}, 8)
        calls: list[int] = []
        one = replica.one

        def counted(request: dict[str, Any]) -> dict[str, Any]:
            calls.append(request["x"].shape[0])
            if (request["x"] == 7).any():
                raise ValueError("seven")
            return one(request)

        replica.one = counted  # type: ignore[method-assign]

        def request(rows: int, n: int, value: float = 1) -> dict[str, Any]:
            return {k: numpy.full((rows, n), value, numpy.float32) for k in "xw"}

        answers = replica.several([request(1, 3), request(2, 4), request(3, 3)])
        self.assertEqual(calls, [4, 2])
        self.assertEqual([a["s"].tolist() for a in answers], [[3], [4, 4], [3, 3, 3]])
        answers = replica.several([request(1, 3), request(1, 3, 7), request(1, 3, 2)])
        self.assertEqual([isinstance(a, ValueError) for a in answers], [False, True, False])
        self.assertEqual(answers[2]["s"].tolist(), [12])


if __name__ == "__main__":
    unittest.main()
