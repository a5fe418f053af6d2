"""PyTorch's own operator database through the backend: every operator of core ATen that it samples, results as eager's.

    python tests/torch/op_db_test.py [--all] [--samples N] [--seed N] [--dtypes T,...] [--dynamic] [--gradients] [--each] [--limits]
                                       [--device cuda] [NAME ...]

The first samples of each dtype are the calls of one graph, which goes to the backend as Dynamo would give it
(tessera.backend.tessera: AOTAutograd, then compile_graph): what torch.compile does, without the time that Dynamo takes to read
Python. A result that is a view of an input is cloned in the graph: AOTAutograd would answer the view itself.

With TESSERA_SHARD, "0/2", this process takes every second sample of every operator.

An operator is whole if its graph is one subgraph and nothing in it is left to PyTorch. Operators run in a process that is
forked off, so that a crash is one row of the table.

--all: every operator of the database, in f32 (or the first dtype it has); then only results and crashes count.
--dtypes float64,uint8: these instead.
--dynamic: every size is a symbol; then only results and crashes count.
--gradients: those of the results, too, with respect to every input that can have one, by the backward graph.
--seed: of the samples' values.
--each: one graph for each sample, to find the sample that is at fault.
--limits: copies of the samples with special values (op_db_limits.py) instead: results as eager's, signs of zeros of pointwise
operators, too; where eager raises an error, so must the compiled graph. Only results, errors and crashes count.
--device cuda: eager mode there is what is compared with; indices beyond are left out, since they end its use of the GPU.
--from, --to: of the operators' numbers, for a part of the table.
"""

from __future__ import annotations

import argparse
import copy
import dataclasses
import itertools
import logging
import multiprocessing
import os
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection
from typing import Any

import op_db_limits
import support
import torch
from torch._guards import TracingContext, tracing
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.testing._internal import common_methods_invocations
from torch.testing._internal.common_device_type import toleranceOverride
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import OpInfo, SampleInput
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

import tessera.backend
from tessera._program import is_part

# Operators that may take equal elements in any order unless they are called as stable, and the place of `dim` in their arguments.
ANY_ORDER = {"sort": 0, "argsort": 0, "topk": 1, "kthvalue": 1, "median": 0, "nanmedian": 0, "mode": 0}

# The database seeds the generator in the call of a random operator, which a graph does not record: it is seeded before the graph.
common_methods_invocations.wrapper_set_seed = lambda op, *args, **kwargs: op(*args, **kwargs)

WIDER = {torch.float16: torch.float32, torch.bfloat16: torch.float32, torch.float32: torch.float64}
DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.bool)
SHARE_WHOLE = 0.95
HALVES = (torch.float16, torch.bfloat16)
SECONDS = 300  # of one operator, after which it counts as a crash
DEVICE = "cpu"  # set by --device
CRASHES = 8  # of eager mode in the copies of one operator's samples

# Composites whose meaning is worth keeping, by the names of the database.
COMPOSITES = {
    "nn.functional.linear", "nn.functional.scaled_dot_product_attention", "nn.functional.layer_norm", "nn.functional.rms_norm",
    "nn.functional.group_norm", "nn.functional.batch_norm", "nn.functional.embedding", "nn.functional.gelu", "nn.functional.silu", "einsum",
    *(f"nn.functional.conv{t}{n}d" for t in ("", "_transpose") for n in (1, 2, 3)),
}  # fmt: skip


class Calls(TorchDispatchMode):
    """The overloads that run inside."""

    def __init__(self) -> None:
        super().__init__()
        self.overloads: list[torch._ops.OpOverload] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.overloads.append(func)
        return func(*args, **(kwargs or {}))


@dataclasses.dataclass(eq=False)
class Case:
    """One sample: a call of the operator as a function of its tensors, and eager's results."""

    dtype: torch.dtype
    fn: Callable[..., list[Any]]
    tensors: list[torch.Tensor]
    want: list[Any]
    changed: list[torch.Tensor]  # the tensors after eager's call
    undefined: bool  # the values of the results are, as empty()'s
    signature: str
    wider: Callable[[], list[Any]]  # eager's results of the same values in a wider type
    random: bool  # it draws random numbers: a graph of its own, so that eager's draw follows the same seed
    any_order: int | None  # dimension in which results that are positions may name another one of equal elements
    gradients: list[Any]  # eager's, of the weighted results, for each tensor that can have one; none unless they are requested
    pointwise: bool  # every call is of a pointwise operator or makes a view or a copy
    refusal: str = ""  # eager's error
    limits: str = ""  # the name of a copy with special values


@dataclasses.dataclass
class Row:
    """The outcome for one operator."""

    name: str
    dtypes: list[str] = dataclasses.field(default_factory=list)
    samples: int = 0
    left: list[str] = dataclasses.field(default_factory=list)  # reasons why it is not whole
    wrong: list[str] = dataclasses.field(default_factory=list)  # results that are not eager's, errors, crashes
    rounded: int = 0  # samples that equal eager's in a wider type, and not eager's in their own
    refused: int = 0  # samples that eager refuses, of which there are as many errors here
    known: int = 0  # samples that differ by a reason of the table
    seconds: float = 0

    def __str__(self) -> str:
        state = "WRONG" if self.wrong else "left" if self.left else "whole"
        text = "; ".join(self.wrong or self.left)
        rounded = f"{self.rounded} as in a wider type  " if self.rounded else ""
        rounded += f"{self.refused} refused  " if self.refused else ""
        rounded += f"{self.known} known  " if self.known else ""
        return f"{self.name:44} {','.join(self.dtypes):20} {self.samples:3}  {state:5} {self.seconds:5.1f} s  {rounded}{text[:300]}"


def full_name(op: OpInfo) -> str:
    return op.name + (f".{op.variant_test_name}" if op.variant_test_name else "")


def short(dtype: torch.dtype) -> str:
    name = str(dtype).removeprefix("torch.")
    return name.replace("bfloat", "bf").replace("float", "f").replace("uint", "u").replace("int", "i")


def packets_of_core() -> set[str]:
    """Names of ATen operators with an overload of core ATen."""
    names = set()
    for s in torch._C._jit_get_all_schemas():
        namespace, name = s.name.split("::")
        if namespace == "aten" and torch.Tag.core in getattr(getattr(torch.ops.aten, name), s.overload_name or "default").tags:
            names.add(name)
    return names


def dtypes_of(op: OpInfo, wanted: Sequence[torch.dtype]) -> list[torch.dtype]:
    return [d for d in wanted if op.supports_dtype(d, DEVICE)]


def samples_of(op: OpInfo, dtype: torch.dtype, count: int, seed: int = 0, gradients: bool = False) -> Iterator[SampleInput]:
    torch.manual_seed(seed)
    return itertools.islice(op.sample_inputs(DEVICE, dtype, requires_grad=gradients and can_have_gradients(op, dtype)), count)


def can_have_gradients(op: OpInfo, dtype: torch.dtype) -> bool:
    return op.supports_autograd and dtype in op.supported_backward_dtypes(DEVICE)


def gradients_of(results: Sequence[Sequence[Any]], tensors: Sequence[Sequence[torch.Tensor]]) -> list[list[Any]]:
    """Gradients of each case's results, weighted by fixed numbers, for its tensors that require one; by one backward pass."""
    given = [[t for t in ts if t.requires_grad] for ts in tensors]
    found = [[r for r in rs if isinstance(r, torch.Tensor) and r.requires_grad] if ts else [] for rs, ts in zip(results, given)]
    weights = []
    for rs in found:
        numbers = torch.Generator().manual_seed(1)
        weights += [torch.rand(r.shape, generator=numbers, dtype=torch.complex64 if r.is_complex() else torch.float32).to(r.device, r.dtype) for r in rs]
    flat = [t for rs, ts in zip(found, given) if rs for t in ts]
    if not flat:
        return [[] for _ in given]
    made = iter(torch.autograd.grad([r for rs in found for r in rs], flat, weights, allow_unused=True))
    return [[next(made) for _ in ts] if rs else [] for rs, ts in zip(found, given)]


def is_of_core(op: OpInfo, packets: set[str]) -> bool:
    """Named as an operator of core ATen, a composite of the list, or one call of core ATen for its first sample."""
    if op.aten_name in packets or op.name in COMPOSITES:
        return True
    for dtype in dtypes_of(op, DTYPES)[:1]:
        for s in samples_of(op, dtype, 1):
            try:
                with Calls() as calls, torch.no_grad():
                    op(s.input, *s.args, **s.kwargs)
            except Exception:  # eager has no such operator on the CPU
                return False
            return len(calls.overloads) == 1 and torch.Tag.core in calls.overloads[0].tags and not is_undefined(calls)
    return False


def is_undefined(calls: Calls) -> bool:
    last = calls.overloads[-1]._schema.name if calls.overloads else ""
    return last.startswith(("aten::empty", "aten::new_empty", "aten::resize"))


def is_pointwise(calls: Calls) -> bool:
    moves = ("aten::clone", "aten::_to_copy", "aten::cat", "aten::stack", "aten::flip", "aten::roll", "aten::repeat", "aten::copy", "aten::where")
    return bool(calls.overloads) and all(torch.Tag.pointwise in f.tags or f.is_view or f._schema.name.startswith(moves) for f in calls.overloads)


def leaf(t: Any) -> Any:
    return t if not isinstance(t, torch.Tensor) or t.is_leaf else t.detach().requires_grad_(t.requires_grad)


def case_of(op: OpInfo, dtype: torch.dtype, sample: SampleInput, limits: str = "") -> Case:
    """limits: the name of the sample if it is a copy with special values, which eager mode may refuse."""
    leaves, spec = pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
    leaves = [leaf(x) for x in leaves]
    places = [i for i, x in enumerate(leaves) if isinstance(x, torch.Tensor)]
    signature = str([(x.shape, x.dtype, x.stride()) if isinstance(x, torch.Tensor) else x for x in leaves])

    def call_of(given: list[Any]) -> list[Any]:
        value, args, kwargs = pytree.tree_unflatten(given, spec)
        return pytree.tree_leaves(op(value, *args, **kwargs))

    def call(*tensors: torch.Tensor) -> list[Any]:
        given = dict(zip(places, tensors))
        return call_of([given.get(i, x) for i, x in enumerate(leaves)])

    def wider() -> list[Any]:
        given = [widened(x) for x in leaves]
        results, inputs = call_of(given), [given[i] for i in places]
        return results + inputs + gradients_of([results], [inputs])[0]

    original = [leaves[i] for i in places]
    tensors, for_eager = copy.deepcopy(original), copy.deepcopy(original)
    storages = {t.untyped_storage()._cdata for t in for_eager if t.layout == torch.strided}
    want, refusal, gradients = [], "", []
    with Calls() as calls:
        try:
            want = call(*for_eager)
        except Exception as e:
            if not limits:
                raise
            refusal = one_line(e)
    views = {i for i, t in enumerate(want) if isinstance(t, torch.Tensor) and t.layout == torch.strided and t.untyped_storage()._cdata in storages}

    def fn(*given: torch.Tensor) -> list[Any]:
        return [t.clone() if i in views else t for i, t in enumerate(call(*given))]

    random = any(torch.Tag.nondeterministic_seeded in f.tags for f in calls.overloads)
    any_order = None
    if op.name in ANY_ORDER and not sample.kwargs.get("stable"):
        place = ANY_ORDER[op.name]
        any_order = sample.kwargs.get("dim", sample.args[place] if place < len(sample.args) else -1)
    if not refusal:
        gradients = gradients_of([want], [for_eager])[0]
    return Case(dtype, fn, tensors, want, for_eager, is_undefined(calls), signature, wider, random, any_order, gradients, is_pointwise(calls), refusal, limits)


def widened(x: Any) -> Any:
    if isinstance(x, torch.Tensor):
        wide = x.detach().to(WIDER[x.dtype]) if x.dtype in WIDER else copy.deepcopy(x.detach())
        return wide.requires_grad_(x.requires_grad)
    return WIDER[x] if isinstance(x, torch.dtype) and x in WIDER else x


def one_line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split('Exception raised from')[0].split())}"


def capture(cases: Sequence[Case], backend: Callable[..., Callable[..., Any]], dynamic: bool) -> Callable[[], list[list[Any]]]:
    """The cases as one graph through a backend of torch.compile: a function that computes the results of each, and what became of its inputs."""
    graph = torch.fx.Graph()
    nodes = [[graph.placeholder(f"x_{i}_{k}") for k in range(len(c.tensors))] for i, c in enumerate(cases)]
    calls = [graph.call_function(c.fn, tuple(n)) for c, n in zip(cases, nodes)]
    lists: list[list[int]] = []
    constants: dict[tuple[int, int], Any] = {}

    def results(*values: list[Any]) -> tuple[torch.Tensor, ...]:
        """Dynamo's graphs return tensors and sizes; other values are constants of the capture."""
        lists.clear()  # AOTAutograd runs this more than once
        for i, v in enumerate(values):
            lists.append([k for k, x in enumerate(v) if isinstance(x, (torch.Tensor, torch.SymInt, torch.SymFloat, torch.SymBool))])
            constants.update({(i, k): x for k, x in enumerate(v) if k not in lists[-1]})
        return tuple(v[k] for v, ks in zip(values, lists) for k in ks)

    graph.output(graph.call_function(results, tuple(calls)))
    module = torch.fx.GraphModule(torch.nn.Module(), graph)
    given = [t for c in cases for t in c.tensors]
    fake = FakeTensorMode(shape_env=ShapeEnv(allow_scalar_outputs=True, allow_dynamic_output_shape_ops=True))
    with tracing(TracingContext(fake)):
        run = backend(module, [fake.from_tensor(t, static_shapes=not dynamic) for t in given])

    def compute() -> list[list[Any]]:
        flat = iter(run(*given))
        for i, ks in enumerate(lists):
            constants.update({(i, k): next(flat) for k in ks})
        results = [[constants[i, k] for k in range(len(c.want))] for i, c in enumerate(cases)]
        gradients = gradients_of(results, [c.tensors for c in cases])
        return [r + c.tensors + g for r, c, g in zip(results, cases, gradients)]

    return compute


def capture_error(cases: Sequence[Case], dynamic: bool) -> str | None:
    """Why PyTorch does not capture the cases for any backend; None if it does."""
    try:
        capture(cases, torch._dynamo.lookup_backend("aot_eager"), dynamic)
    except Exception as e:
        return one_line(e)
    return None


def through_backend(cases: Sequence[Case], dynamic: bool) -> tuple[list[list[Any]], list[str]]:
    """Results of the cases as one graph, and why it is not one subgraph."""
    seen: list[tessera.backend.CompiledGraph] = []
    with support.Counted() as counted, tessera.backend.observed(seen.append):
        run = capture(cases, tessera.backend.tessera, dynamic)
        torch.manual_seed(0)
        out = run()
    left = {f"{node.target}: {reason}" for g in seen for node, reason in g.left.items() if not is_part(node)}
    left |= {f"a graph: {g.error}" for g in seen if g.error and not g.left}
    if counted.fallback_calls:
        left.add("a call of the subgraph failed")
    return out, sorted(left)


def tolerances(op: OpInfo, dtype: torch.dtype) -> dict[str, float]:
    """assert_close's own for the dtype, or what the database states on the device for a compiler's results or for every test."""
    for d in op.decorators:
        applies = d.cls_name == "TestInductorOpInfo" or (d.cls_name == "TestCommon" and d.test_name is None) if hasattr(d, "cls_name") else False
        for o in d.decorators if applies and d.device_type in (None, DEVICE) else ():
            if isinstance(o, toleranceOverride) and dtype in o.d:
                return {"rtol": o.d[dtype].rtol, "atol": o.d[dtype].atol}
    return {}


def assert_same(op: OpInfo, case: Case, got: list[Any], want: list[Any], **given: float) -> None:
    """given: other tolerances than those of the operator."""
    for g, w in zip(got, want, strict=True):
        if case.undefined and isinstance(w, torch.Tensor):
            assert (g.shape, g.dtype) == (w.shape, w.dtype), f"{g.dtype}{list(g.shape)}, expected {w.dtype}{list(w.shape)}"
        elif case.any_order is not None and w is case.want[-1] and (w.dim() > 0 or (len(case.want) > 1 and case.tensors[0].dim() == 1)):
            x, d = case.tensors[0], case.any_order
            if w.dim() < x.dim():
                g, w = g.unsqueeze(d), w.unsqueeze(d)
            assert (g.sort(d).values.diff(dim=d) > 0).all(), "a position is there twice"
            support.assert_close(x.gather(d, g), x.gather(d, w))
        else:
            support.assert_close(g, w, **given or tolerances(op, case.dtype))
            assert not (case.limits and case.pointwise and op_db_limits.signs_of_zeros_differ(g, w)), "the signs of zeros differ"


def compare(op: OpInfo, case: Case, got: list[Any], row: Row) -> None:
    want = case.want + case.changed + case.gradients
    try:
        assert_same(op, case, got, want)
    except Exception as e:
        if case.dtype in WIDER and is_exact(op, case, got):
            row.rounded += 1
        elif case.limits and case.dtype in HALVES and is_same(op, case, got, want, rtol=2e-2, atol=2e-2):
            row.rounded += 1
        elif case.limits and op_db_limits.is_known(full_name(op), case.limits, DEVICE):
            row.known += 1
        elif case.limits and is_of_capture(op, case, got):
            row.left.append(f"{short(case.dtype)} {case.signature}: as PyTorch's own capture, aot_eager, not as eager")
        elif case.limits:
            row.wrong.append(f"{short(case.dtype)} {case.signature}: {op_db_limits.first_difference(case.tensors, got, want)}{str(e)[:60]}")
        else:
            row.wrong.append(f"{short(case.dtype)} {case.signature}: {' '.join(str(e).split())}")


def is_exact(op: OpInfo, case: Case, got: list[Any]) -> bool:
    """True if the results are those of a wider type, rounded once: what differs is how eager rounds in between.

    PyTorch's own test of a compiler compares with eager in f32 for this reason.
    """
    try:
        want = [w.to(g.dtype) if isinstance(g, torch.Tensor) else w for w, g in zip(case.wider(), got, strict=True)]
        assert_same(op, case, got, want)
    except Exception:
        return False
    return True


def is_same(op: OpInfo, case: Case, got: list[Any], want: list[Any], **given: float) -> bool:
    try:
        assert_same(op, case, got, want, **given)
    except Exception:
        return False
    return True


def is_of_capture(op: OpInfo, case: Case, got: list[Any]) -> bool:
    """True if PyTorch's capture without any compiler behind it has these results: its own decompositions differ from eager."""
    try:
        run = capture([case], torch._dynamo.lookup_backend("aot_eager"), False)
        torch.manual_seed(0)
        assert_same(op, case, got, run()[0])
    except Exception:
        return False
    return True


def limits_of(op: OpInfo, dtype: torch.dtype, options: argparse.Namespace, row: Row, pipe: Connection) -> Iterator[Case]:
    """Cases of the copies of the samples. `pipe` gets a message before eager mode runs one that might end the process."""
    indices = op_db_limits.places_of_indices(op, options.samples)
    beyond = DEVICE == "cpu"
    for number, sample in enumerate(samples_of(op, dtype, options.samples, options.seed, options.gradients)):
        try:
            pointwise = case_of(op, dtype, sample).pointwise
        except Exception:  # nothing to compare with
            continue
        places = indices[number] if number < len(indices) else set()
        for name, changed in op_db_limits.copies(sample, number, dtype, pointwise, places, beyond):
            key = f"{short(dtype)} {number} {name}"
            if key in options.skipped:
                continue
            pipe.send(("eager", key))
            torch.manual_seed(0)
            try:
                case = case_of(op, dtype, changed, name)
                if DEVICE == "cuda":
                    torch.cuda.synchronize()
            except Exception as e:
                if "CUDA error" in str(e):  # the process has no GPU any more
                    os._exit(1)
                row.left.append(f"eager's gradients: {one_line(e)}")
                continue
            finally:
                pipe.send(("ours", key))
            if not any(word in case.refusal for word in ("allocate", "memory", "torage size", "overflow")):
                case.signature = f"{number} {name} {case.signature}"
                yield case


def check_limits(op: OpInfo, wanted: Sequence[torch.dtype], options: argparse.Namespace, pipe: Connection) -> Row:
    row = Row(full_name(op), [short(d) for d in wanted])
    begin = time.perf_counter()
    with torch.set_grad_enabled(options.gradients):
        for dtype in wanted:
            cases = list(limits_of(op, dtype, options, row, pipe))
            row.samples += len(cases)
            alone = [c for c in cases if options.each or c.random or c.refusal]
            together = [c for c in cases if c not in alone]
            groups = [[c] for c in alone] + ([together] if together else [])
            while groups:
                group = groups.pop(0)
                pipe.send(("ours", group[0].signature))
                refusal = group[0].refusal
                try:
                    got, left = through_backend(group, options.dynamic)
                except Exception as e:
                    if refusal:
                        row.refused += 1
                    elif len(group) > 1:
                        groups += [[c] for c in group]
                    elif (error := capture_error(group, options.dynamic)) is not None:
                        row.left.append(f"PyTorch does not capture it: {error}")
                    else:
                        row.wrong.append(f"{short(dtype)} {group[0].signature}: {one_line(e)[:300]}")
                    continue
                if not refusal:
                    for c, g in zip(group, got):
                        compare(op, c, g, row)
                elif op_db_limits.is_known(row.name, group[0].limits, DEVICE):
                    row.known += 1
                elif capture_refuses(group[0]):
                    row.wrong.append(f"{short(dtype)} {group[0].signature}: eager raises {refusal[:200]}")
                else:
                    row.left.append(f"{short(dtype)} {group[0].signature}: eager raises an error, PyTorch's own capture none")
    row.seconds = time.perf_counter() - begin
    return row


def capture_refuses(case: Case) -> bool:
    """True if PyTorch's capture without any compiler behind it raises an error, too."""
    try:
        capture([case], torch._dynamo.lookup_backend("aot_eager"), False)()
    except Exception:
        return True
    return False


def check(op: OpInfo, wanted: Sequence[torch.dtype], options: argparse.Namespace) -> Row:
    row = Row(full_name(op))
    begin = time.perf_counter()
    cases: list[Case] = []
    index, shards = support.shard()
    samples = [(d, s) for d in wanted for s in samples_of(op, d, options.samples, options.seed, options.gradients)][index::shards]
    row.dtypes += [short(d) for d in wanted]
    with torch.set_grad_enabled(options.gradients):
        for dtype, sample in samples:
            torch.manual_seed(0)
            try:
                cases.append(case_of(op, dtype, sample))
            except Exception as e:  # nothing to compare with
                row.left.append(f"eager raises {one_line(e)}")
        row.samples = len(cases)
        alone = [c for c in cases if options.each or c.random]
        together = [c for c in cases if c not in alone]
        groups = [[c] for c in alone] + ([together] if together else [])
        for group in groups:
            try:
                got, left = through_backend(group, options.dynamic)
            except Exception as e:
                where = f"{short(group[0].dtype)} {group[0].signature}: " if len(group) == 1 else ""
                if (error := capture_error(group, options.dynamic)) is not None:
                    row.left.append(f"{where}PyTorch does not capture it: {error}")
                    continue
                row.wrong.append(f"{where}{one_line(e)}")
                if options.each:
                    traceback.print_exc()
                continue
            row.left += [r for r in left if r not in row.left]
            for c, g in zip(group, got):
                compare(op, c, g, row)
    row.seconds = time.perf_counter() - begin
    return row


def work(ops: Sequence[tuple[str, list[torch.dtype]]], options: argparse.Namespace, pipe: Connection) -> None:
    global DEVICE
    DEVICE = options.device
    warnings.simplefilter("ignore")
    logging.getLogger("torch").setLevel(logging.CRITICAL)
    torch.set_num_threads(1)
    named = {full_name(op): op for op in op_db}
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        for name, dtypes in ops:
            op = named[name]
            pipe.send(check_limits(op, dtypes, options, pipe) if options.limits else check(op, dtypes, options))
    pipe.close()


def rows(ops: Sequence[tuple[OpInfo, list[torch.dtype]]], options: argparse.Namespace) -> Iterator[Row]:
    """Rows in order; the process that crashes is replaced by one for the operators behind."""
    context = multiprocessing.get_context("fork" if DEVICE == "cpu" else "spawn")  # a GPU's context does not outlive a fork
    done, stage, key = 0, "", ""
    options.skipped = set()
    while done < len(ops):
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=work, args=([(full_name(op), d) for op, d in ops[done:]], options, theirs))
        process.start()
        theirs.close()
        try:
            while done < len(ops):
                if not ours.poll(SECONDS):
                    process.kill()
                    raise EOFError
                found = ours.recv()
                if isinstance(found, tuple):
                    stage, key = found
                    continue
                yield found
                done += 1
                options.skipped = set()
        except EOFError:
            process.join()
            if stage == "eager" and len(options.skipped) < CRASHES:  # nothing to compare with
                options.skipped.add(key)
                continue
            row = Row(full_name(ops[done][0]), [short(d) for d in ops[done][1]])
            row.wrong.append(f"the process ended with {process.exitcode} {stage} {key}")
            yield row
            done += 1
            options.skipped = set()
        process.join()


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--dtypes", type=lambda text: [getattr(torch, name) for name in text.split(",")])
    parser.add_argument("--dynamic", action="store_true")
    parser.add_argument("--gradients", action="store_true")
    parser.add_argument("--each", action="store_true")
    parser.add_argument("--limits", action="store_true")
    parser.add_argument("--from", dest="first", type=int, default=0)
    parser.add_argument("--to", dest="end", type=int, default=None)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--samples", type=int, default=8)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    options = parser.parse_args()
    global DEVICE
    DEVICE = options.device
    warnings.simplefilter("ignore")
    logging.getLogger("torch").setLevel(logging.CRITICAL)
    chosen = [op for op in op_db if not options.names or full_name(op) in options.names or op.name in options.names]
    if not options.names and not options.all:
        packets = packets_of_core()
        chosen = [op for op in chosen if is_of_core(op, packets)]
    ops = [(op, d[:1] if options.all and not options.dtypes else d) for op in chosen if (d := dtypes_of(op, options.dtypes or DTYPES))]
    ops = ops[options.first : options.end]
    if options.limits:  # a share of the dtypes of each operator, another one first for the next
        share = support.Share()
        ops = [(op, [d for d in (*dtypes[i % len(dtypes) :], *dtypes[: i % len(dtypes)]) if share.takes(full_name(op), d)]) for i, (op, dtypes) in enumerate(ops)]
    found = []
    for row in rows(ops, options):
        print(row, flush=True)
        found.append(row)
    wrong = [r for r in found if r.wrong]
    left = [r for r in found if r.left and not r.wrong]
    print(f"\nNot whole ({len(left)}):")
    for r in left:
        print(f"  {r.name}: {'; '.join(r.left)}")
    print(f"\nWrong ({len(wrong)}):")
    for r in wrong:
        print(f"  {r.name}: " + "\n      ".join(r.wrong))
    whole = len(found) - len(wrong) - len(left)
    print(f"\n{len(found)} operators, {sum(r.samples for r in found)} samples in {sum(r.seconds for r in found):.0f} s: "
          f"{whole} whole ({100 * whole / max(1, len(found)):.1f} %), {len(left)} left in part, {len(wrong)} wrong; "
          f"{sum(r.rounded for r in found)} samples are as eager's in a wider type alone; "
          f"{sum(r.refused for r in found)} refused as eager does, {sum(r.known for r in found)} of known differences")  # fmt: skip
    counted = not options.all and not options.dynamic and not options.gradients and not options.limits
    return 1 if wrong or (counted and whole < SHARE_WHOLE * len(found)) else 0


if __name__ == "__main__":
    sys.exit(main())
