"""Exported modules that change their buffers: a loaded model keeps them from call to call as torch.export.load(...).module() does."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
import threading
import unittest
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import support
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.export import Dim

import tessera

COMMAND = os.environ.get("TESSERA_COMMAND", str(support.ROOT / "build/bin/tessera"))
STEPS = 20


class Counter(nn.Module):
    """Adds 1 to a buffer, which it adds to its input."""

    n: Tensor

    def __init__(self, shape: tuple[int, ...] = (), dtype: torch.dtype = torch.float32):
        super().__init__()
        self.register_buffer("n", torch.zeros(shape, dtype=dtype))

    def forward(self, x: Tensor) -> Tensor:
        self.n.add_(1)
        return x + self.n


class Streaming(nn.Module):
    """A causal convolution over pieces of a signal, which keeps the end of the piece before."""

    cache: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(3, 4, 5)
        self.register_buffer("cache", torch.zeros(2, 3, 4))

    def forward(self, x: Tensor) -> Tensor:
        whole = torch.cat([self.cache, x], dim=2)
        self.cache.copy_(whole[:, :, -4:])
        return F.relu(self.conv(whole))


class Keys(nn.Module):
    """Attention of one query over the keys and values so far, kept in buffers at the place that another one gives."""

    k: Tensor
    v: Tensor
    at: Tensor

    def __init__(self, by_slice: bool) -> None:
        super().__init__()
        self.by_slice = by_slice
        self.register_buffer("k", torch.zeros(2, 32, 8))
        self.register_buffer("v", torch.zeros(2, 32, 8), persistent=False)
        self.register_buffer("at", torch.zeros(1, dtype=torch.int64))

    def forward(self, x: Tensor) -> Tensor:
        if self.by_slice:  # the oldest ones go
            self.k[:, :-1] = self.k[:, 1:].clone()
            self.k[:, -1:] = x
            self.v[:, :-1] = self.v[:, 1:].clone()
            self.v[:, -1:] = x * 2
            seen = torch.arange(32) >= 31 - self.at
        else:
            self.k.index_copy_(1, self.at, x)
            self.v.index_copy_(1, self.at, x * 2)
            seen = torch.arange(32) <= self.at
        scores = (x @ self.k.transpose(1, 2)).masked_fill(~seen, float("-inf"))
        self.at.add_(1)
        return scores.softmax(-1) @ self.v


class Statistics(nn.Module):
    """Batch normalization in training, which writes running statistics and counts batches."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(6)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x)


class Constant(nn.Module):
    """Changes a tensor that is no buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.c = torch.zeros(2)

    def forward(self, x: Tensor) -> Tensor:
        self.c.add_(x)
        return self.c * 2


class Nothing(nn.Module):
    """Counts and returns what it is given; one buffer is only read, one written through a view and not read."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("read", torch.ones(2))
        self.register_buffer("rows", torch.zeros(3, 2))

    def forward(self, x: Tensor) -> Tensor:
        self.rows[1].mul_(2).add_(x)
        return x + self.read


@contextlib.contextmanager
def archive(module: nn.Module, inputs: tuple[Any, ...], shapes: Any = None, decomposed: bool = False) -> Iterator[str]:
    program = torch.export.export(module, inputs, dynamic_shapes=shapes)
    with tempfile.TemporaryDirectory() as folder:
        torch.export.save(program.run_decompositions() if decomposed else program, f"{folder}/m.pt2")
        yield f"{folder}/m.pt2"


@contextlib.contextmanager
def counting(**options: Any) -> Iterator[tessera.Model]:
    with archive(Counter(), (torch.zeros(2),)) as path:
        yield tessera.load(path, device="cpu", **options)


class AsTheModule(unittest.TestCase):
    """Results and buffers of twenty calls."""

    def check(self, make: Callable[[], nn.Module], step: Callable[[], Tensor], states: set[str], shapes: Any = None, steps: int = STEPS, forms: tuple[bool, ...] = (False, True)) -> None:
        for decomposed in forms:
            torch.manual_seed(1)
            with self.subTest(decomposed=decomposed), archive(make(), (step(),), shapes, decomposed) as path:
                loaded, module = tessera.load(path, device="cpu"), torch.export.load(path).module()
                self.assertEqual(len(loaded.outputs), 1, loaded.outputs)
                self.assertEqual({s.name for s in loaded.states}, states)
                for _ in range(steps):
                    x = step()
                    with torch.no_grad():
                        want = module(x)
                    torch.testing.assert_close(loaded(x), want)
                buffers = {**dict(module.named_buffers()), **{n: t for n, t in vars(module).items() if isinstance(t, Tensor)}}
                for name, value in loaded.state_dict().items():
                    torch.testing.assert_close(torch.as_tensor(value), buffers[name], msg=name)

    def test_streaming(self) -> None:
        self.check(Streaming, lambda: torch.randn(2, 3, 7), {"cache"})

    def test_streaming_of_any_length(self) -> None:
        lengths = iter([9, *range(5, 100)] * 4)
        self.check(Streaming, lambda: torch.randn(2, 3, next(lengths)), {"cache"}, ({2: Dim("t", min=5, max=64)},))

    def test_keys_at_a_place(self) -> None:
        self.check(lambda: Keys(False), lambda: torch.randn(2, 1, 8), {"k", "v", "at"})

    def test_keys_that_move(self) -> None:
        self.check(lambda: Keys(True), lambda: torch.randn(2, 1, 8), {"k", "v", "at"})

    def test_statistics(self) -> None:
        self.check(Statistics, lambda: torch.randn(5, 6), {"norm.running_mean", "norm.running_var", "norm.num_batches_tracked"}, steps=5)

    def test_a_constant(self) -> None:
        self.check(Constant, lambda: torch.randn(2), {"c"}, steps=4, forms=(False,))  # PyTorch does not decompose it

    def test_a_view_that_nothing_reads(self) -> None:
        self.check(Nothing, lambda: torch.randn(2), {"rows"}, steps=4)

    def test_types_and_sizes(self) -> None:
        for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int8):
            for shape in ((), (1,), (0,), (3, 2), (1, 0)):
                with self.subTest(dtype=dtype, shape=shape), archive(Counter(shape, dtype), (torch.zeros(shape, dtype=dtype),)) as path:
                    loaded = tessera.load(path, device="cpu")
                    for call in range(1, 4):
                        support.assert_close(loaded(torch.zeros(shape, dtype=dtype)), torch.full(shape, call, dtype=dtype))
                    self.assertEqual(np.asarray(loaded.state_dict()["n"]).astype(np.float32).tolist(), np.full(shape, 3.0).tolist())
                    loaded.load_state_dict({"n": torch.full(shape, 8, dtype=dtype)})
                    support.assert_close(loaded(torch.zeros(shape, dtype=dtype)), torch.full(shape, 9, dtype=dtype))


class Interface(unittest.TestCase):
    """The uses that a caller makes of states."""

    def test_calls_count(self) -> None:
        with counting() as m:
            self.assertEqual([str(i) for i in (*m.inputs, *m.states)], ["x: float32[2]", "n: float32[]"])
            self.assertEqual(len(m.outputs), 1)
            self.assertEqual([m(np.zeros(2, np.float32)).tolist() for _ in range(3)], [[1, 1], [2, 2], [3, 3]])

    def test_a_copy_is_given(self) -> None:
        with counting() as m:
            before = m.state_dict()
            m(np.zeros(2, np.float32))
            self.assertEqual(before["n"], 0)
            before["n"][...] = 9
            self.assertEqual(m.state_dict()["n"], 1)

    def test_reset_and_load(self) -> None:
        with counting() as m:
            zeros = np.zeros(2, np.float32)
            m(zeros), m(zeros)
            m.reset()
            self.assertEqual(m(zeros)[0], 1)
            m.load_state_dict({"n": torch.tensor(41.0)})
            self.assertEqual(m(zeros)[0], 42)
            m.load_state_dict({"n": np.float32(6)})
            self.assertEqual(m(zeros)[0], 7)
            for wrong in ({}, {"n": np.zeros(1, np.float32)}, {"n": np.float64(0)}, {"n": np.float32(0), "m": np.float32(0)}):
                with self.assertRaises(tessera.UsageError):
                    m.load_state_dict(wrong)
            m.load_state_dict({"m": 0}, strict=False)
            self.assertEqual(m(zeros)[0], 8)

    def test_each_model_has_its_own(self) -> None:
        with archive(Counter(), (torch.zeros(2),)) as path:
            a, b = (tessera.load(path, device="cpu") for _ in range(2))
            self.assertEqual([m(np.zeros(2, np.float32))[0] for m in (a, a, b, a, b)], [1, 2, 1, 3, 2])

    def test_failed_calls_change_nothing(self) -> None:
        class Table(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.register_buffer("n", torch.zeros(()))

            def forward(self, i: Tensor) -> Tensor:
                self.n.add_(1)
                return torch.arange(4.0).index_select(0, i) + self.n

        with archive(Table(), (torch.tensor([1, 2]),)) as path:
            m = tessera.load(path, device="cpu")
            good = np.array([0, 3])
            self.assertEqual(m(good).tolist(), [1, 4])
            for wrong in (np.array([0, 9]), np.array([0, 1, 2]), np.array([0.0, 1.0]), np.array([[0, 1]])):
                with self.assertRaises(tessera.Error):
                    m(wrong)
                self.assertEqual(m.state_dict()["n"], 1)
            self.assertEqual(m(good).tolist(), [2, 5])

    def test_warming_up_changes_nothing(self) -> None:
        with archive(Counter(), (torch.zeros(4),), ({0: Dim("b", max=64)},)) as path:
            symbol = str(tessera.load(path, device="cpu").inputs[0].shape[0])
            m = tessera.load(path, device="cpu", warm_up={symbol: (2, 4, 16)})
            m.warmup((8,))
            m.trim()
            self.assertEqual(m(np.zeros(3, np.float32)).tolist(), [1, 1, 1])

    def test_variants_share_them(self) -> None:
        with archive(Counter(), (torch.zeros(4),), ({0: Dim("b", max=64)},)) as path:
            m = tessera.load(path, device="cpu", policy="exact")
            self.assertEqual([m(np.zeros(n, np.float32)).tolist() for n in (2, 3, 2)], [[1] * 2, [2] * 3, [3] * 2])
            self.assertGreater(m.metrics()["variants"], 1)

    def test_threads_take_turns(self) -> None:
        seen: list[float] = []
        with counting() as m:

            def work() -> None:
                for _ in range(100):
                    a, b = m(np.zeros(2, np.float32))
                    seen.append(a if a == b else -1)

            threads = [threading.Thread(target=work) for _ in range(4)]
            for t in threads:
                t.start()
            for t in threads:
                t.join()
            self.assertEqual(sorted(seen), list(range(1, 401)))
            self.assertEqual(m.metrics()["contexts"], 1)

    def test_compiled_files(self) -> None:
        with archive(Keys(False), (torch.zeros(2, 1, 8),)) as path:
            file = str(Path(path).with_suffix(".tsr"))
            for options in ((), ("--embed-weights",)):
                with self.subTest(options=options):
                    subprocess.run([COMMAND, "compile", path, "-o", file, *options], check=True, capture_output=True)
                    loaded, module = tessera.load(file, device="cpu"), torch.export.load(path).module()
                    for _ in range(3):
                        x = torch.randn(2, 1, 8)
                        torch.testing.assert_close(loaded(x), module(x))
                    self.assertEqual(loaded.state_dict()["at"], 3)
                    loaded.reset()
                    self.assertEqual(loaded.state_dict()["at"], 0)

    def test_the_command_shows_them(self) -> None:
        with archive(Counter(), (torch.zeros(2),)) as path:
            out = Path(path).parent / "out"
            subprocess.run([COMMAND, "run", path, "--output-dir", str(out)], check=True, capture_output=True)
            self.assertEqual(np.load(out / "n.npy"), 1)
            subprocess.run([COMMAND, "debug", path], check=True, capture_output=True)
            subprocess.run([COMMAND, "bench", path, "--seconds", "0"], check=True, capture_output=True)

    def test_an_input_that_is_changed_is_a_result(self) -> None:
        class Changes(nn.Module):
            def forward(self, x: Tensor) -> Tensor:
                x.add_(1)
                return x * 2

        for decomposed in (False, True):
            with self.subTest(decomposed=decomposed), archive(Changes(), (torch.zeros(2),), decomposed=decomposed) as path:
                m, x = tessera.load(path, device="cpu"), np.zeros(2, np.float32)
                self.assertEqual((m.states, m.outputs[1].name), ((), "x"))
                self.assertEqual([y.tolist() for y in m(x)], [[2, 2], [1, 1]])
                self.assertEqual(x.tolist(), [0, 0])

    def test_a_model_without(self) -> None:
        with archive(nn.Linear(2, 2), (torch.zeros(1, 2),)) as path:
            m = tessera.load(path, device="cpu")
            m.reset()
            m.load_state_dict({})
            self.assertEqual((m.states, m.state_dict()), ((), {}))


if __name__ == "__main__":
    unittest.main()
