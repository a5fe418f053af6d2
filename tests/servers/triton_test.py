"""The backend of serving/triton in a real Triton server: right answers, errors of one request, reload, a killed server."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy
from server import START_SECONDS, Server, command, infer, repository, save
from tritonclient.utils import InferenceServerException

CLIENTS = 16
SCORES = """(float[batch, n] x, float[batch, n] w) => (float[batch, n] y, float[batch] s)
    <int64[1] axis = {1}> { p = Mul(x, w)  y = Softmax<axis = 1>(p)  s = ReduceSum<keepdims = 0>(p, axis) }"""
MEANS = """(int64[batch, n] ids) => (float[batch, 4] y) <float[8, 4] table = {%s}, int64[1] axis = {1}>
    { rows = Gather(table, ids)  y = ReduceMean<keepdims = 0>(rows, axis) }""" % ", ".join(f"{i}.5" for i in range(32))  # fmt: skip
TABLE = (numpy.arange(32, dtype=numpy.float32) + 0.5).reshape(8, 4)


def scores(rows: int, n: int, draw: numpy.random.Generator) -> tuple[dict[str, numpy.ndarray], dict[str, numpy.ndarray]]:
    """Random inputs of SCORES, and what NumPy computes of them."""
    x, w = (draw.standard_normal((rows, n)).astype(numpy.float32) for _ in range(2))
    e = numpy.exp(x * w - (x * w).max(1, keepdims=True))
    return {"x": x, "w": w}, {"y": e / e.sum(1, keepdims=True), "s": (x * w).sum(1, keepdims=True)}


def means(rows: int, n: int, draw: numpy.random.Generator) -> tuple[dict[str, numpy.ndarray], dict[str, numpy.ndarray]]:
    ids = draw.integers(0, 8, (rows, n))
    return {"ids": ids}, {"y": TABLE[ids].mean(1)}


MODELS = {"scores": scores, "means": means}


def check(result: Any, expected: dict[str, numpy.ndarray]) -> None:
    for name, value in expected.items():
        numpy.testing.assert_allclose(result.as_numpy(name).reshape(value.shape), value, rtol=1e-4, atol=1e-5, err_msg=name)


def in_threads(count: int, body: Callable[[int], None]) -> None:
    """body(i) in a thread each; the first exception of any."""
    failed: list[BaseException] = []

    def run(index: int) -> None:
        try:
            body(index)
        except BaseException as e:
            failed.append(e)

    threads = [threading.Thread(target=run, args=(i,), daemon=True) for i in range(count)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if failed:
        raise failed[0]


class Triton(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    @contextmanager
    def load(self, server: Server, body: Callable[[Any, numpy.random.Generator], None]) -> Iterator[None]:
        """Clients that call body() again and again for as long as the context is open."""
        stop, failed = threading.Event(), []

        def run(index: int) -> None:
            client, draw = server.http(), numpy.random.default_rng(index)
            try:
                while not stop.is_set():
                    body(client, draw)
            except BaseException as e:
                failed.append(e)

        threads = [threading.Thread(target=run, args=(i,), daemon=True) for i in range(CLIENTS)]
        for t in threads:
            t.start()
        try:
            yield
        finally:
            stop.set()
            for t in threads:
                t.join()
        self.assertEqual(failed, [])

    def test_answers_of_clients_at_once(self) -> None:
        models = repository(self.folder, {"scores": SCORES, "means": MEANS}, "--instances", 2, "--max-batch", 16)
        with Server(models) as server:

            def body(index: int) -> None:
                client, draw = (server.http, server.grpc)[index % 2](), numpy.random.default_rng(index)
                for _ in range(25):
                    name = ("scores", "means")[draw.integers(2)]
                    inputs, expected = MODELS[name](int(draw.integers(1, 9)), int(draw.integers(1, 4)) * 17, draw)
                    check(infer(client, name, inputs), expected)

            in_threads(CLIENTS, body)
            # Requests were put together: fewer executions than rows.
            stats = server.http().get_inference_statistics()["model_stats"]
            for s in stats:
                self.assertLess(s["execution_count"], s["inference_stats"]["success"]["count"], s["name"])

    def test_a_part_of_the_outputs(self) -> None:
        models = repository(self.folder, {"scores": SCORES})
        with Server(models) as server:
            inputs, expected = scores(2, 5, numpy.random.default_rng(0))
            result = infer(server.http(), "scores", inputs, ["s"])
            numpy.testing.assert_allclose(result.as_numpy("s"), expected["s"], rtol=1e-5)
            self.assertIsNone(result.as_numpy("y"))

    def test_an_error_is_that_of_its_request(self) -> None:
        models = repository(self.folder, {"scores": SCORES})
        with Server(models) as server:

            def body(index: int) -> None:
                client, draw = server.http(), numpy.random.default_rng(index)
                for _ in range(20):
                    inputs, expected = scores(3, 5, draw)
                    if index % 2:
                        check(infer(client, "scores", inputs), expected)
                        continue
                    with self.assertRaises(InferenceServerException) as caught:
                        infer(client, "scores", {**inputs, "w": numpy.ones((3, 6), numpy.float32)})
                    self.assertIn("n", caught.exception.message())

            in_threads(CLIENTS, body)

    def test_one_wrong_string_of_a_batch(self) -> None:
        """Values decide what is wrong: requests of equal sizes are in one batch, and one of them fails."""
        graph = """(string[batch, n] x) => (string[batch, n] y) { y = StringConcat(x, x) }"""
        models = repository(self.folder, {"twice": graph}, "--instances", 1)
        config = models / "twice" / "config.pbtxt"
        config.write_text(config.read_text().replace("dynamic_batching {", "dynamic_batching {\n max_queue_delay_microseconds: 20000"))
        with Server(models) as server:

            def body(index: int) -> None:
                client = server.http()
                for k in range(10):
                    text = f"{index} {k} äöü".encode()
                    if index % 4 == 0:
                        text = b"\xff\xfe"  # no UTF-8
                    try:
                        result = infer(client, "twice", {"x": numpy.array([[text, b""]], object)})
                    except InferenceServerException:
                        self.assertEqual(index % 4, 0)
                    else:
                        self.assertEqual(result.as_numpy("y").tolist(), [[text + text, b""]])

            in_threads(CLIENTS, body)

    def test_every_element_type(self) -> None:
        types = {"float": "float32", "float16": "float16", "double": "float64", "bool": "bool", "int8": "int8", "int16": "int16", "int32": "int32",
                 "int64": "int64", "uint8": "uint8", "uint16": "uint16", "uint32": "uint32", "uint64": "uint64"}  # fmt: skip
        graphs = {t: f"({t}[batch, n] x) => ({t}[batch, n] y, {t}[batch, m] z) {{ y = Identity(x)  z = Concat<axis = 1>(x, x) }}" for t in types}
        models = repository(self.folder, graphs)
        with Server(models) as server:
            client = server.grpc()
            for name, numpy_name in types.items():
                x = numpy.array([[0, 1, 1], [1, 0, 1]], numpy_name)
                result = infer(client, name, {"x": x})
                numpy.testing.assert_array_equal(result.as_numpy("y"), x, name)
                numpy.testing.assert_array_equal(result.as_numpy("z"), numpy.concatenate((x, x), 1), name)
                empty = infer(client, name, {"x": x[:, :0]})
                self.assertEqual(empty.as_numpy("y").shape, (2, 0))

    def test_a_model_without_batches(self) -> None:
        graph = "(float[n, n] x, float[] f) => (float[n, n] y, float[] s) { y = Mul(x, f)  s = ReduceSum<keepdims = 0>(y) }"
        models = repository(self.folder, {"square": graph})
        with Server(models) as server:
            x = numpy.arange(9, dtype=numpy.float32).reshape(3, 3)
            result = infer(server.http(), "square", {"x": x, "f": numpy.array([2], numpy.float32)})
            numpy.testing.assert_array_equal(result.as_numpy("y"), 2 * x)
            self.assertEqual(result.as_numpy("s").tolist(), [72])

    def test_a_configuration_without_inputs(self) -> None:
        save(SCORES, self.folder / "r" / "scores" / "1" / "model.onnx")
        (self.folder / "r" / "scores" / "config.pbtxt").write_text('backend: "tessera"\ninstance_group { kind: KIND_CPU }\n')
        with Server(self.folder / "r") as server:
            config = server.http().get_model_config("scores")
            self.assertEqual((config["max_batch_size"], config["input"][1]["dims"], config["output"][1]["reshape"]), (32, [-1], {"shape": []}))
            inputs, expected = scores(2, 5, numpy.random.default_rng(0))
            check(infer(server.http(), "scores", inputs), expected)

    def test_configurations_that_are_not_the_models(self) -> None:
        models = repository(self.folder, {"scores": SCORES})
        config = models / "scores" / "config.pbtxt"
        good = config.read_text()
        for change, said in (
            (('name: "w"', 'name: "v"'), "'v', which the model does not have"),
            (("data_type: TYPE_FP32", "data_type: TYPE_INT8"), "TYPE_INT8 in the configuration"),
            (("dims: [-1]", "dims: [-1, 2]"), "3 dimensions in the configuration"),
            (('backend: "tessera"', 'backend: "tessera"\ndefault_model_filename: "other.onnx"'), "there is no model in"),
        ):
            config.write_text(good.replace(*change, 1))
            with Server(models) as server:
                self.assertFalse(server.http().is_model_ready("scores"))
                self.assertIn(said, server.log())

    def test_results_whose_sizes_are_data(self) -> None:
        graphs = {
            "expand": "(float[n, 2] x, int64[2] s) => (float[p, q] y) { y = Expand(x, s) }",
            "nonzero": "(float[n] x) => (int64[1, k] y) { y = NonZero(x) }",
            "compress": "(float[n] x, bool[n] c) => (float[k] y) { y = Compress<axis = 0>(x, c) }",
            "range": "(int64 n) => (int64[k] y) <int64 zero = {0}, int64 one = {1}> { y = Range(zero, n, one) }",
            "select": "(float[1, n, 4] b, float[1, 1, n] s, int64[1] m) => (int64[k, 3] y) { y = NonMaxSuppression(b, s, m) }",
            "loop": """(int64 trips, float[n, 2] x) => (float[m, 2] y) { y = Loop(trips, , x)
                <body = b (int64 i, bool c, float[k, 2] v) => (bool more, float[l, 2] w) { more = Identity(c)  w = Concat<axis = 0>(v, v) }> }""",
        }
        boxes = numpy.array([[[0, 0, 1, 1], [2, 2, 3, 3], [4, 4, 5, 5]]], "float32")
        with Server(repository(self.folder, graphs)) as server:
            client, draw = server.http(), numpy.random.default_rng(0)
            for _ in range(30):
                n, trips = int(draw.integers(1, 6)), int(draw.integers(1, 4))
                x, keep, one = draw.integers(0, 2, n).astype("float32"), draw.random(n) < 0.7, numpy.ones((1, 2), "float32")
                keep[0] = x[0] = 1  # something is left
                cases = {
                    "expand": ({"x": one, "s": numpy.array([n, 2])}, numpy.ones((n, 2))),
                    "nonzero": ({"x": x}, numpy.array(numpy.nonzero(x))),
                    "compress": ({"x": x, "c": keep}, x[keep]),
                    "range": ({"n": numpy.array([n])}, numpy.arange(n)),
                    "select": ({"b": boxes, "s": numpy.array([[[1, 3, 2]]], "float32"), "m": numpy.array([min(n, 3)])},
                               numpy.array([[0, 0, 1], [0, 0, 2], [0, 0, 0]])[:n]),
                    "loop": ({"trips": numpy.array([trips]), "x": one * n}, numpy.full((2**trips, 2), n)),
                }  # fmt: skip
                for name, (inputs, expected) in cases.items():
                    numpy.testing.assert_array_equal(infer(client, name, inputs).as_numpy("y"), expected, err_msg=name)

    def test_parameters_that_are_refused(self) -> None:
        outside = self.folder / "outside"
        outside.write_text("secret")
        models = repository(self.folder, {"relu": "(float[n] x) => (float[n] y) { y = Relu(x) }"})
        config = models / "relu" / "config.pbtxt"
        text = config.read_text()
        (models / "relu" / "link").symlink_to(outside)
        cases = {
            ("polcy", "exact"): "no parameter 'polcy'; it has device, threads",
            ("plan", str(outside)): "has to be a path inside of the model's folder",
            ("plan", "../../outside"): "has to be a path inside of the model's folder",
            ("plan", "link"): "not inside of the model's folder",
        }
        with Server(models, "--model-control-mode=explicit") as server:
            client = server.http()
            for (key, value), message in cases.items():
                config.write_text(text + f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}\n')
                with self.assertRaisesRegex(InferenceServerException, message):
                    client.load_model("relu")
            config.write_text(text)
            client.load_model("relu")

    def test_policies_and_ranges(self) -> None:
        options = ("--policy", "exact", "--max-variants", 3, "--deterministic", "--warm-up", "batch=1..2..4,n=3..5..9")
        models = repository(self.folder, {"scores": SCORES}, *options)
        config = models / "scores" / "config.pbtxt"
        good = config.read_text()
        with Server(models) as server:
            for n in (5, 3, 12):
                inputs, expected = scores(2, n, numpy.random.default_rng(n))
                check(infer(server.http(), "scores", inputs), expected)
        for change, said in (
            (("batch=1..2..4", "batch=4..2..1"), "the smallest size, 4, is above the largest, 1"),
            (("batch=1..2..4", "bach=1..2..4"), "did you mean 'batch'"),
            (('"true"', '"maybe"'), "has to be true or false"),
            (('"exact"', '"adaptive"'), "which deterministic excludes"),
        ):
            config.write_text(good.replace(*change, 1))
            with Server(models) as server:
                self.assertFalse(server.http().is_model_ready("scores"))
                self.assertIn(said, server.log())

    def test_compiled_file(self) -> None:
        models = repository(self.folder, {"scores": SCORES}, "--compile", "--threads", 1)
        self.assertEqual([p.name for p in (models / "scores" / "1").iterdir()], ["model.tsr"])
        with Server(models) as server:
            inputs, expected = scores(2, 5, numpy.random.default_rng(0))
            check(infer(server.http(), "scores", inputs), expected)

    def test_reload_under_load(self) -> None:
        """The server computes with the old version until the new one is there. No request fails, each answer is one of both."""
        graph = "(float[batch, n] x) => (float[batch, n] y) <float f = {%d}> { y = Mul(x, f) }"
        models = repository(self.folder, {"scale": graph % 1})
        with Server(models, "--model-control-mode=explicit", "--load-model=scale") as server:
            known = {1}

            def body(client: Any, draw: numpy.random.Generator) -> None:
                x = numpy.ones((int(draw.integers(1, 5)), int(draw.integers(1, 50))), numpy.float32)
                y = infer(client, "scale", {"x": x}).as_numpy("y")
                self.assertIn(int(y[0, 0]), known)
                numpy.testing.assert_array_equal(y, x * y[0, 0])

            client = server.http()
            with self.load(server, body):
                for version in range(2, 6):
                    known.add(version)
                    done = command("triton", save(graph % version, self.folder / "models" / "scale.onnx"), "-o", models, "--device", "cpu", "--version", version)
                    self.assertEqual(done.returncode, 0, done.stderr)
                    client.load_model("scale")
                    x = numpy.ones((1, 3), numpy.float32)
                    self.assertEqual(infer(client, "scale", {"x": x}).as_numpy("y")[0, 0], version)

    def test_unloading_gives_memory_back(self) -> None:
        weights = ", ".join(["0.5"] * 4096)
        models = repository(self.folder, {"rows": f"(float[batch, 64] x) => (float[batch, 64] y) <float[64, 64] w = {{{weights}}}> {{ y = MatMul(x, w) }}"})
        with Server(models, "--model-control-mode=explicit", "--load-model=rows") as server:
            client, sizes = server.http(), []
            for _ in range(12):
                infer(client, "rows", {"x": numpy.ones((2, 64), numpy.float32)})
                client.unload_model("rows")
                end = time.monotonic() + START_SECONDS
                while "successfully unloaded" not in server.log().rsplit("loading: rows:1", 1)[-1] and time.monotonic() < end:
                    time.sleep(0.01)
                sizes.append(server.resident())
                client.load_model("rows")
            # A session is some megabytes; ten of them that stay would be more than this.
            self.assertLess(sizes[-1] - sizes[1], 10 << 20, sizes)

    def test_a_killed_server_loses_what_was_in_flight(self) -> None:
        models = repository(self.folder, {"scores": SCORES})
        first = Server(models)
        first.wait_ready()
        at = [first]
        lost, answered = [0] * CLIENTS, [0] * CLIENTS
        killed, back = threading.Event(), threading.Event()

        def body(index: int) -> None:
            draw, client = numpy.random.default_rng(index), first.http()
            while answered[index] < 40:
                inputs, expected = scores(2, 7, draw)
                try:
                    result = infer(client, "scores", inputs)
                except Exception:  # clients have many for a closed connection
                    self.assertTrue(killed.is_set())
                    lost[index] += 1
                    back.wait()
                    client = at[0].http()
                    continue
                check(result, expected)
                answered[index] += 1
                if answered[index] == 20 and index == 0:
                    killed.set()
                    first.kill()
                    at[0] = Server(models).__enter__()
                    back.set()

        try:
            in_threads(CLIENTS, body)
        finally:
            at[0].__exit__()
        self.assertGreater(sum(lost), 0)
        self.assertLessEqual(max(lost), 1)  # what it had sent, and nothing after

    def test_clients_of_kserve(self) -> None:
        models = repository(self.folder, {"scores": SCORES})
        script = Path(__file__).with_name("kserve_request.py")
        with Server(models) as server:
            arguments = [str(server.http_port), str(server.grpc_port), "scores", "x=2x5", "w=2x5"]
            done = subprocess.run([sys.executable, str(script), *arguments], capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            answers = [json.loads(line) for line in done.stdout.splitlines()]
            self.assertEqual(len(answers), 2)
            for answer in answers:
                numpy.testing.assert_allclose(answer["y"], numpy.full((2, 5), 0.2), rtol=1e-5)
                numpy.testing.assert_allclose(answer["s"], [[5], [5]], rtol=1e-5)


if __name__ == "__main__":
    unittest.main()
