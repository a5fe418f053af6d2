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

# Why the two exports of an architecture lead to different numbers of kernels or library calls.
CAUSES: dict[str, str] = {}
NOTES: dict[str, str] = {}  # architecture: cause


@dataclass(frozen=True)
class Counts:
    """What one model was compiled to."""

    kernels: int
    library_calls: int
    host_steps: int


def tessera(*arguments: str) -> str:
    """What the command prints. Raises AssertionError with its error."""
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


def check(name: str) -> tuple[Counts, Counts]:
    """One architecture; what its two exports were compiled to. Raises AssertionError for another result than eager's."""
    module, example, dynamic = build(name)
    shutil.rmtree(WORK / name, ignore_errors=True)
    (WORK / name).mkdir(parents=True)
    program = torch.export.export(module, example, dynamic_shapes=dynamic)
    cases = write_cases(module, name)

    archive, onnx = WORK / name / "model.pt2", WORK / name / "model.onnx"
    torch.export.save(program, archive)
    ours = check_run(archive, cases, program.graph_signature.user_outputs[0])
    if name in DECOMPOSED:
        decomposed = program.run_decompositions()
        core = WORK / name / "core.pt2"
        torch.export.save(decomposed, core)
        counts = check_run(core, cases, decomposed.graph_signature.user_outputs[0])
        assert counts == ours, f"after run_decompositions {counts}, before {ours}"
    torch.onnx.export(program, dynamo=True, verbose=False, output_names=["y"]).save(onnx)
    return ours, check_run(onnx, cases, "y")


def compare(name: str, ours: Counts, theirs: Counts) -> str:
    """The row of the table. Raises AssertionError for a difference without a note, and for a note without a difference."""
    difference = (ours.kernels - theirs.kernels, ours.library_calls - theirs.library_calls)
    cause = NOTES.get(name, "")
    if any(difference):
        assert cause, f".pt2 leads to {ours}, ONNX to {theirs}: NOTES has no cause"
    else:
        assert not cause, f"NOTES has '{cause}', and both exports lead to {ours}"
    return (
        f"| {name} | {ours.kernels} | {theirs.kernels} | {ours.library_calls} | {theirs.library_calls} | "
        f"{difference[0]:+d} | {difference[1]:+d} | {cause} |"
    )


def page(rows: list[str]) -> str:
    """The table, and what the causes mean."""
    lines = [
        "| architecture | kernels .pt2 | kernels ONNX | library calls .pt2 | library calls ONNX | kernels | library calls | cause |",
        "|---|---:|---:|---:|---:|---:|---:|---|",
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
            ours, theirs = check(name)
            rows.append(compare(name, ours, theirs))
            print(f"{name:16} kernels {ours.kernels} {theirs.kernels} library calls {ours.library_calls} {theirs.library_calls}", flush=True)
        except Exception as e:
            failed.append(name)
            print(f"{name:16} FAILED {type(e).__name__}: {' '.join(str(e).split())[:400]}", flush=True)
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
