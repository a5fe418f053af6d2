#!/usr/bin/env python3
"""ONNX models with control flow, computed sizes, sorting and long recurrences on a device, beside PyTorch.

    python3 python/benchmarks/onnx_models.py WORK_DIRECTORY [NAME...] [--device cuda] [--peers eager,cuda_graph,compile] [--json FILE]

A Swin transformer (TorchScript exporter, shift masks made in the graph), a detector with non-maximum suppression, a
speech detector with an LSTM and If, a recogniser whose decoder is a Scan, Mamba, and a mixture of experts: exported here from
PyTorch with random weights in f32, run by Tessera and by the module itself (eager; its kernels as one CUDA graph;
torch.compile with CUDA graphs) in one process on inputs that lie on the device. A row says: host-run operators, error ‖out−ref‖/‖ref‖ against
eager PyTorch, median microseconds of a call. TF32 is off for all.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import time
import traceback

import torch
from torch import nn

from random_weights import set_statistics


class Speech(nn.Module):
    """Voice activity: a spectrum by one of two rates' filters (If), convolutions, an LSTM over the frames."""

    def __init__(self):
        super().__init__()
        self.spectrum16 = nn.Conv1d(1, 258, 256, stride=128, bias=False)
        self.spectrum8 = nn.Conv1d(1, 258, 128, stride=64, bias=False)
        self.encoder = nn.Sequential(
            nn.Conv1d(129, 128, 3, padding=1), nn.ReLU(), nn.Conv1d(128, 64, 3, stride=2, padding=1), nn.ReLU(),
            nn.Conv1d(64, 128, 3, padding=1), nn.ReLU(),
        )  # fmt: skip
        self.lstm = nn.LSTM(128, 128, num_layers=2, batch_first=True)
        self.head = nn.Linear(128, 1)

    def forward(self, audio, rate):
        x = audio.unsqueeze(1)
        if bool(rate == 16000):
            s = self.spectrum16(x)
        else:
            s = self.spectrum8(x)
        power = torch.sqrt(s[:, :129] ** 2 + s[:, 129:] ** 2 + 1e-6)
        frames = self.encoder(power).transpose(1, 2)
        out, _ = self.lstm(frames)
        return torch.sigmoid(self.head(out)).squeeze(-1)


class Recogniser(nn.Module):
    """An acoustic encoder and a decoder that emits a symbol a frame: its state and last symbol go from step to step (scan)."""

    def __init__(self, symbols: int = 256, width: int = 256):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(80, width), nn.SiLU(), nn.Linear(width, width))
        self.embed = nn.Parameter(torch.randn(symbols, width) * 0.1)
        self.ih = nn.Linear(width, 3 * width)
        self.hh = nn.Linear(width, 3 * width)
        self.joint = nn.Linear(width, symbols)
        self.width = width

    def step(self, state, last, frame):
        r, z, n = self.ih(frame + self.embed[last]).chunk(3, -1)
        hr, hz, hn = self.hh(state).chunk(3, -1)
        z = torch.sigmoid(z + hz)
        state = (1 - z) * torch.tanh(n + torch.sigmoid(r + hr) * hn) + z * state
        logits = self.joint(torch.tanh(state + frame))
        return state, logits.argmax(-1), logits

    def forward(self, features):  # [time, batch, 80]
        x = self.encoder(features)
        state = torch.zeros(x.shape[1], self.width, device=x.device)
        last = torch.zeros(x.shape[1], dtype=torch.int64, device=x.device)
        out = []
        for t in range(x.shape[0]):
            state, last, logits = self.step(state, last, x[t])
            out.append(logits)
        return torch.stack(out)


class Scanned(nn.Module):
    """The recogniser in the form that exports to Scan."""

    def __init__(self, inner: Recogniser):
        super().__init__()
        self.inner = inner

    def forward(self, features):
        from torch._higher_order_ops.scan import scan

        x = self.inner.encoder(features)
        state = torch.zeros(x.shape[1], self.inner.width, device=x.device)
        last = torch.zeros(x.shape[1], dtype=torch.int64, device=x.device)

        def body(carry, frame):
            new, last, logits = self.inner.step(carry[0], carry[1], frame)
            return [new, last], logits

        return scan(body, [state, last], x)[1]


class Pick(nn.Module):
    """A transformers model from its main input to its logits or last hidden state."""

    def __init__(self, module):
        super().__init__()
        self.module = module
        self.main = getattr(module, "main_input_name", "input_ids")

    def forward(self, x):
        out = self.module(**{self.main: x}, return_dict=True)
        return out["last_hidden_state"] if "last_hidden_state" in out else out["logits"]


def transformers_model(cls: str, **settings):
    import transformers

    cls = getattr(transformers, cls)
    config = cls.config_class(**settings)
    if hasattr(config, "use_cache"):
        config.use_cache = False
    return Pick(cls(config))


def swin():
    return transformers_model("SwinModel"), lambda b: (torch.randn(b, 3, 224, 224),), {"dynamo": False, "opset_version": 17}


class Boxes(nn.Module):
    """The arrays of torchvision's first detection, padded to nothing: boxes, labels, scores."""

    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, images):
        found = self.module([images[0]])[0]
        return found["boxes"], found["labels"], found["scores"]


def detector():
    import torchvision

    module = torchvision.models.detection.ssdlite320_mobilenet_v3_large(weights=None, weights_backbone=None, score_thresh=0.05)
    set_statistics(module.backbone.eval(), (torch.randn(4, 3, 320, 320),))
    with torch.no_grad():  # classes that differ
        for p in module.head.classification_head.parameters():
            p.normal_(std=0.3)
    return Boxes(module), lambda b: (torch.rand(b, 3, 320, 320),), {"dynamo": False, "opset_version": 17}


def speech():
    return Speech(), lambda b: (torch.randn(b, 16000) * 0.1, torch.tensor(16000)), {"dynamo": False, "opset_version": 17, "script": True}


def recogniser():
    return Recogniser(), lambda b: (torch.randn(200, b, 80),), {"dynamo": True, "as": Scanned}


def mamba():
    module = transformers_model("MambaForCausalLM", hidden_size=768, num_hidden_layers=4, vocab_size=8192)
    return module, lambda b: (torch.randint(5, 1000, (b, 64)),), {"dynamo": True}


class Mixture(nn.Module):
    """The layer of the two best of eight experts for each token; exports to com.microsoft's MoE."""

    def __init__(self, width: int, inner: int, experts: int = 8, k: int = 2):
        super().__init__()
        self.router = nn.Linear(width, experts, bias=False)
        self.up = nn.Parameter(torch.randn(experts, inner, width) / width**0.5)
        self.gate = nn.Parameter(torch.randn(experts, inner, width) / width**0.5)
        self.down = nn.Parameter(torch.randn(experts, width, inner) / inner**0.5)
        self.k = k

    def forward(self, x):
        flat = x.reshape(-1, x.shape[-1])
        logits = self.router(flat)
        if torch.compiler.is_exporting():
            return torch.onnx.ops.symbolic(
                "com.microsoft::MoE", (x, logits, self.up, None, self.down, None, self.gate),
                {"k": self.k, "activation_type": "silu", "normalize_routing_weights": 1}, dtype=x.dtype, shape=x.shape, version=1,
            )  # fmt: skip
        best, which = torch.softmax(logits, -1).topk(self.k, -1)
        weights = torch.zeros_like(logits).scatter(1, which, best / best.sum(-1, keepdim=True))
        inner = nn.functional.silu(torch.einsum("td,efd->etf", flat, self.up)) * torch.einsum("td,efd->etf", flat, self.gate)
        return torch.einsum("etf,edf,te->td", inner, self.down, weights).reshape(x.shape)


class Experts(nn.Module):
    """A decoder of attention and mixtures of experts."""

    def __init__(self, width: int = 512, layers: int = 4, symbols: int = 8192):
        super().__init__()
        self.embed = nn.Embedding(symbols, width)
        self.layers = nn.ModuleList(
            nn.ModuleDict({
                "norm1": nn.RMSNorm(width), "qkv": nn.Linear(width, 3 * width, bias=False), "out": nn.Linear(width, width, bias=False),
                "norm2": nn.RMSNorm(width), "mixture": Mixture(width, 2 * width),
            })
            for _ in range(layers)
        )  # fmt: skip
        self.head = nn.Linear(width, symbols, bias=False)

    def forward(self, ids):
        x = self.embed(ids)
        for layer in self.layers:
            q, k, v = (y.unflatten(-1, (8, -1)).transpose(1, 2) for y in layer["qkv"](layer["norm1"](x)).chunk(3, -1))
            y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + layer["out"](y.transpose(1, 2).flatten(2))
            x = x + layer["mixture"](layer["norm2"](x))
        return self.head(x)


def experts():
    return Experts(), lambda b: (torch.randint(5, 1000, (b, 64)),), {"dynamo": True}


MODELS = {"swin": swin, "detector": detector, "speech": speech, "recogniser": recogniser, "mamba": mamba, "experts": experts}


def export(module, inputs, path: str, how: dict) -> None:
    how = dict(how)
    if wrap := how.pop("as", None):
        module = wrap(module)
    if how.pop("script", False):
        module = torch.jit.script(module)
    if how["dynamo"]:
        torch.onnx.export(module, inputs, path, dynamo=True, external_data=False, verbose=False)
    else:
        torch.onnx.export(module, inputs, path, verbose=False, **how)


def tensors(out) -> list[torch.Tensor]:
    return [out] if torch.is_tensor(out) else list(out)


def distance(got, want) -> float:
    worst = 0.0
    for g, w in zip(tensors(got), tensors(want), strict=True):
        if g.shape != w.shape:
            return float("inf")
        w = w.double()
        error = ((g.double().to(w.device) - w).norm() / w.norm().clamp_min(1e-30)).item()
        worst = error if not error <= worst else worst  # a NaN stays
    return worst


def median_us(call, device: str) -> float:
    if device == "cuda":
        from triton.testing import do_bench

        return do_bench(call, warmup=50, rep=200, return_mode="median") * 1e3
    call()
    times = []
    while len(times) < 5 or sum(times) < 1 and len(times) < 100:
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return sorted(times)[len(times) // 2] * 1e6


def graphed(module, args):
    """Eager PyTorch's kernels as one CUDA graph, over the inputs as they are."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            module(*args)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        module(*args)
    return lambda *_: graph.replay()


PEERS = {
    "eager": lambda module, args: module,
    "cuda_graph": graphed,
    "compile": lambda module, args: torch.compile(module, mode="reduce-overhead" if args[0].is_cuda else None),
}


def measure(name: str, batch: int, device: str, peers: list[str], work: str, budget: int) -> dict:
    import tessera

    torch.manual_seed(0)
    module, inputs, how = MODELS[name]()
    module = module.eval()
    path = os.path.join(work, f"{name}.{batch}.onnx")
    args = inputs(batch)
    with torch.no_grad():
        export(module, args, path, how)
    row: dict = {"model": name, "shape": f"batch {batch}", "device": torch.cuda.get_device_name() if device == "cuda" else "cpu"}
    torch.manual_seed(0)
    module = MODELS[name]()[0].eval()  # exporters leave traces in the one that they were given
    module, args = module.to(device), tuple(x.to(device) for x in args)
    with torch.no_grad():
        want = module(*args)
        start = time.perf_counter()
        model = tessera.load(path, device, tf32="off")
        # PyTorch keeps inputs that a model computes with on the host alone there; Tessera takes all inputs from one
        # memory.
        taken = args[: len(model.inputs)]
        got = model(*taken)
        if device == "cuda":
            torch.cuda.synchronize()
        row["tessera_first_s"] = round(time.perf_counter() - start, 2)
        report = json.loads(model.explain("json"))
        ops = {o["id"]: o["op"] for o in report["operators"]}
        row["host_operators"] = [ops[o] for s in report["steps"] if s["kind"] == "host" for o in s["operators"]]
        row["kernels"], row["library_calls"] = report["totals"]["kernels"], report["totals"]["library_calls"]
        row["error"] = float(f"{distance(got, want):.2e}")
        row["tessera_us"] = round(median_us(lambda: model(*taken), device), 1)
        for peer in peers:
            try:
                signal.alarm(budget)
                torch._dynamo.reset()
                call = PEERS[peer](module, args)
                start = time.perf_counter()
                for _ in range(4):
                    call(*args)
                row[f"{peer}_first_s"] = round(time.perf_counter() - start, 2)
                row[f"{peer}_us"] = round(median_us(lambda: call(*args), device), 1)
            except Exception as e:  # noqa: BLE001  one cell of the table
                row[f"{peer}_error"] = repr(e)[:300]
            finally:
                signal.alarm(0)
    return row


def out_of_time(*_) -> None:
    raise TimeoutError("the peer's time is over")


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("work")
    p.add_argument("names", nargs="*", choices=[*MODELS, []])
    p.add_argument("--device", default="cuda")
    p.add_argument("--batch", default="1")
    p.add_argument("--peers", default="eager,cuda_graph,compile")
    p.add_argument("--budget", type=int, default=120, help="seconds for each peer of a model")
    p.add_argument("--json")
    a = p.parse_args()
    os.makedirs(a.work, exist_ok=True)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    signal.signal(signal.SIGALRM, out_of_time)
    rows = []
    for name in a.names or list(MODELS):
        for batch in map(int, a.batch.split(",")):
            try:
                row = measure(name, batch, a.device, [x for x in a.peers.split(",") if x], a.work, a.budget)
            except Exception as e:  # noqa: BLE001  one row of the table
                traceback.print_exc()
                row = {"model": name, "shape": f"batch {batch}", "failed": repr(e)[:500]}
            rows.append(row)
            print(json.dumps(row), flush=True)
            if a.json:
                with contextlib.suppress(OSError), open(a.json, "w") as f:
                    json.dump(rows, f, indent=1)


if __name__ == "__main__":
    main()
