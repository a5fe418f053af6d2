"""Several threads in one model, the interpreter's lock, and memory over many calls."""

from __future__ import annotations

import gc
import sys
import threading
import unittest
from pathlib import Path

import numpy
from support import Dlpack, load

import tessera

CALLS = 100_000


def resident() -> int:
    """Bytes of this process in memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


class Array:
    """An array that Session.call takes."""

    def __init__(self, sizes: tuple[int, ...]) -> None:
        self.array = numpy.ones(sizes, numpy.float32)
        self.shape = self.array.shape

    def data_ptr(self) -> int:
        return self.array.ctypes.data


class Threads(unittest.TestCase):
    def in_threads(self, count: int, body) -> None:
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
        self.assertEqual(failed, [])

    def test_results(self) -> None:
        model = load("(float[n, n] x, float[n, n] w) => (float[n, n] y) { p = MatMul(x, w)  y = Relu(p) }")

        def body(index: int) -> None:
            for i in range(40):
                n = 1 + (index * 7 + i * 3) % 40  # sizes of different calls at the same time
                x = numpy.arange(n * n, dtype=numpy.float32).reshape(n, n) % 5 - 2
                numpy.testing.assert_array_equal(model(x, x), numpy.maximum(x @ x, 0))

        self.in_threads(6, body)

    def test_errors_of_the_caller_in_the_middle(self) -> None:
        """Also where all of the library's threads are taken, so that one of them requests another thread's outputs."""
        model = load("(float[n] x) => (float[n] y) { y = Relu(x) }")

        def body(index: int) -> None:
            def make(_output: int, sizes: tuple[int, ...]) -> Array:
                raise KeyError(index, sizes)

            for n in range(1, 100):
                with self.assertRaises(KeyError) as caught:
                    model._session.call((Array((n,)),), make, 0)
                self.assertEqual(caught.exception.args, (index, (n,)))

        self.in_threads(6, body)

    def test_two_calls_at_once(self) -> None:
        """Both calls wait in the middle until the other one is there, too. With more threads a call has them all."""
        model = load("(float[n] x) => (float[n] y) { y = Relu(x) }", threads=1)
        barrier = threading.Barrier(2, timeout=300)

        def make(_output: int, sizes: tuple[int, ...]) -> Array:
            barrier.wait()
            return Array(sizes)

        self.in_threads(2, lambda index: model._session.call((Array((3 + index,)),), make, 0))

    def test_other_threads_run_during_a_call(self) -> None:
        """No thread takes the lock from another one here: the second one runs only where the call gives it up."""
        model = load("(float[n, n] x) => (float[n, n] y) { y = MatMul(x, x) }")
        x = numpy.ones((200, 200), numpy.float32)
        model(x)
        start, ran = threading.Lock(), threading.Event()
        start.acquire()

        def other() -> None:
            with start:
                ran.set()

        thread = threading.Thread(target=other, daemon=True)
        interval = sys.getswitchinterval()
        thread.start()
        try:
            sys.setswitchinterval(1000)
            start.release()
            for _ in range(1000):
                if ran.is_set():
                    break
                model(x)
            seen = ran.is_set()
        finally:
            sys.setswitchinterval(interval)
        thread.join()
        self.assertTrue(seen)

    def test_a_model_goes_while_another_thread_calls_it(self) -> None:
        models = [load("(float[n] x) => (float[n] y) { y = Exp(x) }")]
        x = numpy.zeros(50_000, numpy.float32)
        started = threading.Barrier(2)

        def body(index: int) -> None:
            model = models[0]
            started.wait()
            models.clear()
            for _ in range(20 + 20 * index):
                assert (model(x) == 1).all()

        self.in_threads(2, body)


class Many(unittest.TestCase):
    """Counts of references and resident memory are after many calls what they were after some."""

    def steady(self, call, calls: int = CALLS, watched: tuple[object, ...] = ()) -> None:
        for _ in range(calls // 10):
            call()
        gc.collect()
        before, counts = resident(), [sys.getrefcount(o) for o in watched]
        for _ in range(calls):
            call()
        gc.collect()
        for o, count in zip(watched, counts, strict=True):
            self.assertLess(abs(sys.getrefcount(o) - count), calls // 10, o)  # others hold None as well
        self.assertLess(resident() - before, 4 << 20)

    def test_calls(self) -> None:
        model = load("(float[n, 2] x, int64[2] i) => (float[n, 2] y, int64[2] z) { y = Relu(x)  z = Neg(i) }")
        x, i = numpy.ones((3, 2), numpy.float32), numpy.ones(2, numpy.int64)
        watched = (x, i, x.dtype, i.dtype, numpy.ndarray, tessera.Tensor, None, model, model._session)
        self.steady(lambda: model(x, i), watched=watched)
        self.steady(lambda: model(i=i, x=x.T.copy().T), watched=watched)
        a, b = Dlpack(x), Dlpack(i)
        self.steady(lambda: model(a, b), CALLS // 4, (*watched, a, b))
        self.steady(lambda: numpy.from_dlpack(model(a, b)[0]), CALLS // 4, watched)
        capsule = i.__dlpack__()
        self.steady(lambda: model(Dlpack(x[::-1]), capsule), CALLS // 4, (*watched, capsule))

    def test_other_sizes_in_each_call(self) -> None:
        model = load("(float[n] x) => (float[n] y) { y = Relu(x) }")
        arrays = [numpy.ones(n, numpy.float32) for n in range(1, 17)]
        turn = iter(range(10**9))
        self.steady(lambda: model(arrays[next(turn) % 16]), CALLS // 4, tuple(arrays))

    def test_errors(self) -> None:
        model = load("(float[n, 2] x) => (float[n, 2] y) { y = Relu(x) }")

        def wrong(*args: object) -> None:
            try:
                model(*args)
            except tessera.Error:
                return
            raise AssertionError("no error")

        rank, dtype, size = numpy.ones(2, numpy.float32), numpy.ones((2, 2)), numpy.ones((2, 3), numpy.float32)
        for args in ((rank,), (dtype,), (size,), (Dlpack(dtype),), (None,), ()):
            self.steady(lambda args=args: wrong(*args), CALLS // 20, (None, *args))

    def test_loads(self) -> None:
        def body() -> None:
            model = load("(float[n] x) => (float[n] y) { y = Relu(x) }", threads=1)
            model(numpy.ones(3, numpy.float32))

        self.steady(body, 60)


if __name__ == "__main__":
    unittest.main()
