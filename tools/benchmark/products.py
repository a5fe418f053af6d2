"""Random products of matrices with what stands before and behind them, for --products: the same points for the same seed.

M from 1 to 16384, N and K from 64 to 16384; a third of the points have rows that are no whole accesses of 16 bytes."""
import math, random
from .case import Case

TYPES = ("f16", "bf16", "f32")
LEAST, LARGE, MOST = 64, 768, 16384  # half of the points have large extents alone
# Operations of a point at most, and elements of its matrices together: a point takes milliseconds, and sets of its memory fit a GPU.
OPERATIONS, ELEMENTS = {"cuda": 1 << 41, "cpu": 1 << 33}, {"cuda": 1 << 29, "cpu": 1 << 25}


class Builder:
    """Inputs and nodes of a point whose product is of [m, k] and [k, n]."""
    def __init__(self, m, k, n, dtype):
        self.m, self.k, self.n, self.dtype, self.inputs, self.nodes, self.made = m, k, n, dtype, {}, [], 0

    def input(self, name, shape, data="normal", dtype=None):
        self.inputs[name] = {"shape": shape, "dtype": dtype or self.dtype, "data": data}
        return name

    def node(self, op, *ins, **attrs):
        self.made += 1
        self.nodes.append([op, list(ins), [f"v{self.made}"], *([attrs] if attrs else [])])
        return f"v{self.made}"

    def weight(self, name="w"):
        return self.input(name, [self.k, self.n], "small")

    def biased(self, x):
        return self.node("Add", x, self.input("b", [self.n]))

    def scalar(self, name, value):
        return self.input(name, [], value)


def _layer_norm(b, x, columns, tag):
    return b.node("LayerNormalization", x, b.input(f"{tag}_scale", [columns]), b.input(f"{tag}_bias", [columns]), axis=-1)


PROLOGUES = {
    "plain": lambda b: b.input("x", [b.m, b.k]),
    "relu": lambda b: b.node("Relu", b.input("x", [b.m, b.k])),
    "scaled": lambda b: b.node("Mul", b.input("x", [b.m, b.k]), b.input("s", [b.m, 1], "uniform")),
    "norm": lambda b: _layer_norm(b, b.input("x", [b.m, b.k]), b.k, "before"),
}
EPILOGUES = {
    "none": lambda b, y, x: y,
    "bias": lambda b, y, x: b.biased(y),
    "relu": lambda b, y, x: b.node("Relu", b.biased(y)),
    "gelu": lambda b, y, x: b.node("Gelu", b.biased(y)),
    "silu": lambda b, y, x: b.node("Silu", b.biased(y)),
    "residual": lambda b, y, x: b.node("Add", b.biased(y), b.input("r", [b.m, b.n])),
    "gelu_mask": lambda b, y, x: b.node("Where", b.input("mask", [b.m, b.n], "mask", "bool"), b.node("Gelu", b.biased(y)), b.scalar("zero", 0.0)),
    "gate": lambda b, y, x: b.node("Mul", b.node("Silu", y), b.node("MatMul", x, b.weight("w2"))),
    "softmax": lambda b, y, x: b.node("Softmax", y, axis=-1),
    "norm": lambda b, y, x: b.node("Relu", _layer_norm(b, b.biased(y), b.n, "behind")),
}


def case(m, k, n, dtype, prologue, epilogue):
    b = Builder(m, k, n, dtype)
    x = PROLOGUES[prologue](b)
    y = EPILOGUES[epilogue](b, b.node("MatMul", x, b.weight()), x)
    count = sum(op == "MatMul" for op, *_ in b.nodes)
    return Case(f"product.{m}x{k}x{n}.{dtype}.{prologue}.{epilogue}", b.inputs, b.nodes, [y], 2 * m * k * n * count, f"{prologue}.{epilogue}")


def _extent(r, low, high, aligned):
    n = round(math.exp(r.uniform(math.log(low), math.log(high))))
    if not aligned: return max(low, n if n % 8 else n - r.randrange(1, 8))
    power = 1 << (n.bit_length() - 1)
    return max(low, power if r.random() < 0.3 else n // 8 * 8 if n >= 8 else n)


def points(count, seed, device, wanted=lambda name: True):
    r = random.Random(seed)
    out, names = [], set()
    while len(out) < count:
        number = len(out)
        aligned = number % 3 != 2
        least = (1, LEAST, LEAST) if number % 4 < 2 else (LARGE, LARGE, LARGE)
        m, k, n = (_extent(r, low, MOST, aligned) for low in least)
        prologue = "plain" if number % 2 else r.choice(list(PROLOGUES))
        epilogue = list(EPILOGUES)[number % len(EPILOGUES)]
        made = case(m, k, n, TYPES[number % len(TYPES)] if r.random() < 0.5 else r.choice(TYPES[:2]), prologue, epilogue)
        if made.flops > OPERATIONS[device] or m * k + 2 * k * n + 3 * m * n > ELEMENTS[device] or made.name in names: continue
        names.add(made.name)
        out.append(made)
    return [c for c in out if wanted(c.name)]


def summary(rows, peer, report):
    """By which the sweep is judged: right or wrong, the ratio to `peer` where products take long, and to the library's route."""
    out = [f"{sum(not r.get('wrong') for r in rows)} of {len(rows)} points right"] + [f"  {r['case']}: {r['wrong']}" for r in rows if r.get("wrong")]
    long = [r for r in rows if (report.time_of(r, peer) or 0) > 30 and report.ratio(r, peer)]
    if long:
        over = sorted((r for r in long if report.ratio(r, peer) > 1.05), key=lambda r: -report.ratio(r, peer))
        out.append(f"over {report.LABELS[peer]} where that takes over 30 us: geometric mean {report.geometric_mean(report.ratio(r, peer) for r in long):.3f} of {len(long)} points, {len(over)} above 1.05:")
        out += [f"  {r['case']}: {report.ratio(r, peer):.2f}" for r in over]
    routes = [r for r in rows if report.ratio(r, "library")]
    if routes:
        worse = [r for r in routes if report.ratio(r, "library") > 1.07]
        other = [r for r in routes if abs(report.ratio(r, "library") - 1) > 0.02]
        out.append(f"over libraries alone: geometric mean {report.geometric_mean(report.ratio(r, 'library') for r in routes):.3f}; {len(worse)} of {len(routes)} points above 1.07; "
                   f"{len(other)} differ by over 2 %, geometric mean {report.geometric_mean(report.ratio(r, 'library') for r in other) or 1:.3f}:")
        out += [f"  {r['case']}: {report.ratio(r, 'library'):.2f}" for r in other]
    return out
