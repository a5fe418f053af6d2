"""Copies of samples of PyTorch's operator database with special values: limits of integers, NaN, zeros, infinities, indices beyond.

A tensor of a sample is an index if the sample of the same number in f32 has an integer tensor in its place; the others are values.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.testing._internal.opinfo.core import OpInfo, SampleInput
from torch.utils import _pytree as pytree

Number = int | float

# Names of copies, as `variants` gives them.
INFINITE, OVERFLOW, ANY = ("inf", "-inf", "all"), ("inf", "-inf", "max", "all"), ()

# Operators, which copies of their samples have results that differ from eager's, and why. No names: all copies.
_KNOWN: tuple[tuple[str, tuple[str, ...], Sequence[str]], ...] = (
    (
        "eager updates a mean element by element, inf - inf on the way to an infinite one; and its statistics are of 64 bits on a CPU", OVERFLOW,
        ("var_mean", "var_mean.unbiased", "std_mean", "std_mean.unbiased", "std", "std.unbiased", "native_group_norm", "nn.functional.group_norm", "native_layer_norm",
         "nn.functional.layer_norm", "native_batch_norm", "_native_batch_norm_legit", "_batch_norm_with_update", "nn.functional.batch_norm",
         "nn.functional.batch_norm.without_cudnn", "nn.functional.instance_norm"),
    ),
    ("eager multiplies padding by an infinite weight or gradient, or not, by the kernel that it chooses", INFINITE,
     ("nn.functional.conv1d", "nn.functional.conv2d", "nn.functional.conv_transpose1d", "nn.functional.conv_transpose2d",
      "nn.functional.conv_transpose3d")),
    ("eager's attention takes a row with NaN or an overflow for a masked one, by the width of its vectors", ("nan", *OVERFLOW),
     ("nn.functional.scaled_dot_product_attention", "torch.ops.aten._scaled_dot_product_flash_attention_for_cpu")),
    ("eager's vectors have another gradient at NaN than its single elements", ("all", "nan"), ("nn.functional.hardtanh", "nn.functional.relu6", "nn.functional.hardswish")),
    ("equal elements, of which halves have many, come in any order, and their gradients with them", ("nan", "zeros", *OVERFLOW), ("sort", "msort")),
    ("eager's vectors have another gradient at a zero than its single elements", ("all",), ("logit",)),
    ("the gradients of exponentials of numbers around 1e4 have their rounding", ANY, ("logcumsumexp",)),
    ("PyTorch's decomposition for compilers multiplies what is not chosen by the weight", INFINITE, ("nn.functional.nll_loss", "nn.functional.cross_entropy")),
    ("eager's vectors fuse the multiplication and the addition, or not, by their width", ("all",), ("addcmul",)),
    ("the sign of a zero depends in eager mode on whether a vector has it", ("all",), ("clamp",)),
    ("the order of the parts of PyTorch's decomposition for compilers differs: a difference of two overflows", OVERFLOW, ("_softmax_backward_data",)),
    ("integers as gradients: PyTorch's decomposition for compilers multiplies by a fraction first", ("limits", "least"), ("native_dropout_backward",)),
    ("boundaries that are not sorted have no right place", ANY, ("bucketize",)),
    ("eager's weights are of 16 bits: off by one", ANY, ("_upsample_bilinear2d_aa",)),
    ("eager's formula overflows where ours does not", OVERFLOW, ("nn.functional.soft_margin_loss", "nn.functional.hardswish")),
    ("eager's vectors overflow where its single elements do not", OVERFLOW, ("nn.functional.gelu",)),
    ("eager rounds between its operators, which draw other numbers in a wider type", OVERFLOW, ("nn.functional.feature_alpha_dropout.with_train",)),
    ("a half overflows between eager's operators, and not in a kernel that computes in f32", OVERFLOW,
     ("nn.functional.local_response_norm", "prod", "nn.functional.grid_sample", "grid_sampler_2d", "nn.functional.cosine_embedding_loss")),
    ("the least integer has no absolute value in eager mode", ("limits", "least"), ("gcd", "lcm")),
    ("eager's polygamma has no value at infinity, and no poles at negative integers that are large", ("all", "limits", "least"),
     (*(f"polygamma.polygamma_n_{n}" for n in range(5)), "special.polygamma.special_polygamma_n_0")),
    ("a reciprocal at the largest number is it, or overflows", ("all",), ("digamma",)),
    ("solutions of a system with the largest number have no digit that is right", ("max",), ("linalg.lu_solve",)),
)  # fmt: skip

# The same of GPUs alone.
_KNOWN_ON_GPUS: tuple[tuple[str, tuple[str, ...], Sequence[str]], ...] = (
    ("eager's kernel multiplies by what became NaN", INFINITE, ("nn.functional.rms_norm",)),
    ("an integer divided by zero is all ones", ("limits",), ("__rmod__",)),
    ("of values that are equally frequent any is the mode", ("limits", "least", "largest"), ("mode",)),
    ("a state of the random generator is a result", ANY, ("torch.ops.aten._flash_attention_forward", "torch.ops.aten._efficient_attention_forward")),
)  # fmt: skip

# Eager mode writes outside of its memory at positions beyond.
UNCHECKED = ("linalg.ldl_solve",)


def is_known(name: str, copy_name: str, device: str) -> bool:
    known = _KNOWN if device == "cpu" else (*_KNOWN, *_KNOWN_ON_GPUS)
    return any(name in names and (not copies or copy_name in copies) for _, copies, names in known)


def integer_limits(dtype: torch.dtype) -> list[int]:
    i = torch.iinfo(dtype)
    return sorted({i.min, i.max, i.min + 1, i.max - 1, 0, 1} | ({-1} if i.min < 0 else set()), key=lambda v: v * 7919 % 101)


def float_limits(dtype: torch.dtype) -> list[float]:
    f = torch.finfo(dtype)
    return [float("nan"), -0.0, f.max, float("inf"), 0.0, -f.max, f.tiny, float("-inf"), -f.smallest_normal / 4, 1.0, -f.tiny]


def variants(dtype: torch.dtype, pointwise: bool) -> list[tuple[str, list[Number]]]:
    """(name, values): of a pointwise operator all values in turn; of others few, as one NaN would hide everything next to it."""
    if dtype == torch.bool or dtype.is_complex:
        return []
    if not dtype.is_floating_point:
        return [("limits", list(integer_limits(dtype))), ("least", [torch.iinfo(dtype).min]), ("largest", [torch.iinfo(dtype).max])]
    all_of, f = ("all", list(float_limits(dtype))), torch.finfo(dtype)
    if pointwise:
        return [all_of]
    single: list[tuple[str, list[Number]]] = [("nan", [float("nan")]), ("inf", [float("inf")]), ("-inf", [float("-inf")]), ("max", [f.max])]
    return [*single, ("zeros", [0.0, -0.0, f.tiny, -f.smallest_normal / 4])]


def flatten(sample: SampleInput) -> tuple[list[Any], Any]:
    return pytree.tree_flatten((sample.input, sample.args, sample.kwargs))


def unflatten(leaves: list[Any], spec: Any) -> SampleInput:
    value, args, kwargs = pytree.tree_unflatten(leaves, spec)
    return SampleInput(value, args=args, kwargs=kwargs)


def is_plain(t: Any) -> bool:
    """A tensor of memory of its own that has elements."""
    return isinstance(t, torch.Tensor) and t.layout == torch.strided and t.numel() > 0 and not torch._debug_has_internal_overlap(t)


def with_values(t: torch.Tensor, values: Sequence[Number], first: int, step: int) -> torch.Tensor:
    """A copy with each step-th element from `first` on replaced by the values in turn."""
    out = copy.deepcopy(t.detach())
    first %= t.numel()
    if t.dim() == 0:
        out.fill_(values[first % len(values)])
    else:
        at = torch.arange(first, t.numel(), step, device=t.device)
        out[torch.unravel_index(at, t.shape)] = torch.tensor(list(itertools.islice(itertools.cycle(values), len(at))), dtype=t.dtype, device=t.device)
    return out.requires_grad_(t.requires_grad)


def index_values(leaves: Sequence[Any], dtype: torch.dtype) -> list[int]:
    """Around the ends of every dimension of the sample's first tensors, and far outside."""
    tensors = [t for t in leaves if isinstance(t, torch.Tensor)][:2]
    sizes = sorted({n for t in tensors for n in (*t.shape, t.numel())})[:5]
    far = torch.iinfo(dtype).max // 3
    found = dict.fromkeys([-1, *(v for n in sizes for v in (n - 1, n, -n, -n - 1)), far, -far])
    return [v for v in found if torch.iinfo(dtype).min <= v]


def places_of_indices(op: OpInfo, count: int) -> list[set[int]]:
    """For each of the first samples, the places of its index tensors."""
    if not op.supports_dtype(torch.float32, "cpu") or op.name in UNCHECKED:
        return []
    torch.manual_seed(0)
    samples = itertools.islice(op.sample_inputs("cpu", torch.float32), count)
    return [{i for i, x in enumerate(flatten(s)[0]) if isinstance(x, torch.Tensor) and x.dtype in (torch.int32, torch.int64)} for s in samples]


def copies(sample: SampleInput, number: int, dtype: torch.dtype, pointwise: bool, indices: set[int], beyond: bool) -> Iterator[tuple[str, SampleInput]]:
    """(name, sample) of the copies of the sample of this number. Every sample has two of the kinds of values, in turn.

    beyond: also those with indices outside of their tensors.
    """
    leaves, spec = flatten(sample)
    places = [i for i, x in enumerate(leaves) if is_plain(x) and i not in indices and x.dtype == dtype]
    kinds = variants(dtype, pointwise)
    for k in range(min(2, len(kinds)) if places else 0):
        name, values = kinds[(2 * number + k) % len(kinds)]
        changed = list(leaves)
        for turn, i in enumerate(places):
            if pointwise or len(values) > 4:  # values meet other values in each tensor
                changed[i] = with_values(leaves[i], values[turn * 3 % len(values) :] + values[: turn * 3 % len(values)], turn % 2, 1 + turn % 2)
            elif turn == number % len(places):
                changed[i] = with_values(leaves[i], values, leaves[i].numel() // 2, max(1, leaves[i].numel() // len(values)))
        yield name, unflatten(changed, spec)
    for i in sorted(indices if beyond else ()):
        if i >= len(leaves) or not is_plain(leaves[i]) or leaves[i].dtype not in (torch.int32, torch.int64):
            continue
        for v in index_values(leaves, leaves[i].dtype):
            changed = list(leaves)
            changed[i] = with_values(leaves[i], [v], leaves[i].numel() - 1, leaves[i].numel())
            yield f"index {v}", unflatten(changed, spec)


def signs_of_zeros_differ(got: Any, want: Any) -> bool:
    if not isinstance(want, torch.Tensor) or not want.dtype.is_floating_point or want.layout != torch.strided or got.shape != want.shape:
        return False
    zero = (want == 0) & (got == 0)
    return bool((torch.signbit(got) != torch.signbit(want))[zero].any())


def first_difference(inputs: Sequence[torch.Tensor], got: Sequence[Any], want: Sequence[Any]) -> str:
    """The first element that differs most plainly, with the inputs' elements in its place."""
    for k, (g, w) in enumerate(zip(got, want)):
        if not isinstance(g, torch.Tensor) or not isinstance(w, torch.Tensor) or g.layout != torch.strided or g.shape != w.shape or g.dtype != w.dtype:
            continue
        if w.is_complex():
            g, w = torch.view_as_real(g), torch.view_as_real(w)
        differs = ~torch.isclose(g, w, rtol=1e-2 if w.dtype in (torch.float16, torch.bfloat16) else 1e-4, atol=1e-5, equal_nan=True)
        if w.dtype.is_floating_point:
            zero = (w == 0) & (g == 0)
            differs |= zero & (torch.signbit(g) != torch.signbit(w))
        if not differs.any():
            continue
        at = tuple(differs.nonzero()[0].tolist())
        inputs_there = [t[at].item() for t in inputs if t.shape == w.shape and t.layout == torch.strided]
        scalars = [t.item() for t in inputs if t.numel() == 1]
        return f"result {k} {list(at)} of {list(w.shape)} is {g[at].item()}, eager {w[at].item()}, {int(differs.sum())} differ; of {inputs_there} {scalars} "
    return ""
