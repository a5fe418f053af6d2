"""tl.inline_asm_elementwise: straight-line PTX of 32-bit registers, each instruction as an operation on tiles.

An instruction without rounding of its own (`approx`, `ftz`) is computed as the function that it approximates, in float32.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from . import _arithmetic as arithmetic
from . import _types as types
from ._errors import Refusal, lacking
from ._values import constant, tensor, to_tensor, unwrapped

_TYPES = {
    "f32": types.float32, "s32": types.int32, "u32": types.uint32, "b32": types.uint32, "f64": types.float64, "s64": types.int64, "u64": types.uint64, "b64": types.uint64,
    "f16": types.float16, "bf16": types.bfloat16, "s16": types.int16, "u16": types.uint16, "b16": types.uint16, "pred": types.int1,
}  # fmt: skip
_ROUNDING = ("approx", "ftz", "rn", "lo", "wide", "sat", "full")
_ONE = {"ex2": "exp2", "lg2": "log2", "sqrt": "sqrt", "rsqrt": "rsqrt", "sin": "sin", "cos": "cos", "tanh": "tanh", "rcp": "reciprocal"}
_TWO: dict[str, Callable[[Any, Any], tensor]] = {
    "add": arithmetic.add, "sub": arithmetic.sub, "mul": arithmetic.mul, "div": arithmetic.truediv,
    "min": lambda a, b: arithmetic.extreme("min", a, b), "max": lambda a, b: arithmetic.extreme("max", a, b),
    "and": lambda a, b: arithmetic.bits("and", a, b), "or": lambda a, b: arithmetic.bits("or", a, b), "xor": lambda a, b: arithmetic.bits("xor", a, b),
    "shl": lambda a, b: arithmetic.shift("shl", a, b), "shr": lambda a, b: arithmetic.shift("shr", a, b),
}  # fmt: skip


class _Assembly:
    """The registers of one piece of assembly, by name: $0 and on are results, then operands."""

    def __init__(self, results: list[types.dtype], operands: list[tensor]) -> None:
        self.registers: dict[str, tensor | None] = {f"${i}": None for i in range(len(results))}
        self.registers.update({f"${i + len(results)}": t for i, t in enumerate(operands)})

    def read(self, name: str, kind: types.dtype) -> tensor:
        """A register or a number as a type of the same width."""
        name = name.strip()
        if re.fullmatch(r"-?(\d+\.?\d*([eE][-+]?\d+)?|\.\d+)|0[fF][0-9a-fA-F]{8}|0x[0-9a-fA-F]+", name):
            return _number(name, kind)
        value = self.registers.get(name)
        if value is None:
            raise Refusal(f"inline assembly: register '{name}' has no value")
        if value.dtype.bits != kind.bits:
            raise lacking("inline_asm_elementwise")
        return arithmetic.cast(value, kind, bitcast=True)

    def run(self, text: str) -> None:
        """One instruction, or a declaration of registers."""
        if text.startswith(".reg"):
            return
        guard, _, rest = text.partition(" ") if text.startswith("@") else ("", "", text)
        opcode, _, operands = rest.strip().partition(" ")
        names = [o.strip() for o in operands.split(",")]
        value = self._value(opcode.split("."), names)
        before = self.registers.get(names[0])
        if guard and before is not None:
            test = self.read(guard.lstrip("@!"), types.int1)
            value = arithmetic.where(test, *((before, value) if guard[1] == "!" else (value, before)))
        self.registers[names[0]] = value

    def _value(self, opcode: list[str], names: list[str]) -> tensor:
        name, *flags = opcode
        kinds = [_TYPES[f] for f in flags if f in _TYPES]
        others = [f for f in flags if f not in _TYPES and f not in _ROUNDING]
        if not kinds or (name == "mul" and "wide" in flags) or "sat" in flags:
            raise lacking("inline_asm_elementwise")
        kind = kinds[0]
        if name == "setp" and len(others) == 1:
            return arithmetic.compare(others[0].rstrip("u"), self.read(names[1], kind), self.read(names[2], kind))
        if others:
            raise lacking("inline_asm_elementwise")
        if name == "cvt" and len(kinds) == 2:
            return arithmetic.cast(self.read(names[1], kinds[1]), kind)
        if name == "selp":
            return arithmetic.where(self.read(names[3], types.int1), self.read(names[1], kind), self.read(names[2], kind))
        values = [self.read(n, kind) for n in names[1:]]
        if name == "mov":
            return values[0]
        if name in _ONE and kind.is_floating():
            return arithmetic.unary(_ONE[name], values[0])
        if name in _TWO and len(values) == 2:
            return _TWO[name](*values)
        if name in ("fma", "mad"):
            return arithmetic.fused(*values)
        if name == "neg":
            return arithmetic.negative(values[0])
        if name == "abs":
            return arithmetic.absolute(values[0])
        if name == "not":
            return arithmetic.invert(values[0])
        raise lacking("inline_asm_elementwise")


def _number(text: str, kind: types.dtype) -> tensor:
    if text[:2].lower() == "0f":
        return arithmetic.cast(constant(int(text[2:], 16), types.uint32), kind, bitcast=True)
    return constant(float(text) if kind.is_floating() else int(text, 0), kind)


def inline(asm: Any, constraints: Any, args: Any, dtype: Any, pack: Any) -> Any:
    """The results of assembly for each element: one tensor, or a tuple for several dtypes."""
    asm, constraints, dtype = unwrapped(asm), unwrapped(constraints), unwrapped(dtype)
    several = isinstance(dtype, (tuple, list))
    results = [unwrapped(d) for d in dtype] if several else [dtype]
    if unwrapped(pack) != 1 or any(d.bits < 32 for d in results):
        raise lacking("inline_asm_elementwise")
    operands = list(arithmetic.together(*(to_tensor(a) for a in unwrapped(args))))
    pieces = [c.strip() for c in str(constraints).split(",")]
    if sum(p.startswith("=") for p in pieces) != len(results) or len(pieces) != len(results) + len(operands):
        raise Refusal(f"inline assembly: constraints '{constraints}' are not of {len(results)} results and {len(operands)} operands")
    assembly = _Assembly(results, operands)
    text = re.sub(r"//[^\n]*|/\*.*?\*/", " ", str(asm), flags=re.S).replace("{", " ").replace("}", " ")
    for statement in text.split(";"):
        if statement.strip():
            assembly.run(" ".join(statement.split()))
    values = tuple(assembly.read(f"${i}", d) for i, d in enumerate(results))
    return values if several else values[0]
