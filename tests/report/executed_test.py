#!/usr/bin/env python3
"""Kernels, launches and bytes of the report equal those that a run executes: of small models, and of a part of ONNX's backend
tests where they were made (models/ with weights: tests/models/run_models.py).

    executed_test.py TESSERA MODELS_FOLDER BACKEND_TESTS
"""
import glob, json, os, subprocess, sys, tempfile

from executed import differences


def check(tessera, model, folder):
    """The differences; None where the model cannot run from random inputs."""
    out = os.path.join(folder, "run.json"), os.path.join(folder, "report.json")
    ran = subprocess.run([tessera, "run", model, "--device", "cpu", "--profile", "--json", out[0]], capture_output=True, text=True)
    if ran.returncode: return None
    run = json.load(open(out[0]))
    explained = subprocess.run([tessera, "explain", model, "--device", "cpu", "-o", out[1]], capture_output=True, text=True)
    if "missing-values" in explained.stderr: return None
    if explained.returncode: return [explained.stderr.strip()]
    return list(differences(json.load(open(out[1])), run, run["cases"][0]))


def main():
    tessera, models, backend = sys.argv[1:4]
    paths = sorted(glob.glob(os.path.join(models, "small", "*.onnx")))
    paths += sorted(glob.glob(os.path.join(backend, "node", "*", "model.onnx")))[::25]
    failed = compared = 0
    with tempfile.TemporaryDirectory() as folder:
        for path in paths:
            wrong = check(tessera, path, folder)
            compared += wrong is not None
            for w in wrong or []: print(f"{os.path.relpath(path, backend)}: {w}")
            failed += bool(wrong)
    print(f"{compared} of {len(paths)} models compared, {failed} differ")
    sys.exit(failed > 0 or compared < len(paths) / 2)


if __name__ == "__main__": main()
