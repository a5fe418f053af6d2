"""Forms that a module's `forward` may take, return and change, as exported programs through the command: results and new
values as eager's, or one clear error.

    python tests/torch/export_forms_test.py [NAME ...]
"""

from __future__ import annotations

import copy
import itertools
import json
import logging
import os
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from shards import ROOT, shard
from torch import Tensor, nn
from torch._higher_order_ops.map import map as map_
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from torch.export import Dim

COMMAND = os.environ.get("TESSERA_COMMAND", str(ROOT / "build/bin/tessera"))
WORK = ROOT / "build/export-forms"
TOLERANCE = 1e-5


@dataclass(frozen=True)
class Form:
    """A module, a call of it, the sizes that are free, a part of the error where it, or the first other call, cannot be run, and other calls."""

    make: Callable[[], nn.Module]
    inputs: tuple[Any, ...]
    free: Any = None
    error: str = ""
    others: tuple[tuple[Any, ...], ...] = ()


class _Of(nn.Module):
    """A module that is a function."""

    def __init__(self, function: Callable[..., Any]):
        super().__init__()
        self.function = function

    def forward(self, *x: Any) -> Any:
        return self.function(*x)


class _Cache(nn.Module):
    """Keys that are kept from call to call."""

    def __init__(self, write: Callable[[Tensor, Tensor, Tensor], Any]):
        super().__init__()
        self.register_buffer("kept", torch.zeros(2, 16, 8))
        self.write = write

    def forward(self, x: Tensor, at: Tensor) -> Tensor:
        self.write(self.kept, x, at)
        return F.scaled_dot_product_attention(x, self.kept, self.kept)


class _Norm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(4)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x)


class _Layouts(nn.Module):
    """Parameters and buffers that share a storage, transposed and at offsets; a constant; one that is not saved."""

    def __init__(self) -> None:
        super().__init__()
        whole = torch.randn(12)
        self.a = nn.Parameter(whole[:6].view(2, 3))
        self.register_buffer("b", whole[3:9].view(3, 2).t())
        self.register_buffer("fresh", torch.arange(3.0), persistent=False)
        self.constant = torch.tensor([1.0, 2.0, 3.0])

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.a.t() @ self.b + self.fresh + self.constant


class _Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(10, 8)
        self.head = nn.Linear(8, 10, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.embed(tokens))


def _without_gradients(x: Tensor) -> Tensor:
    with torch.no_grad():
        y = x * 2
        with torch.autocast("cpu", enabled=False):
            y = y.float().exp()
    return x + y


def _autocast(x: Tensor) -> Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return x @ x


def _item(x: Tensor, n: Tensor) -> Tensor:
    k = n.item()
    torch._check(k >= 1)
    torch._check(k <= x.shape[0])
    return x[:k]


class _Cond(nn.Module):
    """A branch that reads weights, and one that does not."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 6)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, lambda x, y: self.layer(x) + y.sum(), lambda x, _: x - 1, (x, y))


def _cond_on_size(x: Tensor) -> Tensor:
    return torch.cond(x.shape[0] > 3, lambda x: x * x.shape[0], lambda x: x.cumsum(0), (x,))


def _nested_cond(x: Tensor) -> Tensor:
    def positive(x: Tensor) -> Tensor:
        return torch.cond(x.max() > 1, lambda x: x.exp(), lambda x: x.log1p(), (x,))

    return torch.cond(x.sum() > 0, positive, lambda x: x - 1, (x,)) * 2


class _While(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Any:
        def goes_on(i: Tensor, y: Tensor) -> Tensor:
            return (i < 5) & (y.abs().max() < 10)

        return while_loop(goes_on, lambda i, y: (i + 1, torch.tanh(self.layer(y)) + x), (torch.zeros((), dtype=torch.int64), x * 2))


def _nested_while(x: Tensor) -> Any:
    def inner(y: Tensor) -> Tensor:
        return while_loop(lambda y: y.sum() < 50, lambda y: (y * 1.5,), (y,))[0]

    def body(i: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return i + 1, torch.cond(i > 1, inner, lambda y: y + 0.5, (y,))

    return while_loop(lambda i, _: i < 4, body, (torch.zeros((), dtype=torch.int64), x))


class _Scan(nn.Module):
    """A recurrent layer: x f32[time, batch, 4]."""

    def __init__(self) -> None:
        super().__init__()
        self.read, self.keep = nn.Linear(4, 5), nn.Linear(5, 5)

    def forward(self, x: Tensor) -> Any:
        def step(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
            h = torch.tanh(self.read(x) + self.keep(h))
            return h, h * 2

        return scan(step, torch.zeros(x.shape[1], 5), x, dim=0)


def _scan_of_cond(x: Tensor) -> Any:
    def step(total: Tensor, row: Tensor) -> tuple[Tensor, Tensor]:
        total = torch.cond(row.sum() > 0, lambda t, r: t + r, lambda t, r: t * r, (total, row))
        return total, total.exp()

    return scan(step, torch.ones(6), x, dim=0, reverse=True)


def _sizes(x: Tensor) -> Any:
    """Results of a batch of any size, also of 0 and 1, which the exporter takes for others."""
    return x.softmax(-1) + x.sum(0), x.reshape(-1, 3).t().contiguous(), x.unsqueeze(0).expand(2, -1, -1) * x.shape[0], x[:, None] @ x[..., None]


def _branch(x: Tensor) -> Tensor:
    return x * 2 if x.shape[0] % 2 == 0 else x * 3


BATCH = {0: Dim("batch", min=1, max=64)}
X = torch.linspace(-1, 1, 24)
FORMS: dict[str, Form] = {
    "dictionaries": Form(lambda: _Of(lambda d: {"sum": d["a"] + d["b"], "product": d["a"] * d["b"]}), ({"a": X, "b": X * 2},)),
    "nested": Form(lambda: _Of(lambda xs: (xs[0] + xs[1][0], [xs[1][1] * 2])), ([X.view(4, 6), (X.view(4, 6), X[:3])],)),
    "numbers": Form(lambda: _Of(lambda x, n: (x * n, x.shape[0] * 2, x + x.shape[0])), (X.view(4, 6), 5), ((BATCH, None),)),
    "size_input": Form(lambda: _Of(lambda x, n: x * n), (X.view(4, 6), 5), ((BATCH, Dim.DYNAMIC),)),
    "multiples": Form(
        lambda: _Of(lambda x: x.view(x.shape[0], x.shape[1] // 8, 8).sum(2)), (torch.randn(2, 16),),
        (({0: Dim("batch", max=64), 1: 8 * Dim("blocks", max=16)},),),
    ),
    "auto": Form(lambda: _Of(_sizes), (X.view(4, 6),), (({0: Dim.AUTO},),), others=((X[:6].view(1, 6),), (X[:0].view(0, 6),), (torch.randn(9, 6),))),
    "dynamic": Form(lambda: _Of(_sizes), (X.view(4, 6),), (({0: Dim.DYNAMIC},),), others=((X[:6].view(1, 6),), (X[:0].view(0, 6),))),
    "guard": Form(lambda: _Of(_branch), (X.view(4, 6),), (({0: Dim.AUTO},),), others=((X[:12].view(2, 6),), (X[:0].view(0, 6),))),
    "guard_fails": Form(lambda: _Of(_branch), (X.view(4, 6),), (({0: Dim.AUTO},),), others=((X[:18].view(3, 6),),), error="the exported module requires (L['x'][0].size()[0] % 2) == 0"),
    "empty": Form(lambda: _Of(lambda x: (x.new_zeros(0, 3), x[:0])), (X.view(4, 6),)),
    "nonzero": Form(lambda: _Of(lambda x: (x[x > 0], torch.nonzero(x).shape[0])), (X.view(4, 6),), ((BATCH,),)),
    "sorted": Form(lambda: _Of(lambda x: (torch.topk(x, 3), x.sort(descending=True).indices)), (torch.randn(4, 6),), ((BATCH,),)),
    "layouts": Form(_Layouts, (X.view(8, 3),), ((BATCH,),)),
    "tied": Form(_Tied, (torch.tensor([[1, 2, 3]]),)),
    "batch_norm": Form(lambda: _Norm().train(), (torch.randn(6, 4),), ({0: Dim("batch", min=2, max=64)},)),
    "cache_index": Form(lambda: _Cache(lambda k, x, at: k.index_copy_(1, at, x)), (torch.randn(2, 3, 8), torch.tensor([4, 5, 6]))),
    "cache_slice": Form(lambda: _Cache(lambda k, x, at: k[:, 4:7].copy_(x)), (torch.randn(2, 3, 8), torch.tensor([4, 5, 6]))),
    "cache_put": Form(lambda: _Cache(lambda k, x, at: k.__setitem__((slice(None), at), x)), (torch.randn(2, 3, 8), torch.tensor([4, 5, 6]))),
    "changed_input": Form(lambda: _Of(lambda x, y: x.add_(y) * 2), (X.clone(), X * 3)),
    "recurrent": Form(lambda: nn.LSTM(8, 16, batch_first=True), (torch.randn(2, 5, 8),), ({0: BATCH[0]},)),
    "without_gradients": Form(lambda: _Of(_without_gradients), (X,)),
    "autocast": Form(lambda: _Of(_autocast), (X[:16].view(4, 4),), error="run_decompositions()"),
    "cond": Form(_Cond, (X.view(4, 6) + 1, 2 * X), (BATCH, None), others=((X.view(4, 6) - 1, 2 * X), (torch.ones(3, 6), X), (-torch.ones(9, 6), X))),
    "cond_size": Form(lambda: _Of(_cond_on_size), (X.view(4, 6),), ((BATCH,),), others=((X[:18].view(3, 6),), (torch.randn(9, 6),))),
    "cond_nested": Form(lambda: _Of(_nested_cond), (X.view(4, 6) + 1,), ((BATCH,),), others=((X[:6].view(1, 6).abs(),), (X[:12].view(2, 6),))),
    "while_loop": Form(_While, (X.view(4, 6),), (BATCH,), others=((100 * X.view(4, 6),), (torch.randn(9, 6),))),
    "while_nested": Form(lambda: _Of(_nested_while), (X.view(4, 6).abs(),), ((BATCH,),), others=((torch.rand(3, 6),),)),
    "scan": Form(_Scan, (torch.linspace(-2, 2, 5 * 3 * 4).view(5, 3, 4),), ({0: Dim("time", max=64), 1: Dim("batch", max=64)},), others=((torch.randn(2, 3, 4),), (torch.randn(17, 9, 4),))),
    "scan_reverse": Form(lambda: _Of(_scan_of_cond), (X.view(4, 6),), ((BATCH,),), others=((torch.randn(7, 6),),)),
    "map": Form(lambda: _Of(lambda x, y: map_(lambda row, z: row.sin() * z.sum(), x, y)), (X.view(4, 6), torch.arange(3.0)), ((BATCH, None),), others=((torch.randn(7, 6), torch.randn(3)),)),
    "item": Form(lambda: _Of(_item), (X.clone(), torch.tensor(2)), error="an integer that is read from a tensor"),
    "random": Form(lambda: _Of(lambda x: x + torch.rand_like(x)), (X,), error="operator 'aten.rand_like.default' is not supported"),
}  # fmt: skip


def _array(value: Any) -> np.ndarray[Any, Any]:
    return value.numpy(force=True) if isinstance(value, torch.Tensor) else np.asarray(value)


def _expected(form: Form, module: nn.Module, program: torch.export.ExportedProgram) -> dict[str, np.ndarray[Any, Any]]:
    """Eager's results by the names of the program's outputs, and what the call changed by the names of buffers and inputs."""
    module, inputs = copy.deepcopy(module), copy.deepcopy(form.inputs)
    leaves = [v for v in torch.utils._pytree.tree_leaves(inputs)]
    users = [s.arg.name for s in program.graph_signature.input_specs if s.kind.name == "USER_INPUT"]
    with torch.no_grad():
        results = torch.utils._pytree.tree_leaves(module(*inputs))
    names = [s.arg.name for s in program.graph_signature.output_specs if s.kind.name == "USER_OUTPUT"]
    out = {name: _array(r) for name, r in zip(names, results, strict=True)}
    state = dict(module.named_buffers())
    changed = program.run_decompositions().graph_signature.output_specs
    for spec in changed:
        if spec.kind.name == "USER_INPUT_MUTATION":
            out[spec.target] = _array(leaves[users.index(spec.target)])
    for spec in changed:  # states of the loaded model, which the command shows behind the results
        if spec.kind.name == "BUFFER_MUTATION":
            out[spec.target] = _array(state[spec.target])
    return out


def check(name: str) -> str:
    """One form, as exported and after run_decompositions(). Raises AssertionError for another result than eager's."""
    form = FORMS[name]
    torch.manual_seed(0)
    module = form.make()
    free = form.free[0] if form.free and isinstance(form.free[0], tuple) else form.free
    if isinstance(module, _Of) and form.free:
        free = (free,)  # *x of forward
    program = torch.export.export(module, copy.deepcopy(form.inputs), dynamic_shapes=free)
    if form.error:
        said = _run(name, program, replace(form, inputs=form.others[0]) if form.others else form, {}).stderr
        assert said.count("error TES-") == 1 and form.error in said, said
        return "refused: " + said.splitlines()[0]
    expected = {}
    decomposed = program.run_decompositions()
    forms = [form, *(replace(form, inputs=inputs) for inputs in form.others)]
    for form, (kind, exported) in itertools.product(forms, (("exported", program), ("decomposed", decomposed))):
        expected = _expected(form, module, program)
        done = _run(f"{name}-{kind}", exported, form, expected)
        assert done.returncode == 0, f"{kind}: {done.stderr}"
        folder = WORK / f"{name}-{kind}" / "out"
        got = {p.stem: np.load(p) for p in folder.iterdir()}
        assert len(got) == len(expected), f"{kind}: outputs {sorted(got)} instead of {sorted(expected)}"
        # Decomposition names results anew; their order is the report's.
        order = [o["name"] for o in json.loads((WORK / f"{name}-{kind}" / "report.json").read_text())["cases"][0]["outputs"]]
        for key, output in zip(expected, order, strict=True):
            a, b = got[output].astype(np.float64), expected[key].astype(np.float64)
            assert a.shape == b.shape, f"{kind}: {output} has the shape {a.shape}, eager's {key} {b.shape}"
            assert np.linalg.norm(a - b) <= TOLERANCE * np.linalg.norm(b), f"{kind}: {output} is {a}, eager's {key} is {b}"
    return f"outputs {', '.join(expected)}"


def _run(
    folder: str, program: torch.export.ExportedProgram, form: Form, expected: dict[str, Any]
) -> subprocess.CompletedProcess[str]:
    """Saves a program and the call's inputs, and runs the command on them."""
    work = WORK / folder
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    torch.export.save(program, work / "model.pt2")
    arguments = []
    users = [s.arg for s in program.graph_signature.input_specs if s.kind.name == "USER_INPUT"]
    for arg, value in zip(users, torch.utils._pytree.tree_leaves(form.inputs), strict=True):
        if isinstance(value, torch.Tensor) or type(arg).__name__ == "SymIntArgument":
            np.save(work / f"{arg.name}.npy", _array(value))
            arguments += ["--input", f"{arg.name}={arg.name}.npy"]
    command = [COMMAND, "run", "model.pt2", *arguments, "--output-dir", "out", "--json", "report.json", "--cache-dir", str(WORK / "cache")]
    return subprocess.run(command, cwd=work, capture_output=True, text=True, timeout=300)


def main() -> int:
    failed = []
    index, count = shard()
    names = sys.argv[1:] or list(FORMS)[index::count]
    for name in names:
        try:
            print(f"{name:18} {check(name)}", flush=True)
        except Exception as e:
            failed.append(name)
            print(f"{name:18} FAILED {type(e).__name__}: {' '.join(str(e).split())[:600]}", flush=True)
    print(f"{len(names) - len(failed)} of {len(names)} forms of exported modules as they should be")
    return 1 if failed else 0


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    sys.exit(main())
