"""Operators of com.microsoft as generation calls them, and their forms that ONNX Runtime has for GPUs alone."""

from __future__ import annotations

import unittest
from typing import Any

import numpy
import onnx.parser
import onnxruntime
from microsoft_test import Case, f, heads, i32
from onnx import helper

import tessera.onnx_backend as backend

DECODER = """
<ir_version: 10, opset_import: ["": 21, "com.microsoft": 1]>
decoder (float[batch, length, 96] qkv, int64[batch, total] mask, float[batch, 2, past, 16] past_k, float[batch, 2, past, 16] past_v,
         float[64, 8] cosines, float[64, 8] sines) => (y, k, v)
{
  one = Constant <value = int64[1] {1}> ()
  count = ReduceSum <keepdims = 0> (mask, one)
  last = Sub (count, one)
  seqlens = Cast <to = 6> (last)
  sizes = Shape <start = 1> (mask)
  total_sequence_length = Cast <to = 6> (sizes)
  y, k, v = com.microsoft.GroupQueryAttention <num_heads = 2, kv_num_heads = 2, do_rotary = 1>
            (qkv, , , past_k, past_v, seqlens, total_sequence_length, cosines, sines)
}
"""


class Decoding(unittest.TestCase):
    """One model for prompts and for single tokens, as generation calls it: the sizes are symbols, the cache goes from one
    call to the next."""

    def test_calls_in_a_row(self) -> None:
        model = onnx.parser.parse_model(DECODER)
        session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        compiled = backend.prepare(model)
        tables = {"cosines": f(64, 8), "sines": f(64, 8)}
        for batch in (1, 2):
            cache = numpy.zeros((batch, 2, 0, 16), numpy.float32)
            ours: dict[str, Any] = {"past_k": cache, "past_v": cache}
            theirs = dict(ours)
            total = 0
            for length in (5, 1, 1, 1):
                total += length
                call = {"qkv": f(batch, length, 96), "mask": numpy.ones((batch, total), numpy.int64), **tables}
                expected = session.run(None, {**call, **theirs})
                outputs = compiled.run({**call, **ours})
                for a, b in zip(outputs, expected, strict=True):
                    self.assertEqual(a.shape, b.shape)
                    numpy.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
                ours = {"past_k": outputs[1], "past_v": outputs[2]}
                theirs = {"past_k": expected[1], "past_v": expected[2]}

    def test_a_buffer_of_the_greatest_length(self) -> None:
        model = onnx.parser.parse_model(DECODER)
        compiled = backend.prepare(model)
        tables = {"cosines": f(64, 8), "sines": f(64, 8)}
        buffer = numpy.zeros((2, 2, 12, 16), numpy.float32)
        growing = buffer[:, :, :0]
        fixed: dict[str, Any] = {"past_k": buffer, "past_v": buffer}
        grown: dict[str, Any] = {"past_k": growing, "past_v": growing}
        total = 0
        for length in (4, 1, 1):
            total += length
            call = {"qkv": f(2, length, 96), "mask": numpy.ones((2, total), numpy.int64), **tables}
            expected, outputs = compiled.run({**call, **grown}), compiled.run({**call, **fixed})
            numpy.testing.assert_allclose(outputs[0], expected[0], rtol=1e-4, atol=1e-5)
            self.assertEqual(outputs[1].shape, buffer.shape)
            numpy.testing.assert_allclose(outputs[1][:, :, :total], expected[1], rtol=1e-4, atol=1e-5)
            fixed = {"past_k": outputs[1], "past_v": outputs[2]}
            grown = {"past_k": expected[1], "past_v": expected[2]}


def silu(x: numpy.ndarray) -> numpy.ndarray:
    return x / (1 + numpy.exp(-x))


class AgainstFormulas(unittest.TestCase):
    """Operators and forms that ONNX Runtime has for GPUs alone."""

    def run_case(self, op: str, inputs: list[numpy.ndarray | None], attributes: dict[str, Any] | None = None, outputs: int = 1) -> Any:
        case = Case(op, inputs, attributes or {}, outputs)
        return backend.prepare(case.model()).run(case.feeds())

    def same(self, ours: numpy.ndarray, theirs: numpy.ndarray) -> None:
        numpy.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)

    def test_packed_queries_keys_and_values(self) -> None:
        qkv = f(2, 3, 2, 3, 4)
        apart = [qkv[:, :, :, i].reshape(2, 3, 8) for i in range(3)]
        expected = self.run_case("MultiHeadAttention", apart, heads(unidirectional=1))[0]
        self.same(self.run_case("MultiHeadAttention", [qkv], heads(unidirectional=1))[0], expected)
        self.same(self.run_case("MultiHeadAttention", [apart[0], qkv[:, :, :, 1:]], heads())[0], self.run_case("MultiHeadAttention", apart, heads())[0])

    def test_a_shared_buffer(self) -> None:
        q, k, v = f(2, 3, 8), f(2, 3, 8), f(2, 3, 8)
        past_k, past_v = f(2, 2, 4, 4), f(2, 2, 4, 4)
        room = numpy.zeros((2, 2, 5, 4), numpy.float32)
        expected = self.run_case("MultiHeadAttention", [q, k, v, None, None, None, past_k, past_v], heads(unidirectional=1), 3)
        buffers = [numpy.concatenate([p, room], 2) for p in (past_k, past_v)]
        ours = self.run_case("MultiHeadAttention", [q, k, v, None, None, None, *buffers, i32([4])], heads(unidirectional=1), 3)
        self.same(ours[0], expected[0])
        for i in (1, 2):
            self.assertEqual(ours[i].shape, (2, 2, 9, 4))
            self.same(ours[i][:, :, :7], expected[i])

    def test_sequences_without_padding(self) -> None:
        lengths, width = (2, 4, 1), 4
        count = sum(lengths)
        q, k, v, bias = f(count, 8), f(count, 8), f(count, 8), f(24)
        places = [i * width + j for i, n in enumerate(lengths) for j in range(n)]
        padding = [i * width + j for i, n in enumerate(lengths) for j in range(n, width)]
        offsets = i32(places + padding).reshape(3, width)
        ends = i32([0, *numpy.cumsum(lengths)])
        ours = self.run_case("PackedMultiHeadAttention", [q, k, v, bias, offsets, ends], heads())[0]
        for start, end in zip(ends[:-1], ends[1:], strict=True):
            part = [x[None, start:end] for x in (q, k, v)]
            self.same(ours[start:end], self.run_case("MultiHeadAttention", [*part, bias], heads())[0][0])
        joined = numpy.stack([x.reshape(count, 2, 4) for x in (q, k, v)], 2)
        self.same(self.run_case("PackedMultiHeadAttention", [joined, None, None, bias, offsets, ends], heads())[0], ours)

    def test_normalized_queries_and_keys(self) -> None:
        x, k, v, weights = f(2, 3, 32), f(2, 3, 32), f(2, 3, 32), (f(16), f(16))
        tables, lengths = (f(8, 8), f(8, 8)), (i32([2, 2]), i32([3]))

        def normalized(x: numpy.ndarray, weight: numpy.ndarray) -> numpy.ndarray:
            split = x.reshape(2, 3, 2, 16)
            return (split / numpy.sqrt((split**2).mean(-1, keepdims=True) + 1e-6) * weight).reshape(2, 3, 32)

        attributes = heads(kv_num_heads=2, do_rotary=1)
        rest: list[numpy.ndarray | None] = [None, None, *lengths, *tables]
        ours = self.run_case("GroupQueryAttention", [x, k, v, *rest, None, None, None, None, None, *weights], attributes, 3)
        expected = self.run_case("GroupQueryAttention", [normalized(x, weights[0]), normalized(k, weights[1]), v, *rest], attributes, 3)
        for a, b in zip(ours, expected, strict=True):
            self.same(a, b)

    def test_group_norm(self) -> None:
        x, gamma, beta, skip, bias = f(2, 3, 5, 8), f(8), f(8), f(2, 8), f(8)
        for last in (0, 1):
            for with_skip in (False, True):
                for activation in (0, 1):
                    total = x + skip[:, None, None] + bias if with_skip else x
                    groups = total.reshape(2, 15, 4, 2)
                    mean, variance = groups.mean((1, 3), keepdims=True), groups.var((1, 3), keepdims=True)
                    expected = ((groups - mean) / numpy.sqrt(variance + 1e-5)).reshape(x.shape) * gamma + beta
                    expected = silu(expected) if activation else expected
                    order = (0, 1, 2, 3) if last else (0, 3, 1, 2)
                    inputs = [x.transpose(order), gamma, beta, *([skip, bias] if with_skip else [])]
                    op = "SkipGroupNorm" if with_skip else "GroupNorm"
                    attributes = {"groups": 4, "channels_last": last, "activation": activation}
                    ours = self.run_case(op, inputs, attributes, 2 if with_skip else 1)
                    self.same(ours[0], expected.transpose(order))
                    if with_skip:
                        self.same(ours[1], total.transpose(order))

    def test_bias_and_convolution(self) -> None:
        x, bias, skip = f(2, 3, 8), f(8), f(2, 3, 8)
        self.same(self.run_case("BiasAdd", [x, bias, skip])[0], x + bias + skip)
        left, right = numpy.split(x + bias, 2, -1)
        gelu = backend.run_node(helper.make_node("Gelu", ["x"], ["y"]), [right])[0]
        self.same(self.run_case("BiasSplitGelu", [x, bias])[0], left * gelu)
        image, weight = f(1, 2, 5, 6), f(3, 2, 3, 3)
        expected = backend.run_node(helper.make_node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1]), [image, weight])[0]
        ours = self.run_case("NhwcConv", [image.transpose(0, 2, 3, 1), weight.transpose(0, 2, 3, 1)], {"pads": [1, 1, 1, 1]})[0]
        self.same(ours, expected.transpose(0, 2, 3, 1))


if __name__ == "__main__":
    unittest.main()
