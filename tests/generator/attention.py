"""Draws attention: ONNX's operator, or products and a softmax that say the same, over small and odd sizes of everything.

A key is kept in every row, since ONNX leaves rows without one undefined.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy

from draw import CALLS, Dim, Draw, Value
from onnx import helper

LENGTHS = (1, 1, 2, 3, 5, 8, 15, 16, 17, 33)
WIDTHS = (1, 2, 3, 5, 8, 16, 17, 20)
HEADS = (1, 2, 3, 4)
DTYPES = (numpy.float16, numpy.float16, numpy.float16, numpy.float32, numpy.float64)
OPERATOR_SINCE = 23


class Attention:
    def __init__(self, draw: Draw, rng: numpy.random.Generator) -> None:
        self._draw, self._rng = draw, rng
        self._dtype = numpy.dtype(self.pick(DTYPES))
        self._batch = self.length((1, 1, 2, 3))
        self._queries, self._keys = self.length(LENGTHS), self.length(LENGTHS)
        self._key_heads = int(self.pick(HEADS))
        self._heads = self._key_heads * int(self.pick((1, 1, 2, 3)))
        self._width, self._value_width = int(self.pick(WIDTHS)), int(self.pick(WIDTHS))

    def pick(self, items: Sequence[Any]) -> Any:
        return items[int(self._rng.integers(len(items)))]

    def chance(self, p: float) -> bool:
        return bool(self._rng.random() < p)

    def length(self, known: Sequence[int]) -> Dim:
        """A number, or a symbol of the model."""
        return self.pick(list(self._draw.symbols.values())) if self.chance(0.4) else (int(self.pick(known)),) * CALLS

    def input(self, dims: Sequence[Dim], spread: float = 1) -> Value:
        arrays = [self._rng.normal(0, spread, [d[call] for d in dims]) for call in range(CALLS)]
        return self._draw.add_input([numpy.clip(a, -3, 3).astype(self._dtype) for a in arrays])

    def mask(self) -> Value:
        """Boolean or added, over some of [batch, heads, queries, keys]."""
        keep = self.chance(0.5)
        dims = [self._batch, (self._heads,) * CALLS, self._queries, self._keys]
        dims = [d if i == 3 or self.chance(0.5) else (1,) * CALLS for i, d in enumerate(dims)]
        while len(dims) > 2 and set(dims[0]) == {1} and self.chance(0.5):
            dims = dims[1:]
        if dims[-2] != self._queries and self.chance(0.7):  # as ONNX Runtime takes it
            dims[-2] = self._queries
        arrays = []
        for call in range(CALLS):
            hidden = self._rng.random([d[call] for d in dims]) < 0.3
            hidden[..., :1] = False
            added = numpy.where(hidden, self.pick((-numpy.inf, -5.0, -1e4)), numpy.round(self._rng.normal(0, 1, hidden.shape), 2))
            arrays.append(~hidden if keep else added.astype(self._dtype))
        return self._draw.add_input(arrays)

    def operator(self) -> bool:
        flat = self.chance(0.3)  # [batch, length, heads * width]

        def tensor(heads: int, length: Dim, width: int) -> Value:
            return self.input([self._batch, length, (heads * width,) * CALLS] if flat else [self._batch, (heads,) * CALLS, length, (width,) * CALLS])

        operands = [
            tensor(self._heads, self._queries, self._width),
            tensor(self._key_heads, self._keys, self._width),
            tensor(self._key_heads, self._keys, self._value_width),
        ]
        attributes: dict[str, Any] = {"q_num_heads": self._heads, "kv_num_heads": self._key_heads} if flat else {}
        if self.chance(0.4):
            operands.append(self.mask())
        if self.chance(0.3):
            attributes["is_causal"] = 1
        if self.chance(0.3):
            attributes["scale"] = float(self.pick((0.125, 0.3, 1.0)))
        if self.chance(0.2):
            attributes["softcap"] = float(self.pick((0.5, 3.0)))
        return self.apply("Attention", operands, **attributes) is not None

    def steps(self) -> bool:
        """The keys are given transposed, or are; a softmax over the last axis."""
        shape = [self._batch, (self._heads,) * CALLS]
        q = self.input([*shape, self._queries, (self._width,) * CALLS])
        v = self.input([*shape, self._keys, (self._value_width,) * CALLS])
        if self.chance(0.5):
            k: Value | None = self.input([*shape, (self._width,) * CALLS, self._keys])
        else:
            k = self.apply("Transpose", [self.input([*shape, self._keys, (self._width,) * CALLS])], perm=[0, 1, 3, 2])
        x = k and self.apply("MatMul", [q, k])
        if self.chance(0.7):
            x = x and self.apply("Mul", [x, self.number(self.pick((0.125, 0.35)))])
        if self.chance(0.2):
            x = x and self.apply("Tanh", [x])
        if self.chance(0.5):
            mask = self.mask()
            if mask.dtype == numpy.bool_:
                x = x and self.apply("Where", [mask, x, self.number(self.pick((-numpy.inf, -1e4)))])
            else:
                x = x and self.apply("Add", [x, mask])
        p = x and self.apply("Softmax", [x], axis=-1)
        return (p and self.apply("MatMul", [p, v])) is not None

    def apply(self, op: str, operands: Sequence[Value], **attributes: Any) -> Value | None:
        """Masks and masked scores are infinite."""
        node = helper.make_node(op, [v.name for v in operands], [self._draw.names.fresh("v")], **attributes)
        made = self._draw.add_node(node, operands, unusual=True)
        return made[0] if made else None

    def number(self, value: float) -> Value:
        return self._draw.add_weight(numpy.asarray(value, self._dtype))


def draw_attention(draw: Draw, rng: numpy.random.Generator) -> bool:
    """Whether ONNX Runtime takes what was drawn; what it refuses is left out."""
    saved = draw.mark()
    attention = Attention(draw, rng)
    if attention.operator() if draw.opset >= OPERATOR_SINCE and rng.random() < 0.6 else attention.steps():
        return True
    draw.drop_after(saved)
    return False
