"""tessera._native.TileKernel: tile kernels from their texts, launched on addresses."""

from __future__ import annotations

import gc
import threading
import unittest
from typing import Any

import ml_dtypes
import numpy
import support  # noqa: F401  the package's path

import tessera
from tessera._native import TileKernel

ADD = """
tile.kernel @add(%x: ptr<f32>, %y: ptr<f32> written, %by: f32, %n: i64) {
  %p = program_id 0              : i64
  %start = mul(%p, 32)           : i64
  %r = range 32                  : tile<[32], i64>
  %o = add(%r, %start)           : tile<[32], i64>
  %in = lt(%o, %n)               : tile<[32], bool>
  %v = load %x[%o] mask=%in      : tile<[32], f32>
  %s = add(%v, %by)              : tile<[32], f32>
  store %y[%o] = %s mask=%in
}
"""
SCALARS: dict[str, tuple[type, list[Any], list[Any]]] = {  # dtype of the IR: NumPy's, values, values that it refuses
    "bool": (numpy.bool_, [True, False, 1, 0], [2, -1, 1.0]),
    "i8": (numpy.int8, [-128, 127], [128, -129, 0.5]),
    "i16": (numpy.int16, [-(2**15), 2**15 - 1], [2**15, 1.0]),
    "i32": (numpy.int32, [-(2**31), 2**31 - 1], [2**31, 2**70, 1.0]),
    "i64": (numpy.int64, [-(2**63), 2**63 - 1], [2**63, -(2**63) - 1, 2**64, 1.0]),
    "u8": (numpy.uint8, [0, 255], [256, -1]),
    "u16": (numpy.uint16, [2**16 - 1], [2**16]),
    "u32": (numpy.uint32, [2**32 - 1], [2**32]),
    "u64": (numpy.uint64, [0, 2**63, 2**64 - 1], [-1, 2**64, 1.0]),
    "f16": (numpy.float16, [0.1, -2, True, 1e6], []),
    "bf16": (ml_dtypes.bfloat16, [0.1, 3], []),
    "f32": (numpy.float32, [0.1, -0.0, 2**24 + 1, 2**63, float("inf")], []),
    "f64": (numpy.float64, [0.1, -1], []),
}


def kernel(text: str, **options: Any) -> TileKernel:
    return TileKernel(text, "cpu", **options)


def address(array: numpy.ndarray) -> int:
    return int(array.ctypes.data)


class Launches(unittest.TestCase):
    def test_sizes(self) -> None:
        add = kernel(ADD)
        for n in (0, 1, 31, 32, 33, 1000):
            x = numpy.arange(n, dtype=numpy.float32)
            y = numpy.zeros(n + 1, numpy.float32)
            add.launch((-(-n // 32),), (address(x) if n else 0, address(y), 0.5, n))
            numpy.testing.assert_array_equal(y, [*(x + numpy.float32(0.5)), 0])

    def test_grids(self) -> None:
        places = kernel(
            "tile.kernel @p(%y: ptr<i64> written) {\n %a = program_id 0 : i64\n %b = program_id 1 : i64\n %c = program_id 2 : i64\n"
            " %na = num_programs 0 : i64\n %nb = num_programs 1 : i64\n %d = mul(%c, %nb) : i64\n %e = add(%d, %b) : i64\n"
            " %f = mul(%e, %na) : i64\n %g = add(%f, %a) : i64\n store %y[%g] = %g\n}"
        )
        for grid in (4, (4,), (2, 3), (2, 3, 4), (numpy.int64(3), 1)):
            count = int(numpy.prod(grid))
            y = numpy.full(count + 1, -1)
            places.launch(grid, (address(y),))
            numpy.testing.assert_array_equal(y, [*range(count), -1])
        y = numpy.full(3, -1)
        for none in (0, (0, 5), (1, 2, 0)):
            places.launch(none, (address(y),))
        numpy.testing.assert_array_equal(y, -1)
        for bad in ((), (1, 1, 1, 1), -1, (1, -2), (1, 70000)):
            with self.assertRaises(tessera.InputError):
                places.launch(bad, (address(y),))
        for other in (1.5, "3", None, (1, None)):
            with self.assertRaises(TypeError):
                places.launch(other, (address(y),))

    def test_scalars_of_every_dtype(self) -> None:
        for dtype, (kind, good, bad) in SCALARS.items():
            put = kernel(f"tile.kernel @put(%v: {dtype}, %y: ptr<{dtype}> written) {{\n store %y[0] = %v\n}}")
            for value in good:
                with self.subTest(dtype=dtype, value=value), numpy.errstate(over="ignore"):
                    y = numpy.zeros(1, kind)
                    put.launch(1, (value, address(y)))
                    numpy.testing.assert_array_equal(y, numpy.array([value]).astype(kind))
            for value in bad:
                with self.subTest(dtype=dtype, value=value), self.assertRaises(tessera.InputError):
                    put.launch(1, (value, 0))

    def test_numbers_of_other_types(self) -> None:
        add = kernel(ADD)
        x, y = numpy.ones(1, numpy.float32), numpy.zeros(1, numpy.float32)
        add.launch(numpy.int32(1), (numpy.int64(address(x)), address(y), numpy.float32(2), numpy.uint8(1)), 0)
        self.assertEqual(y[0], 3)
        add.launch(1, (address(x), address(y), numpy.float64(4), True), stream=0)
        self.assertEqual(y[0], 5)
        for value in (None, "1", b"1", [1]):
            with self.assertRaisesRegex(tessera.InputTypeError, "argument 3 of a kernel is a .*, expected an int or a float"):
                add.launch(1, (0, 0, value, 0))

    def test_wrong_calls(self) -> None:
        add = kernel(ADD)
        with self.assertRaisesRegex(tessera.InputError, "kernel 'add' takes 4 arguments, got 1"):
            add.launch(1, (0,))
        with self.assertRaisesRegex(tessera.InputError, r"argument 4, 'n' of kernel 'add' \(i64\), is the float 2.0, expected an integer"):
            add.launch(1, (0, 0, 1, 2.0))
        for call in (lambda: add.launch(1), lambda: add.launch(1, [0]), lambda: add.launch(1, (), 0, 0), lambda: add.launch(1, (), queue=0)):
            with self.assertRaises(TypeError):
                call()

    def test_threads(self) -> None:
        add = kernel(ADD, threads=2)
        wrong = []

        def work(by: int) -> None:
            x = numpy.arange(3000, dtype=numpy.float32)
            y = numpy.zeros_like(x)
            for _ in range(50):
                y[:] = 0
                add.launch(94, (address(x), address(y), by, 3000))
                if not (y == x + by).all():
                    wrong.append(by)

        threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(wrong, [])

    def test_many_arguments(self) -> None:
        names = [f"%v{i}" for i in range(100)]
        sums = "\n".join(f" %s{i + 1} = add(%s{i}, {n}) : f64" for i, n in enumerate(names))
        total = kernel(f"tile.kernel @k({', '.join(n + ': f64' for n in names)}, %y: ptr<f64> written) {{\n %s0 = const 0 : f64\n{sums}\n store %y[0] = %s100\n}}")
        y = numpy.zeros(1)
        total.launch(1, (*range(100), address(y)))
        self.assertEqual(y[0], 4950)


class Kernels(unittest.TestCase):
    def test_description(self) -> None:
        k = kernel(ADD)
        self.assertEqual((k.name, k.device, k.threads, k.registers, k.spill_bytes, k.shared_bytes), ("add", "cpu", 0, -1, -1, 0))
        self.assertEqual(
            k.parameters,
            (("x", "pointer", "float32", False, 64, 1), ("y", "pointer", "float32", True, 64, 1), ("by", "scalar", "float32", False, 1, 1), ("n", "scalar", "int64", False, 1, 1)),
        )
        self.assertGreater(k.create_ms, 0)

    def test_code_is_kept_in_the_cache_folder(self) -> None:
        text = ADD.replace("add(%v, %by)", "sub(%v, %by)")
        folder = str(support.FOLDER / "kernels")
        self.assertFalse(kernel(text, cache_dir=folder).cached)
        self.assertTrue(kernel(text, cache_dir=folder).cached)

    def test_texts_that_are_wrong(self) -> None:
        with self.assertRaisesRegex(tessera.ModelError, r"k\.py:2:7: operands of add differ") as caught:
            kernel("tile.kernel @k(%n: i64, %f: f32) {\n %a = add(%n, %f) : i64\n}", name="k.py")
        self.assertEqual(caught.exception.code, "TES-3010")
        with self.assertRaises(ValueError):
            kernel("tile.kernel @k() {}\0more")
        with self.assertRaisesRegex(tessera.UsageError, "there is no device 'tpu'"):
            TileKernel(ADD, "tpu")
        for call in (lambda: TileKernel(), lambda: TileKernel(3), lambda: TileKernel(ADD, "cpu", "name")):
            with self.assertRaises(TypeError):
                call()

    def test_a_thousand_come_and_go(self) -> None:
        def resident() -> int:
            with open("/proc/self/statm", encoding="ascii") as f:
                return int(f.read().split()[1]) * 4096

        def rounds(count: int) -> None:
            y = numpy.zeros(1, numpy.float32)
            for _ in range(count):
                k = kernel(ADD)
                for _ in range(10):
                    k.launch(1, (address(y), address(y), 1, 1))

        rounds(50)
        gc.collect()
        before = resident()
        rounds(1000)
        self.assertLess(resident() - before, 8 << 20)


if __name__ == "__main__":
    unittest.main()
