"""Random weights under which every branch of a model contributes to its results."""

from __future__ import annotations

import torch


def wake(module: torch.nn.Module) -> None:
    """Parameters that start at zero, or nearly so, take random values: a branch that they scale would not be seen."""
    with torch.no_grad():
        for p in module.parameters():
            if p.is_floating_point() and p.numel() and p.abs().max() < 1e-4:
                p.normal_(std=0.1)


def set_statistics(module: torch.nn.Module, example: tuple[torch.Tensor, ...]) -> None:
    """Batch normalizations take the statistics of the example: without it activations fade to 1e-10 in some networks."""
    norms = [m for m in module.modules() if isinstance(m, torch.nn.modules.batchnorm._BatchNorm)]
    for m in norms:
        m.momentum = None  # the average of all batches
        m.train()
    if norms:
        with torch.no_grad():
            module(*example)
    for m in norms:
        m.momentum = 0.1
        m.eval()
