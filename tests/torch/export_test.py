"""Twenty-five architectures as exported programs (.pt2), run by the command in a process without PyTorch, beside their ONNX exports.

    python tests/torch/export_test.py [--table FILE] [NAME ...]

Each module is exported with a free batch and saved by `torch.export.save`. `tessera run` reads it and inputs in .npy files, at the
exported batch and at another one, and must give eager's results: |out - expected| / |expected| at most 1e-4. The ONNX export of
the same program must lead to as many kernels and library calls, or NOTES says which exporter's choice makes the difference.
`--table` writes what was counted as a page.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import shutil
import subprocess
import sys
import traceback
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import torch
from architectures import ARCHITECTURES, BATCH, build, inputs
from shards import ROOT, shard

COMMAND = os.environ.get("TESSERA_COMMAND", str(ROOT / "build/bin/tessera"))
WORK = ROOT / "build/export-tests"
BATCHES = (BATCH, 5)
TOLERANCE = 1e-4
DECOMPOSED = ("resnet", "vit", "llama")  # also after run_decompositions()

# Why two exports of an architecture lead to different numbers of kernels.
CAUSES = {
    "attention": (
        "PyTorch's decomposition of scaled_dot_product_attention, which the ONNX exporter follows, multiplies both query and key by the "
        "square root of the scale: a kernel more in each attention whose query and key are no results of products. The .pt2 has the "
        "operator whole, and we scale the query."
    ),
    "as_strided": (
        "The ONNX exporter writes aten.as_strided, here of a pooled result, as a Gather by positions that it computes from the batch: "
        "a kernel. In the .pt2 it is a view."
    ),
}
NOTES = {
    "swin": "as_strided",
    "mobilevit": "attention",
    "gpt2": "attention",
    "vit": "attention",
    "vit, decomposed": "attention",
}


@dataclass(frozen=True)
class Counts:
    """The steps that one model was compiled to."""

    kernels: int
    library_calls: int
    host_steps: int


def tessera(*arguments: str) -> str:
    """The output of the command. Raises AssertionError with its error."""
    done = subprocess.run([COMMAND, *arguments, "--cache-dir", str(WORK / "cache")], cwd=WORK, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, f"tessera {' '.join(arguments)}: exit code {done.returncode}: {done.stderr}"
    return done.stdout


def write_cases(module: torch.nn.Module, name: str) -> list[Path]:
    """A folder for each batch: inputs/x.npy, and eager's result in eager.npy."""
    cases = []
    for batch in BATCHES:
        case = WORK / name / f"batch{batch}"
        (case / "inputs").mkdir(parents=True, exist_ok=True)
        x = inputs(name, batch)
        np.save(case / "inputs/x.npy", x[0].numpy())
        with torch.no_grad():
            np.save(case / "eager.npy", module(*x).numpy())
        cases.append(case)
    return cases


def check_run(model: Path, cases: list[Path], output: str) -> Counts:
    """Runs a model on all cases in one process and compares its one output."""
    out = model.with_suffix(".out")
    report = model.with_suffix(".json")
    arguments = [a for c in cases for a in ("--case", str(c))]
    tessera("run", str(model), *arguments, "--output-dir", str(out), "--json", str(report))
    for case in cases:
        want = np.load(case / "eager.npy")
        got = np.load(out / case.name / f"{output}.npy")
        assert got.shape == want.shape and got.dtype == want.dtype, f"{got.dtype}{got.shape} instead of {want.dtype}{want.shape}"
        error = np.linalg.norm(got.astype(np.float64) - want) / np.linalg.norm(want.astype(np.float64))
        assert error <= TOLERANCE, f"{model.name}, {case.name}: |out - expected| / |expected| is {error:.3g}"
    r = json.loads(report.read_text())
    assert r["variants"] == 1, f"{model.name}: {r['variants']} variants for {len(cases)} batches"
    return Counts(r["kernels"], r["library_calls"], r["host_steps"])


def check(name: str) -> dict[str, tuple[Counts, Counts]]:
    """One architecture: what the .pt2 and the ONNX model were compiled to, and, as another row, the .pt2 before and after
    run_decompositions(). Raises AssertionError for another result than eager's."""
    module, example, dynamic = build(name)
    shutil.rmtree(WORK / name, ignore_errors=True)
    (WORK / name).mkdir(parents=True)
    program = torch.export.export(module, example, dynamic_shapes=dynamic)
    cases = write_cases(module, name)

    archive, onnx = WORK / name / "model.pt2", WORK / name / "model.onnx"
    torch.export.save(program, archive)
    ours = check_run(archive, cases, program.graph_signature.user_outputs[0])
    with torch.no_grad():
        torch.onnx.export(program, dynamo=True, verbose=False, output_names=["y"]).save(onnx)
    rows = {name: (ours, check_run(onnx, cases, "y"))}
    if name in DECOMPOSED:
        core = WORK / name / "core.pt2"
        decomposed = program.run_decompositions()
        torch.export.save(decomposed, core)
        rows[f"{name}, decomposed"] = (ours, check_run(core, cases, decomposed.graph_signature.user_outputs[0]))
    return rows


def row(name: str, ours: Counts, theirs: Counts) -> str:
    """The row of the table. Raises AssertionError for a difference without a note, and for a note without a difference. That the
    .pt2 leads to more of anything has no excuse."""
    assert ours.host_steps == theirs.host_steps, f"different operators by reference on the host: {ours}, {theirs}"
    assert ours.library_calls == theirs.library_calls, f"different library calls: {ours}, {theirs}"
    cause = NOTES.get(name, "")
    if ours.kernels == theirs.kernels:
        assert not cause, f"NOTES has '{cause}', and both lead to {ours}"
    else:
        assert ours.kernels < theirs.kernels, f"more kernels than the other export: {ours}, {theirs}"
        assert cause, f"{ours} differs from {theirs}, and NOTES has no cause"
    return f"| {name} | {ours.kernels} | {theirs.kernels} | {ours.library_calls} | {theirs.library_calls} | {cause} |"


def page(rows: list[str]) -> str:
    """The table, and what the causes mean."""
    lines = [
        "| architecture | kernels, .pt2 | kernels, ONNX | library calls, .pt2 | library calls, ONNX | cause |",
        "|---|---:|---:|---:|---:|---|",
        *rows,
        "",
        *(f"- {cause}: {text}" for cause, text in CAUSES.items()),
    ]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--table", type=Path, help="write the table of kernels and library calls to this file")
    parser.add_argument("names", nargs="*", metavar="NAME")
    options = parser.parse_args()
    index, count = shard()
    names = options.names or list(ARCHITECTURES)[index::count]
    failed, rows = [], []
    for name in names:
        try:
            for label, counts in check(name).items():
                rows.append(row(label, *counts))
                print(rows[-1], flush=True)
        except Exception as e:
            failed.append(name)
            print(f"{name} FAILED {type(e).__name__}: {' '.join(str(e).split())[:400]}", flush=True)
            if len(names) == 1:
                traceback.print_exc()
    print(f"{len(names) - len(failed)} of {len(names)} exported architectures equal eager")
    if options.table:
        options.table.write_text(page(rows))
    return 1 if failed else 0


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    sys.exit(main())
