"""Models of PyTorch's TorchScript exporter at opsets 9 to 17, against ONNX Runtime on the same file at two batches: the architectures of
architectures.py, recurrent layers, scripted modules with branches and loops, detection, and detectors of torchvision's.

    python tests/torch/torchscript_test.py [--all] [NAME ...]

Each is exported at 17 or at the oldest opset that the exporter has for it, by turns; with --all, at every opset.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy
import onnx
import onnxruntime
import support  # noqa: F401  finds the package
import torch
from architectures import ARCHITECTURES, build, inputs
from shards import shard

import tessera

FOLDER = tempfile.TemporaryDirectory()
OPSETS = range(9, 18)
Tensors = tuple[torch.Tensor, ...]


class Recurrent(torch.nn.Module):
    """Two layers in both directions, then one that starts from given states."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        layer = getattr(torch.nn, kind)
        self.first, self.second = layer(6, 5, num_layers=2, bidirectional=True, batch_first=True), layer(10, 7)
        self.states = 2 if kind == "LSTM" else 1

    def forward(self, x: torch.Tensor) -> Tensors:
        y, _ = self.first(x)
        state = x.new_ones(1, x.shape[0], 7) * x.mean()
        z, last = self.second(y.transpose(0, 1), (state, state) if self.states == 2 else state)
        return y, z, last[0] if self.states == 2 else last


class Packed(torch.nn.Module):
    """An LSTM over sequences of different lengths."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.LSTM(6, 5, batch_first=True, bidirectional=True)

    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> Tensors:
        packed = torch.nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True)
        y, (h, _) = self.layer(packed)
        return torch.nn.utils.rnn.pad_packed_sequence(y, batch_first=True)[0], h


class Branch(torch.nn.Module):
    """Branches on a value and on a size, one within the other."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(6, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if bool(x.sum() > 0):
            y = self.layer(x)
            if x.size(0) > 2:
                y = torch.relu(y)
        else:
            y = x - 1
        return y * 2


class Loop(torch.nn.Module):
    """A module with as many steps as a size says, a loop that ends by a value, and a list of results."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(6, 6)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        h = torch.zeros(x.size(0), 6)
        rows: list[torch.Tensor] = []
        for i in range(x.size(1)):
            h = torch.tanh(self.layer(x[:, i]) + h)
            rows.append(h)
        steps = torch.zeros(1)
        y = h
        while bool(y.abs().max() > 0.01):
            y = y / 2
            steps = steps + 1
        return torch.stack(rows, 1), y, steps


class Detection(torch.nn.Module):
    """A convolution that predicts boxes and scores of cells; the best ones, without those that overlap."""

    def __init__(self) -> None:
        super().__init__()
        self.head = torch.nn.Conv2d(3, 5, 3, stride=4, padding=1)

    def forward(self, x: torch.Tensor) -> Tensors:
        import torchvision

        y = self.head(x).permute(0, 2, 3, 1).reshape(-1, 5)
        corner = y[:, :2] * 10
        boxes = torch.cat([corner, corner + y[:, 2:4].abs() * 10 + 1], 1)
        scores, order = torch.topk(y[:, 4], 40)
        boxes = boxes[order]
        kept = torchvision.ops.nms(boxes, scores, 0.4)
        return boxes[kept], scores[kept]


class Indexed(torch.nn.Module):
    """Assignments to slices and by index, masks, gathers: what the exporter makes of PyTorch's indexing."""

    def forward(self, x: torch.Tensor) -> Tensors:
        y = x.clone()
        y[:, 1:3] = 0
        y[:, torch.tensor([0, 5])] += 1
        masked = x.masked_fill(x > 0.5, 2.0)
        chosen = x[x > 0]
        return y, masked, chosen, torch.nn.functional.one_hot((x[:, :3].abs() * 2).long().clamp(max=4), 5), x.argsort(1)[:, ::2]


class Detector(torch.nn.Module):
    """A detector of torchvision's on the first image, with random weights: boxes, labels, scores, and what else it finds."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        from torchvision.models import detection
        from torchvision.ops.feature_pyramid_network import LastLevelP6P7

        small = {"min_size": 64, "max_size": 96}
        one_stage = {"score_thresh": 0.01, "detections_per_img": 20, "topk_candidates": 50}
        two_stages = {"box_score_thresh": 0.01, "rpn_pre_nms_top_n_test": 60, "rpn_post_nms_top_n_test": 30, "box_detections_per_img": 20}
        if kind == "ssdlite":
            self.module = detection.ssdlite320_mobilenet_v3_large(weights=None, weights_backbone=None, num_classes=5, **one_stage)
            return
        levels = {"returned_layers": [2, 3, 4], "extra_blocks": LastLevelP6P7(256, 256)} if kind in ("retinanet", "fcos") else {}
        backbone = detection.backbone_utils.resnet_fpn_backbone(backbone_name="resnet18", weights=None, **levels)
        make = {"retinanet": detection.RetinaNet, "fcos": detection.FCOS, "fasterrcnn": detection.FasterRCNN, "maskrcnn": detection.MaskRCNN, "keypointrcnn": detection.KeypointRCNN}[kind]
        self.module = make(backbone, 2 if kind == "keypointrcnn" else 5, **small, **(one_stage if levels else two_stages))

    def forward(self, images: torch.Tensor) -> Tensors:
        return tuple(self.module([images[0]])[0].values())


def rows(*shape: int) -> Callable[[int], Tensors]:
    return lambda batch: (torch.randn(batch, *shape),)


def lengths(batch: int) -> Tensors:
    return torch.randn(batch, 7, 6), torch.tensor([7, 5, 3, 2, 1][:batch])


def images(batch: int) -> Tensors:
    return (torch.rand(batch, 3, 64, 80),)


# Module, inputs of a batch, whether it is scripted, the oldest opset.
FORMS: dict[str, tuple[Callable[[], torch.nn.Module], Callable[[int], Tensors], bool, int]] = {
    "lstm": (lambda: Recurrent("LSTM"), rows(7, 6), False, 9),
    "gru": (lambda: Recurrent("GRU"), rows(7, 6), False, 9),
    "rnn": (lambda: Recurrent("RNN"), rows(7, 6), False, 9),
    "packed_lstm": (Packed, lengths, False, 9),
    "branch": (Branch, rows(6), True, 9),
    "loop": (Loop, rows(7, 6), True, 11),
    "detection": (Detection, rows(3, 48, 48), False, 11),
    "indexed": (Indexed, rows(6), False, 11),
    **{kind: (lambda kind=kind: Detector(kind), images, False, 11) for kind in ("ssdlite", "retinanet", "fcos", "fasterrcnn", "maskrcnn", "keypointrcnn")},
}


def made(name: str) -> tuple[torch.nn.Module, Callable[[int], Tensors], bool, int]:
    if name in ARCHITECTURES:
        return build(name)[0], lambda batch: inputs(name, batch), False, 9
    torch.manual_seed(0)
    make, give, scripted, oldest = FORMS[name]
    module = make().eval()
    return torch.jit.script(module) if scripted else module, give, scripted, oldest


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Discards the exporter's output about graphs that it refuses: C++ writes it to the file descriptor."""
    sys.stdout.flush()
    kept, nowhere = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nowhere)


def export(module: torch.nn.Module, example: Tensors, opset: int) -> bytes:
    names = [f"x{i}" for i in range(len(example))]
    file = io.BytesIO()
    torch.onnx.export(module, example, file, input_names=names, dynamic_axes={n: {0: "batch"} for n in names}, opset_version=opset, dynamo=False)
    return file.getvalue()


def agrees(data: bytes, calls: list[Tensors]) -> None:
    """Against ONNX Runtime without optimizations."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    theirs = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    file = Path(FOLDER.name) / "model.onnx"
    file.write_bytes(data)
    ours = tessera.load(str(file), "cpu")
    taken = [i.name for i in onnx.load_model_from_string(data).graph.input]
    for call in calls:
        feeds = {f"x{i}": x.numpy() for i, x in enumerate(call) if f"x{i}" in taken}
        expected = theirs.run(None, feeds)
        results = ours(**feeds)
        results = results if isinstance(results, (tuple, list)) else [results]
        for got, want in zip(results, expected, strict=True):
            got = numpy.asarray(got)
            assert got.shape == want.shape and got.dtype == want.dtype, f"{got.dtype}{got.shape} instead of {want.dtype}{want.shape}"
            norm = numpy.linalg.norm(want.astype(float)) or 1.0
            error = numpy.linalg.norm(got.astype(float) - want.astype(float)) / norm
            assert error <= 1e-4, f"differs by {error:.2g} at batch {call[0].shape[0]}"


def check(name: str, opsets: list[int], every: bool) -> str:
    """Exports at these opsets, or the first of them that the exporter has, and compares; returns what was done. Raises where results
    differ."""
    module, give, scripted, oldest = made(name)
    done, refused = [], ""
    torch.manual_seed(1)
    calls = [give(2), give(5)] if not scripted else [tuple(x.abs() for x in give(3)), tuple(-x.abs() for x in give(2)), give(5)]
    for opset in opsets:
        if opset < oldest or (not every and done):
            continue
        try:
            with torch.no_grad(), quiet():
                data = export(module, give(3), opset)
        except Exception as error:  # noqa: BLE001  the exporter's refusals have many types
            refused = f"{type(error).__name__} {str(error)[:200]}"
            continue
        try:
            onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
        except Exception as error:  # noqa: BLE001  a file that the exporter wrote wrongly
            refused = f"ONNX Runtime: {error}"[:200]
            continue
        try:
            agrees(data, calls)
        except Exception as error:
            raise AssertionError(f"opset {opset}: {error}") from error
        done.append(opset)
    return f"opsets {', '.join(map(str, done))}" if done else f"not exported: {refused[:100]}"


def main() -> int:
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    onnxruntime.set_default_logger_severity(4)
    arguments = sys.argv[1:]
    every = "--all" in arguments
    index, count = shard()
    names = [a for a in arguments if a != "--all"] or [*ARCHITECTURES, *FORMS][index::count]
    failed = []
    for k, name in enumerate(names):
        begin = time.perf_counter()
        try:
            opsets = [*OPSETS] if every or k % 2 else [OPSETS[-1]]
            print(f"{name:16} {check(name, opsets, every)}, {time.perf_counter() - begin:.1f} s", flush=True)
        except Exception as error:  # noqa: BLE001  each failure is a line
            failed.append(name)
            print(f"{name:16} FAILED {type(error).__name__}: {' '.join(str(error).split())[:600]}", flush=True)
    print(f"{len(names)} models, {len(failed)} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
