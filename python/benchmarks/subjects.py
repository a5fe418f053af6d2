"""The subjects that `tools/gate` measures on a GPU through Python: models from ONNX, models and training steps and single
computations through torch.compile. Each class makes its subject ready for all contenders (turns.py forks a process for
it) and its instances are called with the keys of rows, or None for all; they return rows {"section", "key": [name,
shape], "us": {contender: microseconds}}, where "tessera" is one of the contenders, and "failed" {contender: why}.

Times are medians of rounds in which the contenders take turns: of a call between events, the L2 cache overwritten before
it (models and training steps: host time included where a contender keeps the GPU waiting), or of the GPU's work alone.
"""

from __future__ import annotations

import itertools
import math
import os
import statistics
import subprocess
import sys
import types
from collections.abc import Callable
from dataclasses import dataclass

ROUNDS = 3
SECONDS = 0.12  # of a contender in a round
numbers = itertools.count()


def in_turn(calls: dict[str, Callable]) -> dict[str, float]:
    """Microseconds of each call."""
    from triton.testing import do_bench

    for call in calls.values():
        for _ in range(3):
            call()
    rounds: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(ROUNDS):
        for name, call in calls.items():
            rounds[name].append(do_bench(call, warmup=15, rep=SECONDS * 1e3, return_mode="median") * 1e3)
    return {name: statistics.median(r) for name, r in rounds.items()}


def gpu_alone(calls: dict[str, Callable]) -> dict[str, float]:
    """Microseconds of each call's work on the GPU; on a host, of the call."""
    import torch
    from benchmark.clock import GpuClock, HostClock, race

    clock = GpuClock(torch) if torch.cuda.is_available() else HostClock()
    times = race(clock, {name: [call] for name, call in calls.items()}, ROUNDS, ROUNDS * SECONDS)
    return {name: t["median_us"] for name, t in times.items()}


class Subject:
    """Rows by key; each has contenders, name -> call. A contender that fails is left out, with the reason."""

    section = ""
    clock = staticmethod(in_turn)

    def __init__(self) -> None:
        self.rows: dict[tuple[str, str], dict[str, Callable]] = {}
        self.failed: dict[tuple[str, str], dict[str, str]] = {}

    def add(self, key: tuple[str, str], contenders: dict[str, Callable[[], Callable]]) -> None:
        """contenders: name -> what makes the call, compiled and run once."""
        calls, failed = {}, {}
        for name, make in contenders.items():
            try:
                call = make()
                for _ in range(4):  # a graph of CUDA is recorded in the third
                    call()
                synchronize()
                calls[name] = call
            except Exception as e:  # noqa: BLE001  one contender of one row
                failed[name] = f"{type(e).__name__}: {str(e).strip()}"[:300]
        self.rows[key], self.failed[key] = calls, failed

    def __call__(self, keys: list[tuple[str, str]] | None = None) -> list[dict]:
        out = []
        for key, calls in self.rows.items():
            if keys is not None and key not in keys:
                continue
            out.append({"section": self.section, "key": list(key), "us": self.clock(calls) if "tessera" in calls else {}, "failed": self.failed[key]})
        return out


def synchronize() -> None:
    import torch

    if torch.cuda.is_available():
        torch.cuda.synchronize()
        torch.cuda.empty_cache()


def device() -> str:
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def many_sizes() -> None:
    """Each size is compiled for itself, as often as it takes."""
    import torch

    torch._dynamo.config.automatic_dynamic_shapes = False
    torch._dynamo.config.cache_size_limit = torch._dynamo.config.recompile_limit = 64


class TorchModel(Subject):
    """A model in `dtype` against TorchInductor with CUDA graphs."""

    def __init__(self, spec: str, dtype: str, batches: tuple[int, ...] = (1, 32)):
        import torch
        from random_weights import set_statistics, wake
        from torch_models import build, compiled, on_gpu

        super().__init__()
        self.section = {"float16": "torch-models", "float32": "torch-models-f32"}[dtype]
        own = getattr(torch, dtype)
        many_sizes()
        module, inputs = build(spec)
        module = module.eval().to(device())
        wake(module)
        set_statistics(module, (inputs(8).to(device()),))
        module = module.to(own)
        self.calls = {"tessera": compiled(module, "tessera", False), "compile": compiled(module, "inductor", False)}
        with torch.inference_mode():
            for batch in batches:
                x = on_gpu(inputs(batch), own)
                self.add((spec, str(batch)), {name: lambda f=f, x=x: lambda: f(x) for name, f in self.calls.items()})

    def __call__(self, keys=None):
        import torch

        with torch.inference_mode():
            return super().__call__(keys)


class Training(Subject):
    """Forward and backward pass of a model in f32 under autocast to bf16, against TorchInductor: the mean of squares as the loss."""

    section = "gpu-training"

    def __init__(self, spec: str, batch: int = 32):
        import torch
        from random_weights import wake
        from torch_models import build

        import tessera.backend  # noqa: F401  registers the backend where no wheel does

        super().__init__()
        many_sizes()
        module, inputs = build(spec)
        module = module.train().to(device())
        wake(module)
        x = inputs(batch).to(device())
        parameters = list(module.parameters())

        def step(f):
            def call():
                with torch.autocast(device(), torch.bfloat16):
                    loss = f(x).float().square().mean()
                loss.backward()
                for p in parameters:
                    p.grad = None

            return call

        backends = {"tessera": "tessera", "compile": "inductor"}
        self.add((spec, str(batch)), {name: lambda b=b: step(torch.compile(module, backend=b)) for name, b in backends.items()})


@dataclass(frozen=True)
class Computation:
    """A function of PyTorch on normal random tensors. `gradient`: forward and backward pass."""

    section: str
    name: str
    shapes: tuple[tuple[int, ...], ...]
    function: Callable
    dtype: str = "bfloat16"
    gradient: bool = False

    @property
    def key(self) -> tuple[str, str]:
        return self.name + (" gradient" if self.gradient else "") + f" {self.dtype}", " ".join("×".join(map(str, s)) for s in self.shapes)


def _attention(shapes, **options) -> Callable:
    import torch.nn.functional as F

    return lambda q, k, v: F.scaled_dot_product_attention(q, k, v, **options)


def attention_cases() -> list[Computation]:
    """Batch × heads × length × width of queries, and of keys and values where these are others."""
    full, causal, grouped = {}, {"is_causal": True}, {"enable_gqa": True}
    table = [
        ("full", (4, 16, 4096, 128), None, full), ("causal", (4, 16, 4096, 128), None, causal),
        ("full", (4, 16, 2048, 64), None, full), ("causal", (8, 12, 512, 64), None, causal),
        ("full", (4, 8, 1024, 256), None, full), ("causal", (4, 16, 1024, 80), None, causal),
        ("full", (3, 6, 777, 64), None, full), ("cross", (4, 16, 128, 64), (4, 16, 1500, 64), full),
        ("grouped", (4, 32, 1024, 128), (4, 8, 1024, 128), {**causal, **grouped}), ("one query", (8, 32, 1, 128), (8, 32, 2048, 128), full),
    ]  # fmt: skip
    cases = [Computation("gpu-attention", name, (q, kv or q, kv or q), _attention(q, **options)) for name, q, kv, options in table]
    cases += [Computation("gpu-attention", "causal", (q,) * 3, _attention(q, **causal), gradient=True) for q in ((4, 16, 2048, 64), (8, 12, 512, 64))]
    return cases


def product_cases() -> list[Computation]:
    """Products with what stands before and behind them in networks: rows × inner times inner × columns."""
    import torch
    import torch.nn.functional as F

    def linear(x, w):
        return x @ w

    def bias_gelu(x, w, b):
        return F.gelu(x @ w + b)

    def residual(x, w, b, r):
        return x @ w + b + r

    def gated(x, w, u):
        return F.silu(x @ w) * (x @ u)

    def normalized(x, g, w):
        return F.rms_norm(x, (x.shape[-1],), g) @ w

    def batched(x, y):
        return torch.bmm(x, y)

    def layer(m, k, n, *more):
        return (m, k), (k, n), *more

    table = [
        ("linear", layer(4096, 4096, 4096), linear), ("linear", layer(1, 4096, 4096), linear), ("linear", layer(16, 4096, 11008), linear),
        ("linear", layer(1000, 1000, 1000), linear), ("linear", layer(2048, 768, 50304), linear), ("bias gelu", layer(8192, 768, 3072, (3072,)), bias_gelu),
        ("bias gelu", layer(128, 768, 3072, (3072,)), bias_gelu), ("residual", layer(4096, 3072, 768, (768,), (4096, 768)), residual),
        ("gated", layer(4096, 2048, 5632, (2048, 5632)), gated), ("normalized", ((4096, 2048), (2048,), (2048, 2048)), normalized),
        ("batched", ((96, 128, 64), (96, 64, 128)), batched), ("batched", ((64, 77, 80), (64, 80, 77)), batched),
    ]  # fmt: skip
    cases = [Computation("gpu-products", name, shapes, f) for name, shapes, f in table]
    cases += [Computation("gpu-products", "linear", layer(2048, 2048, 2048), linear, "float32")]
    cases += [Computation("gpu-products", "bias gelu", layer(4096, 1024, 4096, (4096,)), bias_gelu, gradient=True)]
    return cases


class Computations(Subject):
    """Single computations through torch.compile against TorchInductor and eager PyTorch; time of the GPU alone."""

    clock = staticmethod(gpu_alone)

    def __init__(self, cases: list[Computation]):
        import torch

        import tessera.backend  # noqa: F401  registers the backend where no wheel does

        super().__init__()
        many_sizes()
        self.section = cases[0].section
        for case in cases:
            generator = torch.Generator(device()).manual_seed(0)
            scale = [1 / math.sqrt(s[0]) if case.section == "gpu-products" and at == 1 and len(s) == 2 else 1.0 for at, s in enumerate(case.shapes)]
            x = [
                (torch.randn(s, device=device(), generator=generator) * by).to(getattr(torch, case.dtype)).requires_grad_(case.gradient)
                for s, by in zip(case.shapes, scale)
            ]
            self.add(case.key, {name: lambda w=w, case=case, x=x: self.made(case, x, w) for name, w in (("tessera", "tessera"), ("compile", "inductor"), ("eager", None))})

    @staticmethod
    def made(case: Computation, x: list, backend: str | None) -> Callable:
        import torch

        # A function with code of its own: Dynamo keeps what it compiled by the code, for all functions that share it.
        code = case.function.__code__.replace(co_name=f"computation_{next(numbers)}")
        own = types.FunctionType(code, case.function.__globals__, code.co_name, case.function.__defaults__, case.function.__closure__)
        f = own if backend is None else torch.compile(own, backend=backend, dynamic=False)
        if not case.gradient:

            def forward():
                with torch.no_grad():
                    return f(*x)

            return forward
        ones = torch.ones_like(case.function(*x))

        def both():
            return torch.autograd.grad(f(*x), x, ones)

        return both


class OnnxModel(Subject):
    """A model in f16 from ONNX against the module that it was exported from: eager, and at the first shape TorchInductor with CUDA graphs."""

    section = "gpu-models"

    def __init__(self, name: str, root: str, scripts: str, work: str):
        import torch

        import tessera

        sys.path.append(scripts)
        from gpu_models import MODES, SHAPES, peer

        super().__init__()
        path = os.path.join(work, f"{name}.dynamo.f16.onnx")
        with open(os.path.join(root, "models", os.path.basename(path)), "rb") as source, open(path, "wb") as target:
            target.write(source.read())
        fill = os.path.join(root, "models", "fill_weights.py")
        subprocess.run([sys.executable, fill, path], check=True, stdout=subprocess.DEVNULL)
        torch.manual_seed(0)
        module, call = peer(name, torch)
        module = module.eval().to(device(), torch.float16)
        with torch.no_grad():
            model = tessera.load(path, device())
            graphs = torch.compile(module, dynamic=False, **MODES["graphs"])
            for at, (b, s) in enumerate(SHAPES[name]):
                x = torch.randint(0, 1000, (b, s), device=device()) if s else torch.randn(b, 3, 224, 224, device=device(), dtype=torch.float16)
                args = {"input_ids": x, "attention_mask": torch.ones_like(x), "pixels": x}
                taken = [args[i.name] for i in model.inputs]
                contenders = {"tessera": lambda taken=taken: lambda: model(*taken), "eager": lambda x=x: lambda: call(module, x)}
                if at == 0:
                    contenders["graphs"] = lambda x=x: lambda: call(graphs, x)
                self.add((name, f"{b}×{s}" if s else f"{b}"), contenders)

    def __call__(self, keys=None):
        import torch

        with torch.no_grad():
            rows = super().__call__(keys)
        # The other section has the same calls against TorchInductor alone.
        beside = [{**r, "section": "gpu-graphs", "us": {n: us for n, us in r["us"].items() if n != "eager"}} for r in rows if "graphs" in r["us"]]
        return rows + beside


TORCH_MODELS = {  # by dtype
    "float16": (
        "tv:swin_t", "tv:densenet121", "timm:mobilevit_s", "tv:shufflenet_v2_x1_0", "hf:bert", "hf:gpt2", "hf:t5", "tv:convnext_tiny",
        "tv:resnet50", "tv:efficientnet_b0", "tv:vit_b_16", "hf:deberta_v2",
    ),
    "float32": ("hf:bert", "hf:gpt2", "hf:t5", "tv:vit_b_16", "tv:resnet50"),
}  # fmt: skip
TRAINED = ("tv:resnet50", "tv:vit_b_16", "hf:bert", "hf:gpt2", "hf:llama", "tv:efficientnet_b0", "hf:t5", "tv:convnext_tiny")
