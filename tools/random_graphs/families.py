"""Random small graphs of seven families, as functions of tensors: what is drawn follows from the seed alone."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F

FLOATS = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
EDGES = (0, 1, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129)


@dataclasses.dataclass
class Graph:
    """A function and its inputs. Tensors of floating-point type get gradients where `backward` is set."""

    name: str
    function: Callable[..., Any]
    inputs: list[torch.Tensor]
    backward: bool
    dynamic: bool
    bits: bool = False  # eager's bits are expected, with strict rounding


class Draw:
    """Random choices of one seed."""

    def __init__(self, seed: int, device: str):
        self.random = random.Random(seed)
        self.generator = torch.Generator().manual_seed(seed)
        self.device = device
        self.dtype: torch.dtype = self.one(FLOATS)

    def one(self, choices: Sequence[Any]) -> Any:
        return self.random.choice(list(choices))

    def flip(self, p: float = 0.5) -> bool:
        return self.random.random() < p

    def size(self, least: int = 0, most: int = 129) -> int:
        return int(self.one([e for e in EDGES if least <= e <= most]))

    def tensor(self, *shape: int, dtype: torch.dtype | None = None, positive: bool = False) -> torch.Tensor:
        t = torch.randn(shape, generator=self.generator, dtype=torch.float64)
        if positive:
            t = t.abs() + 0.1
        return t.to(dtype or self.dtype).to(self.device)

    def integers(self, high: int, *shape: int) -> torch.Tensor:
        return torch.randint(0, max(1, high), shape, generator=self.generator).to(self.device)

    def flags(self, *shape: int) -> torch.Tensor:
        return (torch.rand(shape, generator=self.generator) < 0.7).to(self.device)

    def strided(self, t: torch.Tensor) -> torch.Tensor:
        """The same values, sometimes with other strides or at an odd address."""
        if t.dim() < 2 or t.numel() == 0 or self.flip(0.6):
            return t
        if self.flip():
            return t.transpose(0, -1).contiguous().transpose(0, -1)
        wide = torch.zeros((*t.shape[:-1], t.shape[-1] + 1), dtype=t.dtype, device=t.device)
        wide[..., 1:] = t
        return wide[..., 1:]

    POINTWISE: tuple[tuple[str, Callable[[torch.Tensor], torch.Tensor]], ...] = (
        ("relu", torch.relu), ("gelu", F.gelu), ("tanh", torch.tanh), ("sigmoid", torch.sigmoid), ("silu", F.silu),
        ("scaled", lambda x: x * 0.5 + 1), ("exp", lambda x: (-x.abs()).exp()), ("abs", torch.abs), ("square", torch.square),
        ("clamp", lambda x: x.clamp(-1, 1)), ("where", lambda x: torch.where(x > 0, x, x * 0.1)), ("same", lambda x: x),
    )  # fmt: skip

    def pointwise(self) -> tuple[str, Callable[[torch.Tensor], torch.Tensor]]:
        return self.one(self.POINTWISE)  # type: ignore[no-any-return]


def attention(d: Draw) -> tuple[str, Callable[..., Any], list[torch.Tensor]]:
    batch, key_heads, group = d.size(1, 4), d.one((1, 2, 3, 4)), d.one((1, 1, 1, 2, 3))
    queries, keys = d.one((1, 1, d.size(1), d.size(1))), d.size(1)
    width, value_width = d.one((1, 8, 16, 24, 32, 40, 64, 72, 80, 96, 128)), None
    value_width = d.one((width, width, 64, 33))
    q = d.tensor(batch, key_heads * group, queries, width)
    k, v = d.tensor(batch, key_heads, keys, width), d.tensor(batch, key_heads, keys, value_width)
    mask = d.one(("none", "none", "causal", "bool", "bias", "key"))
    scale = d.one((None, None, 1.0, 0.3))
    how, act = d.pointwise()
    inputs = [d.strided(q), d.strided(k), d.strided(v)]
    if mask == "bool":
        given = d.flags(d.one((1, batch)), d.one((1, key_heads * group)), queries, keys)
        given[..., 0] = True
        inputs.append(given)
    elif mask == "key":
        given = d.flags(batch, 1, 1, keys)
        given[..., 0] = True
        inputs.append(given)
    elif mask == "bias":
        inputs.append(d.tensor(d.one((1, batch)), d.one((1, key_heads * group)), d.one((1, queries)), keys))

    def f(q: Any, k: Any, v: Any, m: Any = None) -> Any:
        out = F.scaled_dot_product_attention(
            act(q), k, v, attn_mask=m if m is None or m.dtype == torch.bool else m.to(q.dtype), is_causal=mask == "causal",
            scale=scale, enable_gqa=group > 1)  # fmt: skip
        return out.transpose(1, 2).flatten(2)

    return f"sdpa {mask} group {group} after {how}", f, inputs


def products(d: Draw) -> tuple[str, Callable[..., Any], list[torch.Tensor]]:
    rows, inner, columns = d.size(), d.size(), d.size()
    form = d.one(("linear", "matmul", "batched", "addmm", "chain", "vector", "einsum"))
    (before, pre), (after, post) = d.pointwise(), d.pointwise()
    x, w = d.tensor(rows, inner), d.tensor(columns, inner)
    if form == "linear":
        return f"{form} {before} {after}", lambda x, w, b: post(F.linear(pre(x), w, b)), [d.strided(x), w, d.tensor(columns)]
    if form == "matmul":
        return f"{form} {before} {after}", lambda x, w: post(pre(x) @ w.t()), [d.strided(x), d.strided(w)]
    if form == "batched":
        n = d.size(0, 9)
        a, b = d.tensor(n, rows, inner), d.tensor(d.one((1, n)), inner, columns)
        return f"{form} {before} {after}", lambda a, b: post(torch.matmul(pre(a), b)), [d.strided(a), d.strided(b)]
    if form == "addmm":
        return f"{form} {after}", lambda c, x, w: post(torch.addmm(c, x, w.t(), beta=0.5, alpha=2)), [d.tensor(d.one((1, rows)), columns), x, w]
    if form == "chain":
        return f"{form} {before}", lambda x, w, u: pre(x @ w.t()) @ u, [x, w, d.tensor(columns, d.size())]
    if form == "vector":
        return f"{form} {after}", lambda x, u: post(x @ u), [x, d.tensor(inner)]
    heads = d.one((1, 2, 3))
    return form, lambda a, b: torch.einsum("hri,hci->rhc", a, b), [d.tensor(heads, rows, inner), d.tensor(heads, columns, inner)]


def convolutions(d: Draw) -> tuple[str, Callable[..., Any], list[torch.Tensor]]:
    spatial, groups = d.one((1, 2, 2, 3)), d.one((1, 1, 2, 3))
    kernel, stride, dilation, pad = d.one((1, 2, 3, 5)), d.one((1, 1, 2, 3)), d.one((1, 1, 2)), d.one((0, 1, 2))
    least = dilation * (kernel - 1) + 1
    sizes = [max(least, d.size(1, 17 if spatial == 3 else 33)) for _ in range(spatial)]
    channels, outputs = groups * d.one((1, 2, 3, 8, 16)), groups * d.one((1, 2, 4, 16))
    batch = d.size(0, 4)
    transposed = d.flip(0.25)
    conv = getattr(F, f"conv{'_transpose' if transposed else ''}{spatial}d")
    weight = d.tensor(*((channels, outputs // groups) if transposed else (outputs, channels // groups)), *[kernel] * spatial)
    x, bias = d.tensor(batch, channels, *sizes), d.tensor(outputs)
    if spatial == 2 and batch and d.flip():
        x = x.to(memory_format=torch.channels_last)
    after, post = d.pointwise()
    norm = not transposed and d.flip(0.3)

    def f(x: Any, w: Any, b: Any) -> Any:
        y = conv(x, w, b, stride=stride, padding=min(pad, dilation * (kernel - 1)), dilation=dilation, groups=groups)
        return post(F.group_norm(y, 1) if norm else y)

    return f"{conv.__name__} kernel {kernel} stride {stride} groups {groups} {after}", f, [x, weight, bias]


def reductions(d: Draw) -> tuple[str, Callable[..., Any], list[torch.Tensor]]:
    rank = d.one((1, 2, 2, 3, 4))
    x = d.strided(d.tensor(*(d.size(0, 129 if rank < 3 else 17) for _ in range(rank))))
    axes = tuple(sorted(d.random.sample(range(rank), d.random.randint(1, rank))))
    keep = d.flip()
    before, pre = d.pointwise()
    kinds: dict[str, Callable[[torch.Tensor], Any]] = {
        "sum": lambda x: x.sum(axes, keep), "mean": lambda x: x.mean(axes, keep), "amax": lambda x: x.amax(axes, keep),
        "var": lambda x: x.var(axes, correction=0, keepdim=keep), "norm": lambda x: torch.linalg.vector_norm(x, 2, axes, keep),
        "logsumexp": lambda x: x.logsumexp(axes, keep), "prod": lambda x: (x.tanh() + 1.5).prod(axes[0], keep),
        "cumsum": lambda x: x.cumsum(axes[0]), "softmax": lambda x: x.softmax(axes[-1]),
        "softmax_sum": lambda x: x.softmax(axes[0]).sum(axes, keep), "argmax": lambda x: x.argmax(axes[0], keep),
        "tril": lambda x: x.softmax(-1).tril(-1) if x.dim() > 1 else x.softmax(-1), "centred": lambda x: x - x.mean(axes, True),
        "two": lambda x: (x.amax(axes, True) - x.mean(axes, True)) * x, "index_add": lambda x: torch.zeros_like(x).index_add(0, torch.zeros(x.shape[0], dtype=torch.long, device=x.device), x),
    }  # fmt: skip
    kind = d.one(tuple(kinds))
    return f"{kind} over {axes} of {tuple(x.shape)} after {before}", lambda x: kinds[kind](pre(x)), [x]


def pooling(d: Draw) -> tuple[str, Callable[..., Any], list[torch.Tensor]]:
    spatial = d.one((1, 2, 2))
    kernel, stride = d.one((1, 2, 3)), d.one((1, 2, 3))
    sizes = [max(kernel, d.size(1, 33)) for _ in range(spatial)]
    x = d.tensor(d.size(1, 4), d.one((1, 2, 3, 8)), *sizes)
    if spatial == 2 and d.flip():
        x = x.to(memory_format=torch.channels_last)
    pad = d.random.randint(0, kernel // 2)
    factor, corners = d.one((0.5, 0.7, 1.3, 2.0)), d.flip()
    linear = {1: "linear", 2: "bilinear"}[spatial]
    target = [d.size(1, 17) for _ in range(spatial)]
    kinds: dict[str, Callable[[torch.Tensor], Any]] = {
        "max": lambda x: getattr(F, f"max_pool{spatial}d")(x, kernel, stride, pad),
        "avg": lambda x: getattr(F, f"avg_pool{spatial}d")(x, kernel, stride, pad),
        "adaptive": lambda x: getattr(F, f"adaptive_avg_pool{spatial}d")(x, target),
        "nearest": lambda x: F.interpolate(x, scale_factor=factor, mode="nearest"),
        "linear": lambda x: F.interpolate(x, scale_factor=factor, mode=linear, align_corners=corners),
        "sized": lambda x: F.interpolate(x, size=target, mode=linear, align_corners=corners),
        "pad": lambda x: F.pad(x, (1, 2), mode=d_mode), "circular": lambda x: F.pad(x, [1] * (2 * spatial), mode="circular"),
        "slice": lambda x: x[..., 1:], "cat": lambda x: torch.cat((x, x[..., :1]), -1),
        "repeat": lambda x: x.repeat(*[1] * (x.dim() - 1), 2), "unfold": lambda x: x.unfold(-1, kernel, stride),
    }  # fmt: skip
    d_mode = d.one(("constant", "replicate"))
    kind = d.one(tuple(kinds))
    if min(sizes) * factor < 1 and kind in ("nearest", "linear"):
        kind = "sized"
    if kind == "avg" and d.device != "cpu":
        x = x.contiguous()  # eager's gradient of memory with the channels last is wrong
    before, pre = d.pointwise()
    return f"{kind} {spatial}d kernel {kernel} factor {factor} of {tuple(x.shape)} after {before}", lambda x: kinds[kind](pre(x)), [x]


def norms(d: Draw) -> tuple[str, Callable[..., Any], list[torch.Tensor]]:
    rows, columns = d.size(), d.size(1)
    x, w, b = d.strided(d.tensor(rows, columns)), d.tensor(columns), d.tensor(columns)
    before, pre = d.pointwise()
    form = d.one(("layer", "rms", "group", "batch", "cross", "mse", "smooth", "embedding", "nll", "cosine", "shifted"))
    if form == "layer":
        return f"{form} {before}", lambda x, w, b: F.layer_norm(pre(x), (columns,), w, b), [x, w, b]
    if form == "rms":
        return f"{form} {before}", lambda x, w: F.rms_norm(pre(x), (columns,), w), [x, w]
    if form == "group":
        channels = d.one((2, 4, 6))
        y = d.tensor(d.size(1, 4), channels, d.size(1, 33))
        return f"{form} {before}", lambda y, w: F.group_norm(pre(y), 2, w), [y, d.tensor(channels)]
    if form == "batch":
        y = d.tensor(max(2, d.size(0, 33)), columns)
        return f"{form} {before}", lambda y, w, b: F.batch_norm(pre(y), None, None, w, b, training=True), [y, w, b]
    if form in ("cross", "nll"):
        labels = d.integers(columns, rows)
        reduction = d.one(("mean", "sum", "none"))
        if form == "cross":
            return f"{form} {reduction}", lambda x, t: F.cross_entropy(pre(x), t, reduction=reduction), [x, labels]
        return f"{form} {reduction}", lambda x, t: F.nll_loss(pre(x).log_softmax(-1), t, reduction=reduction), [x, labels]
    if form == "shifted":
        y = d.tensor(d.size(1, 4), max(2, d.size(2, 33)), columns)
        labels = d.integers(columns, y.shape[0], y.shape[1])
        return form, lambda y, t: F.cross_entropy(y[:, :-1].flatten(0, 1), t[:, 1:].flatten()), [y, labels]
    if form == "embedding":
        table, ids = d.tensor(columns, d.size(1)), d.integers(d.one((1, columns)), rows)
        return f"{form} {before}", lambda table, ids: pre(F.embedding(ids, table)), [table, ids]
    if form == "cosine":
        return form, lambda x, y: F.cosine_similarity(x, y, -1), [x, d.tensor(rows, columns)]
    loss = F.mse_loss if form == "mse" else F.smooth_l1_loss
    return f"{form} {before}", lambda x, y: loss(pre(x), y), [x, d.tensor(rows, columns)]


NARROW = (torch.float8_e4m3fn, torch.float8_e5m2)
INTEGERS = (torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8)
UNSIGNED = (torch.uint16, torch.uint32, torch.uint64)  # PyTorch converts them and does little else


def edges(d: Draw, count: int, dtype: torch.dtype) -> torch.Tensor:
    """Values near the limits of types, between numbers of narrow ones, and ordinary ones."""
    special = [0.0, -0.0, 1.0, -1.0, 0.5, 1.5, 2.5, -2.2, 127.0, 128.0, -128.5, 255.0, 256.0, 300.0, 448.0, 464.0, 2049.0, 4097.0, 32768.0, 65504.0, 65520.0,
               57344.0, 61440.0, 7e4, 1e-9, 6e-8, 2.0**-10, 2.0**31, -(2.0**31), 2.0**33 + 1, 1e20, float("inf"), -float("inf"), float("nan"), 0.1, 1 / 3]  # fmt: skip
    if dtype.is_floating_point:
        some = torch.tensor([d.one(special) if d.flip() else d.random.gauss(0, 30) for _ in range(count)], dtype=torch.float64)
        return some.to(torch.float32).to(dtype) if dtype in NARROW else some.to(dtype)
    if dtype == torch.bool:
        return torch.tensor([d.flip() for _ in range(count)], dtype=torch.bool)
    limits = torch.iinfo(dtype)
    near = [limits.min, limits.min + 1, limits.max, limits.max - 1, 0, 1, 2, 7]
    return torch.tensor([d.one(near) if d.flip() else d.random.randint(limits.min, limits.max) for _ in range(count)], dtype=dtype)


def casts(d: Draw) -> tuple[str, Callable[..., Any], list[torch.Tensor]]:
    """Chains of conversions between types and of operators whose results every device has to the bit."""
    count, steps = d.size(1), d.random.randint(3, 9)
    kinds = (*FLOATS, *NARROW, *INTEGERS, torch.bool)
    inputs = [edges(d, count, d.one(kinds)).to(d.device) for _ in range(d.one((1, 2, 2)))]
    plan = [(d.random.random(), d.one(kinds), d.random.random(), d.random.randint(0, 99), d.flip(0.15), d.one(UNSIGNED)) for _ in range(steps)]
    kept = {steps - 1, *(i for i in range(steps) if d.flip(0.2))}
    floats: tuple[Callable[[torch.Tensor, torch.Tensor], torch.Tensor], ...] = (
        lambda x, y: x + y, lambda x, y: x - y, lambda x, y: x * y, torch.maximum, torch.minimum, lambda x, y: -x, lambda x, y: x.abs(), lambda x, y: x.relu(),
        lambda x, y: x.sign(), lambda x, y: x.floor(), lambda x, y: x.trunc(), lambda x, y: x.round(), lambda x, y: x >= y, lambda x, y: x == y,
        lambda x, y: torch.where(x > y, x, y), lambda x, y: x.clamp(-2, 100), lambda x, y: x * 0.1, lambda x, y: x + 3, lambda x, y: x.isnan(), lambda x, y: x / third,
    )  # fmt: skip
    integers: tuple[Callable[[torch.Tensor, torch.Tensor], torch.Tensor], ...] = (
        lambda x, y: x + y, lambda x, y: x - y, lambda x, y: x * y, torch.maximum, torch.minimum, lambda x, y: x.abs(), lambda x, y: x & y, lambda x, y: x ^ y,
        lambda x, y: x // 7, lambda x, y: x % 5, lambda x, y: x.clamp(-3, 1000), lambda x, y: x < y, lambda x, y: x >> 2, lambda x, y: x.sign(),
        lambda x, y: torch.div(x, 3, rounding_mode="trunc"), lambda x, y: x // -16, lambda x, y: torch.where(x > y, x, y), lambda x, y: x + 1,
    )  # fmt: skip
    third = 3 if d.device == "cpu" else 4  # eager on a GPU multiplies by the rounded inverse
    flags: tuple[Callable[[torch.Tensor, torch.Tensor], torch.Tensor], ...] = (torch.logical_and, torch.logical_xor, lambda x, y: ~x, lambda x, y: torch.where(x, 3, 5))

    def f(*given: torch.Tensor) -> list[torch.Tensor]:
        values = list(given)
        for chance, to, _, which, through, unsigned in plan:
            x, y = values[-1], values[which % len(values)]
            if x.dtype in NARROW or chance < 0.5:
                values.append((x.to(unsigned) if through and x.dtype not in NARROW else x).to(to))
                continue
            same = y.to(x.dtype)
            of = flags if x.dtype == torch.bool else floats if x.dtype.is_floating_point else integers
            values.append(of[which % len(of)](x, same))
        return [v for i, v in enumerate(values[len(given) :]) if i in kept]

    return f"{steps} steps on {count} from {' '.join(str(x.dtype)[6:] for x in inputs)}", f, inputs


FAMILIES = {"attention": attention, "products": products, "convolutions": convolutions, "reductions": reductions,
            "pooling": pooling, "norms": norms, "casts": casts}  # fmt: skip


def draw(family: str, seed: int, device: str) -> Graph:
    d = Draw(seed, device)
    name, function, inputs = FAMILIES[family](d)
    bits = family == "casts"
    return Graph(f"{name} {str(d.dtype)[6:]}", function, inputs, backward=not bits and d.flip(0.6), dynamic=d.flip(), bits=bits)
