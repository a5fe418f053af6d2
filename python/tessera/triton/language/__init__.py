"""triton.language: what kernels may write. Functions compute only inside of a function with @triton.jit.

Tensors are tiles or scalars. Operands of one operation broadcast as Triton's do, and are promoted to one dtype; a Python number adapts to
the tensor's. Each function raises an error with file, line and column for arguments that Triton refuses, and for what Tessera cannot
compile.
"""

from __future__ import annotations

from .. import _types as _t
from .._types import block_type, dtype, pointer_type, void
from .._values import constexpr, tensor
from . import core, extra, math, random, standard
from .core import *  # noqa: F403
from .math import *  # noqa: F403
from .random import *  # noqa: F403
from .standard import *  # noqa: F403

int1, int8, int16, int32, int64 = _t.int1, _t.int8, _t.int16, _t.int32, _t.int64
uint8, uint16, uint32, uint64 = _t.uint8, _t.uint16, _t.uint32, _t.uint64
float16, bfloat16, float32, float64 = _t.float16, _t.bfloat16, _t.float32, _t.float64
float8e4nv, float8e5, float8e4b8, float8e5b16 = (_t.LANGUAGE_NAMES[n] for n in ("float8e4nv", "float8e5", "float8e4b8", "float8e5b16"))
pi32_t = pointer_type(int32)
TRITON_MAX_TENSOR_NUMEL = 1 << 20

__all__ = [
    *core.__all__, *math.__all__, *random.__all__, *standard.__all__, *_t.LANGUAGE_NAMES, "block_type", "constexpr", "core", "dtype", "extra",
    "math", "pi32_t", "pointer_type", "random", "standard", "tensor", "void", "TRITON_MAX_TENSOR_NUMEL",
]  # fmt: skip
