"""The sweep: points that the suite does not contain, drawn from a seed. Rows from 1 to 1e5, columns from 7 to 2^20, odd, prime and even ones."""
import math, random
from .families import FAMILIES

TYPES = ("f32", "f16", "bf16")
# Elements of the matrix: nine points of ten lie in the upper range, which is above 8 MB for most of the families.
SMALL, LARGE = (1 << 6, 1 << 20), {"cuda": (1 << 22, 1 << 27), "cpu": (1 << 21, 1 << 24)}


def _prime_below(n):
    while n > 3 and any(n % d == 0 for d in range(2, math.isqrt(n) + 1)): n -= 1
    return n


def _extent(r, low, high):
    """Between the two, even over the logarithm; a power of two, a multiple of 8, odd, prime or anything."""
    low = max(low, 1)
    n = int(round(math.exp(r.uniform(math.log(low), math.log(max(high, low))))))
    kind = r.choice(("power", "eight", "odd", "prime", "any"))
    shaped = {"power": 1 << (n.bit_length() - 1), "eight": n // 8 * 8, "odd": n | 1, "prime": _prime_below(n), "any": n}[kind]
    return shaped if low <= shaped <= high else min(max(n, low), high)


def points(count, seed, device, wanted=lambda name: True):
    """Families in turn, each with another type every time; the same points for the same seed."""
    r = random.Random(seed)
    families = list(FAMILIES)
    out, names = [], set()
    while len(out) < count:
        turn, number = divmod(len(out), len(families))
        family, dtype = families[number], TYPES[(turn + number) % len(TYPES)]
        low, high = SMALL if r.random() < 0.1 else LARGE[device]
        elements = math.exp(r.uniform(math.log(low), math.log(high)))
        columns = _extent(r, max(7, math.ceil(elements / 1e5)), min(1 << 20, max(7, int(elements))))
        rows = max(1, min(100000, int(elements / columns)))
        rows = _extent(r, max(1, rows - rows // 8), min(100000, rows + rows // 8))
        if family in ("softmax_strided", "group_norm_silu"): rows = max(1, rows // 2)
        case = FAMILIES[family](rows, columns, dtype)
        if case.name in names: continue
        names.add(case.name)
        out.append(case)
    return [c for c in out if wanted(c.name)]
