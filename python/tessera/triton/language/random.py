"""Random numbers of triton.language: the counter-based generator Philox, with Triton's bits.

The generator is that of Salmon, Moraes, Dror and Shaw, "Parallel Random Numbers: As Easy as 1, 2, 3" (2011).
"""

from __future__ import annotations

from typing import Any

from .. import _arithmetic as _a
from .. import _types as _t
from .._values import constexpr, tensor, to_tensor, unwrapped
from .math import cos, log, sin, sqrt, umulhi

_KEYS = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = (0xD2511F53, 0xCD9E8D57)
N_ROUNDS_DEFAULT = constexpr(10)


def _word(x: Any) -> tensor:
    x = unwrapped(x)
    return _a.cast(x if isinstance(x, tensor) else int(x) & 0xFFFFFFFF, _t.uint32)


def philox_impl(c0: Any, c1: Any, c2: Any, c3: Any, k0: Any, k1: Any, n_rounds: Any = 10) -> tuple[tensor, ...]:
    """Rounds of Philox on four words of the counter and two of the key; uint32."""
    a, b = (_word(r) for r in _ROUNDS)
    for _ in range(int(unwrapped(n_rounds))):
        before = c0, c2
        c0 = _a.bits("xor", _a.bits("xor", umulhi(b, before[1]), c1), k0)
        c2 = _a.bits("xor", _a.bits("xor", umulhi(a, before[0]), c3), k1)
        c1, c3 = _a.mul(b, before[1]), _a.mul(a, before[0])
        k0, k1 = _a.add(k0, _KEYS[0]), _a.add(k1, _KEYS[1])
    return c0, c1, c2, c3


def philox(seed: Any, c0: Any, c1: Any, c2: Any, c3: Any, n_rounds: Any = 10) -> tuple[tensor, ...]:
    """Four uint32 tensors of random bits, of a 64-bit seed and a counter of four words."""
    seed = unwrapped(seed)
    wide = _a.cast(seed if isinstance(seed, tensor) else int(seed) & (2**64 - 1), _t.uint64)
    low = _a.cast(_a.bits("and", wide, 0xFFFFFFFF), _t.uint32)
    high = _a.cast(_a.bits("and", _a.shift("shr", wide, 32), 0xFFFFFFFF), _t.uint32)
    return philox_impl(_word(c0), _word(c1), _word(c2), _word(c3), low, high, n_rounds)


def randint4x(seed: Any, offset: Any, n_rounds: Any = 10) -> tuple[tensor, ...]:
    """Four tensors of random integers of the offset's shape, int32 or uint32 as the offset is."""
    t = to_tensor(offset)
    high: Any = 0
    if t.dtype.bits == 64:
        high = _a.cast(_a.shift("shr", _a.cast(t, _t.uint64), 32), _t.uint32)
    words = philox(seed, t, high, 0, 0, n_rounds)
    return tuple(_a.cast(w, _t.uint32) for w in words)


def randint(seed: Any, offset: Any, n_rounds: Any = 10) -> tensor:
    """Random integers of the offset's shape."""
    return randint4x(seed, offset, n_rounds)[0]


def uint_to_uniform_float(x: Any) -> tensor:
    """Random integers as float32 in [0, 1)."""
    bits = _a.cast(x, _t.int32, bitcast=True)
    return _a.mul(_a.where(_a.compare("lt", bits, 0), _a.sub(_a.negative(bits), 1), bits), 4.6566127342e-10)


def rand(seed: Any, offset: Any, n_rounds: Any = 10) -> tensor:
    """Uniform float32 in [0, 1), of the offset's shape."""
    return uint_to_uniform_float(randint(seed, offset, n_rounds))


def rand4x(seed: Any, offset: Any, n_rounds: Any = 10) -> tuple[tensor, ...]:
    """Four tensors of uniform float32."""
    return tuple(uint_to_uniform_float(x) for x in randint4x(seed, offset, n_rounds))


def pair_uniform_to_normal(u1: Any, u2: Any) -> tuple[tensor, tensor]:
    """Two normal float32 tensors of two uniform ones, by the transform of Box and Muller."""
    u1 = _a.extreme("max", 1.0e-7, u1)
    angle = _a.mul(6.283185307179586, u2)
    radius = sqrt(_a.mul(-2.0, log(u1)))
    return _a.mul(radius, cos(angle)), _a.mul(radius, sin(angle))


def randn(seed: Any, offset: Any, n_rounds: Any = 10) -> tensor:
    """Normal float32, of the offset's shape."""
    a, b, _, _ = randint4x(seed, offset, n_rounds)
    return pair_uniform_to_normal(uint_to_uniform_float(a), uint_to_uniform_float(b))[0]


def randn4x(seed: Any, offset: Any, n_rounds: Any = 10) -> tuple[tensor, ...]:
    """Four tensors of normal float32."""
    u = rand4x(seed, offset, n_rounds)
    return (*pair_uniform_to_normal(u[0], u[1]), *pair_uniform_to_normal(u[2], u[3]))


__all__ = ["pair_uniform_to_normal", "philox", "philox_impl", "rand", "rand4x", "randint", "randint4x", "randn", "randn4x", "uint_to_uniform_float"]
