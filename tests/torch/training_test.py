"""Training through torch.compile(backend="tessera"): losses, gradients, parameters and buffers of five steps as eager's.

    python tests/torch/training_test.py [NAME ...]
"""

from __future__ import annotations

import copy
import sys
import traceback
import zlib
from collections.abc import Callable
from dataclasses import dataclass

import support
import torch
from architectures import ARCHITECTURES, inputs

STEPS = 5
TOLERANCES = {"rtol": 2e-3, "atol": 2e-4}  # f32 sums in another order, through five updates
NORM = 3e-3  # of a gradient: which of two nearly equal maxima counts, or whether an activation near 0 does, is up to rounding


class Text(torch.nn.Module):
    """Tokens to the next token's scores: embeddings, a causal transformer encoder with dropout, a tied projection."""

    def __init__(self, dropout: float):
        super().__init__()
        self.embed = torch.nn.Embedding(64, 32, padding_idx=0)
        layer = torch.nn.TransformerEncoderLayer(32, 4, 64, dropout=dropout, batch_first=True, norm_first=True)
        self.encoder = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        mask = torch.nn.Transformer.generate_square_subsequent_mask(tokens.shape[1])
        hidden = self.encoder(self.embed(tokens), mask=mask, is_causal=True)
        return hidden @ self.embed.weight.t()


@dataclass(frozen=True)
class Training:
    """A module to train, its inputs and optimizer, and how many calls of operators PyTorch keeps for random numbers."""

    make: Callable[[], torch.nn.Module]
    inputs: Callable[[int], tuple[torch.Tensor, ...]]  # by seed
    optimizer: Callable[..., torch.optim.Optimizer]
    random: bool = False


def _of(name: str) -> Callable[[], torch.nn.Module]:
    """An architecture with SiLU for ReLU, whose derivative jumps at 0: there the last digit of an activation decides on a
    quarter of a small network's gradient, and two right computations in f32 differ by as much."""

    def make() -> torch.nn.Module:
        module = ARCHITECTURES[name].make()
        for parent in list(module.modules()):
            for child, m in parent.named_children():
                if isinstance(m, torch.nn.ReLU):
                    setattr(parent, child, torch.nn.SiLU())
        return module

    return make


def _tokens(seed: int) -> tuple[torch.Tensor, ...]:
    return (torch.randint(0, 64, (4, 12), generator=torch.Generator().manual_seed(seed)),)


SGD = lambda p: torch.optim.SGD(p, lr=1e-3, momentum=0.9)  # noqa: E731
ADAM = lambda p: torch.optim.AdamW(p, lr=1e-3, eps=1e-4)  # noqa: E731

TRAININGS = {
    "resnet": Training(_of("resnet"), lambda seed: inputs("resnet", 4, seed), SGD),
    "regnet": Training(_of("regnet"), lambda seed: inputs("regnet", 4, seed), SGD),
    "vit": Training(_of("vit"), lambda seed: inputs("vit", 4, seed), ADAM),
    "llama": Training(_of("llama"), lambda seed: inputs("llama", 4, seed), ADAM),
    "text": Training(lambda: Text(dropout=0.0), _tokens, ADAM),
    "text with dropout": Training(lambda: Text(dropout=0.2), _tokens, SGD, random=True),
}


def steps(module: torch.nn.Module, forward: Callable[..., torch.Tensor], t: Training) -> list[dict[str, torch.Tensor]]:
    """Losses and gradients of each step; `forward` calls `module`."""
    optimizer = t.optimizer(module.parameters())
    out = []
    for seed in range(STEPS):
        torch.manual_seed(seed)  # of dropout
        optimizer.zero_grad()
        y = forward(*t.inputs(seed))
        target = torch.linspace(-1, 1, y.numel()).view(y.shape)
        loss = torch.nn.functional.mse_loss(y, target) + y.float().log_softmax(-1)[..., 0].mean().neg()
        loss.backward()
        out.append({"loss": loss.detach(), **{k: p.grad.clone() for k, p in module.named_parameters() if p.grad is not None}})
        optimizer.step()
    return out


def check(name: str) -> str:
    """Trains one architecture in eager mode and compiled; returns what the table says. Raises AssertionError."""
    t = TRAININGS[name]
    torch.manual_seed(zlib.crc32(name.encode()))
    eager = t.make().train()
    module = copy.deepcopy(eager)
    want = steps(eager, eager, t)
    with support.Counted() as c:
        got = steps(module, support.compiled(module), t)
    for i, (g, w) in enumerate(zip(got, want)):
        assert g.keys() == w.keys(), f"step {i}: gradients of {g.keys() ^ w.keys()} are on one side only"
        for k in w:
            off = float((g[k].double() - w[k].double()).norm() / w[k].double().norm().clamp_min(1e-30))
            assert off < NORM, f"step {i}, {k}: differs by {off:.1e} of its norm, at most {NORM:.0e}"
    for (k, g), (_, w) in zip(module.state_dict().items(), eager.state_dict().items()):
        support.assert_close(g, w, **TOLERANCES, msg=lambda m, k=k: f"{k} after {STEPS} steps: {m}")
    assert c.fallback_calls == 0, f"{c.fallback_calls} calls fell back to PyTorch"
    assert c.graphs == 2, f"{c.graphs} graphs, not one forward and one backward"
    assert (c.operators_left > 0) == t.random, f"{c.operators_left} operators left to PyTorch"
    return f"{len(want[0]) - 1} gradients, {c.compiles} programs, {c.operators_left} operators left"


def main() -> int:
    failed = []
    index, count = support.shard()
    names = sys.argv[1:] or list(TRAININGS)[index::count]
    for name in names:
        try:
            print(f"{name:18} {check(name)}", flush=True)
        except Exception as e:
            failed.append(name)
            print(f"{name:18} FAILED {type(e).__name__}: {' '.join(str(e).split())[:400]}", flush=True)
            if len(names) == 1:
                traceback.print_exc()
    print(f"{len(names) - len(failed)} of {len(names)} trainings equal eager's")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
