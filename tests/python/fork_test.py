"""Children of fork() while the parent's threads call and compile, and pools of processes of the three kinds."""

from __future__ import annotations

import concurrent.futures
import multiprocessing
import os
import signal
import threading
import time
import unittest
import warnings
from collections.abc import Callable

import numpy
from support import load, save

import tessera

GRAPH = """(float[n, 64] x) => (float[n, 64] y) {
  w = Constant<value_float = 0.5>()  z = Mul(x, w)  s = ReduceMean<axes = [1], keepdims = 1>(z)  d = Sub(z, s)  y = Relu(d)
}"""
ROUNDS = int(os.environ.get("TESSERA_TEST_SEEDS", "100")) // 5
REFUSED = "was forked while a thread of its parent was inside Tessera"


def values(n: int) -> numpy.ndarray:
    return numpy.arange(n * 64, dtype=numpy.float32).reshape(n, 64) % 7


def right(model: tessera.Model, n: int) -> bool:
    x = values(n)
    z = x * 0.5
    return bool(numpy.allclose(model(x), numpy.maximum(z - z.mean(1, keepdims=True), 0), atol=1e-5))


def in_a_worker(path: str) -> bool:
    return all(right(tessera.load(path, "cpu"), n) for n in (1, 65, 1000))


def in_a_child(work: Callable[[], bool], seconds: float = 60) -> str:
    """The outcome of the work: "right", "wrong", "refused", the text of another error, or "hangs"."""
    told, tell = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # that of os.fork() with threads
        child = os.fork()
    if child == 0:
        os.close(told)
        try:
            text = "right" if work() else "wrong"
        except tessera.Error as error:
            text = "refused" if REFUSED in str(error) else str(error)
        except BaseException as error:
            text = repr(error)
        os.write(tell, text.encode()[:4000])
        os._exit(0)
    os.close(tell)
    text, end = "", time.monotonic() + seconds
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        if time.monotonic() > end:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            text = "hangs"
            break
        time.sleep(0.001)
    with os.fdopen(told, "rb") as pipe:
        return text or pipe.read().decode()


class Load:
    """Threads that call a model with ever other sizes, and one that compiles, unless it shall not."""

    def __init__(self, model: tessera.Model, compiles: bool) -> None:
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._call, args=(model, i)) for i in range(3)]
        if compiles:
            self._threads.append(threading.Thread(target=self._compile))

    def _call(self, model: tessera.Model, n: int) -> None:
        while not self._stop.is_set():
            n = n % 900 + 7
            model(values(n))

    def _compile(self) -> None:
        n = 0
        while not self._stop.is_set():
            n += 1
            load(GRAPH.replace("0.5", f"0.{n}"))

    def __enter__(self) -> None:
        for thread in self._threads:
            thread.start()

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()


class Fork(unittest.TestCase):
    def setUp(self) -> None:
        self.path = str(save(GRAPH, "kept.onnx"))
        self.model = tessera.load(self.path, "cpu")
        self.assertTrue(right(self.model, 1000))

    def check(self, work: Callable[[], bool], most_refused: int) -> None:
        outcomes = [in_a_child(work) for _ in range(ROUNDS)]
        self.assertLessEqual(outcomes.count("refused"), most_refused, outcomes)
        self.assertEqual(set(outcomes) - {"right", "refused"}, set())

    def test_inherited_model(self) -> None:
        self.check(lambda: right(self.model, 1000) and right(self.model, 3), 0)
        with Load(self.model, compiles=False):
            self.check(lambda: right(self.model, 1000) and right(self.model, 3), 0)

    def test_fresh_model(self) -> None:
        with Load(self.model, compiles=True):  # a compile may take longer than a fork waits
            self.check(lambda: in_a_worker(self.path) and right(self.model, 70), ROUNDS)

    def test_threads_of_a_child(self) -> None:
        def work() -> bool:
            with concurrent.futures.ThreadPoolExecutor(4) as pool:
                return all(pool.map(lambda n: right(self.model, n), range(1, 1000, 90)))

        with Load(self.model, compiles=False):
            self.check(work, 0)

    def test_child_of_a_child(self) -> None:
        self.assertEqual(in_a_child(lambda: right(self.model, 5) and in_a_child(lambda: right(self.model, 900)) == "right"), "right")

    def test_adaptive_model(self) -> None:
        model = tessera.load(self.path, "cpu", policy="adaptive")
        for _ in range(50):
            model(values(33))
        self.check(lambda: all(right(model, 33) for _ in range(50)), 0)

    def test_pools(self) -> None:
        for kind in ("fork", "forkserver", "spawn"):
            with self.subTest(kind=kind), Load(self.model, compiles=False), warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)
                with multiprocessing.get_context(kind).Pool(2) as pool:
                    self.assertEqual(pool.map_async(in_a_worker, [self.path] * 4).get(timeout=120), [True] * 4)


if __name__ == "__main__":
    unittest.main()
