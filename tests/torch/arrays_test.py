"""tessera.load's function on PyTorch's tensors, on the host; and on a GPU (skipped without one), where arrays that other libraries see
by DLPack alone are taken, too, and streams are the caller's.
"""

from __future__ import annotations

import tempfile
import unittest
from typing import Any

import support  # puts the package on the path
import torch

import tessera

MODEL = support.ROOT / "models" / "small" / "mlp.onnx"


class Dlpack:
    """A tensor of which only DLPack is seen."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self._tensor = tensor

    def __dlpack_device__(self) -> tuple[int, int]:
        kind, index = self._tensor.__dlpack_device__()
        return int(kind), index

    def __dlpack__(self, **options: Any) -> Any:
        return self._tensor.__dlpack__(**options)


class Host(unittest.TestCase):
    def test_tensors(self) -> None:
        model = tessera.load(MODEL, "cpu")
        x = torch.rand(6, 64)
        want = torch.from_numpy(model(x.numpy()))
        wide = torch.rand(6, 128)
        wide[:, ::2] = x
        cases = {
            "contiguous": x, "transposed": x.T.contiguous().T, "strided": wide[:, ::2], "offset": torch.cat([x, x])[6:], "requires_grad": x.clone().requires_grad_(),
            "parameter": torch.nn.Parameter(x), "negated": torch.complex(x, -x).conj().imag, "broadcast": x[:1].expand(6, 64),
        }  # fmt: skip
        for name, given in cases.items():
            with self.subTest(given=name):
                y = model(given)
                self.assertIs(type(y), torch.Tensor)
                self.assertFalse(y.requires_grad)
                torch.testing.assert_close(y, want[:1].expand(6, 10) if name == "broadcast" else want)
        self.assertEqual(model(torch.empty(0, 64)).shape, (0, 10))

    def test_memory_is_shared(self) -> None:
        """The second input, when it is looked at, changes the first one."""
        import onnx.parser  # which a machine with a GPU may not have

        graph = onnx.parser.parse_model('<ir_version: 10, opset_import: ["": 21]> g (float[n] a, float[n] b) => (float[n] y) { y = Add(a, b) }')
        with tempfile.TemporaryDirectory() as folder:
            onnx.save(graph, f"{folder}/add.onnx")
            model = tessera.load(f"{folder}/add.onnx", "cpu")
        a = torch.zeros(4)

        class Late(torch.Tensor):
            def data_ptr(self) -> int:
                a.fill_(1)
                return super().data_ptr()

        y = model(a, torch.zeros(4).as_subclass(Late))
        self.assertEqual(y.tolist(), [1, 1, 1, 1])
        y.fill_(3)
        self.assertEqual(a.tolist(), [1, 1, 1, 1])

    def test_errors(self) -> None:
        model = tessera.load(MODEL, "cpu")
        for given, kind, message in (
            (torch.rand(2, 64).double(), tessera.InputTypeError, "input 'x' has dtype torch.float64; the model declares float32[batch, 64]"),
            (torch.rand(64), tessera.InputError, "input 'x' has 1 dimension, [64]; the model declares float32[batch, 64]"),
            (torch.rand(2, 64, device="meta"), tessera.InputError, "input 'x' lies on 'meta'; the model was loaded for the CPU. Load it with device=\"cuda\", or copy the input to the host"),
        ):  # fmt: skip
            with self.subTest(message=message):
                with self.assertRaises(tessera.Error) as caught:
                    model(given)
                self.assertIs(type(caught.exception), kind)
                self.assertEqual(caught.exception.message, message)
        freed = torch.rand(3000, 64)
        freed.untyped_storage().resize_(0)
        for empty in (freed, torch._efficientzerotensor(2, 64), torch._to_functional_tensor(torch.rand(2, 64))):
            with self.assertRaisesRegex(tessera.InputError, "input 'x' has no memory: its address is null"):
                model(empty)
        with self.assertRaises(RuntimeError):  # PyTorch's own: a sparse tensor has no memory of that kind
            model(torch.rand(2, 64).to_sparse())


@unittest.skipUnless(torch.cuda.is_available(), "there is no GPU")
class Gpu(unittest.TestCase):
    def setUp(self) -> None:
        self.model = tessera.load(MODEL, "cuda")
        self.host = tessera.load(MODEL, "cpu")
        self.x = torch.rand(1000, 64)
        self.want = self.host(self.x)

    def same(self, y: torch.Tensor, want: torch.Tensor | None = None) -> None:
        torch.testing.assert_close(y.cpu(), self.want if want is None else want, rtol=1e-3, atol=1e-5)

    def test_tensors(self) -> None:
        y = self.model(self.x.cuda())
        self.assertEqual(y.device, torch.device("cuda:0"))
        self.same(y)
        self.same(self.model(self.x.cuda().T.contiguous().T))
        self.same(torch.from_numpy(self.model(self.x.numpy())))

    def test_dlpack(self) -> None:
        x = self.x.cuda()
        for given in (Dlpack(x), x.__dlpack__()):
            y = self.model(given)
            self.assertIsInstance(y, tessera.Tensor)
            self.assertEqual(y.__dlpack_device__(), (2, 0))
            one, other = torch.from_dlpack(y), torch.from_dlpack(y)
            self.assertEqual(one.data_ptr(), other.data_ptr())
            del y
            self.same(one)

    def test_streams(self) -> None:
        """Inputs made late on one stream, the call on it, the result used on another one."""
        mine, other = torch.cuda.Stream(), torch.cuda.Stream()
        for kind in (Dlpack, lambda t: t):
            with torch.cuda.stream(mine):
                torch.cuda._sleep(50_000_000)
                x = self.x.cuda(non_blocking=True)
                y = self.model(kind(x), stream=mine.cuda_stream)
            with torch.cuda.stream(other):
                if isinstance(y, torch.Tensor):
                    other.wait_stream(mine)
                    seen = y.clone()
                else:
                    seen = torch.from_dlpack(y).clone()
            other.synchronize()
            self.same(seen)
            del y

    def test_memory_is_given_back(self) -> None:
        x = Dlpack(torch.rand(100_000, 64).cuda())
        want = torch.from_dlpack(self.model(x)).cpu()
        torch.cuda.synchronize()
        before = torch.cuda.mem_get_info()[0]
        for _ in range(2000):
            y = torch.from_dlpack(self.model(x))
        self.same(y, want)
        del y
        torch.cuda.synchronize()
        self.assertLess(before - torch.cuda.mem_get_info()[0], 64 << 20)

    def test_errors(self) -> None:
        x = self.x.cuda()
        for kind in (Dlpack, lambda t: t):
            with self.assertRaisesRegex(tessera.InputError, "lies on 'cuda:0'; the model was loaded for the CPU"):
                self.host(kind(x))
        with self.assertRaisesRegex(tessera.InputError, "input 'x' is not row-major"):
            self.model(Dlpack(x.T.contiguous().T))
        with self.assertRaisesRegex(BufferError, "dl_device"):
            self.model(Dlpack(x)).__dlpack__(dl_device=(1, 0))


if __name__ == "__main__":
    unittest.main()
