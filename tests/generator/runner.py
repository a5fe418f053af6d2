"""The program generator_runner as a process that is replaced when it crashes or takes too long."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy
import onnx
from case import Case

RUNS = ("cpu", "reference", "emulator")


@dataclass
class Answer:
    """The answer to one call of one run: outputs, or an error with the name of its code ("bad-input", "crashed", "timed-out")."""

    outputs: list[numpy.ndarray] | None = None
    error: str = ""
    name: str = ""
    kernels: list[tuple[str, float]] = field(default_factory=list)  # of a compile: names, and milliseconds that each took


class Runner:
    """Not for several threads. `seconds`: how long one request may take."""

    def __init__(self, program: str | Path, seconds: float = 60) -> None:
        self._program, self._seconds = str(program), seconds
        self._folder = Path(tempfile.mkdtemp(prefix="generator", dir="/dev/shm" if os.path.isdir("/dev/shm") else None))
        self._process: subprocess.Popen[str] | None = None

    def close(self) -> None:
        self._stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def run(self, case: Case, runs: tuple[str, ...] = RUNS, strict_rounding: bool = False) -> dict[str, list[Answer]]:
        """By run, an answer for each call."""
        model = self._folder / "model.onnx"
        onnx.save(case.model, model)
        calls = []
        for k, feeds in enumerate(case.calls):
            files = {}
            for i, (name, array) in enumerate(feeds.items()):
                file = self._folder / f"in.{k}.{i}.npy"
                numpy.save(file, array if array.dtype.isbuiltin == 1 else array.view(f"u{array.dtype.itemsize}"))
                files[name] = str(file)
            calls.append(files)
        request = {"model": str(model), "out": str(self._folder), "runs": list(runs), "calls": calls, "strict_rounding": strict_rounding}
        answer = self._request(json.dumps(request))
        if not isinstance(answer, Answer):
            return {name: [self._read(a) for a in answer[name]] for name in runs}
        if len(runs) == 1:
            return {runs[0]: [answer] * len(calls)}
        return {name: self.run(case, (name,), strict_rounding)[name] for name in runs}  # which of them it was

    def _read(self, answer: dict[str, Any]) -> Answer:
        if "error" in answer:
            return Answer(error=answer["error"], name=answer["name"])
        outputs = [numpy.load(file) for file in answer["outputs"]]
        return Answer(outputs, kernels=[(name, ms) for name, ms in answer.get("kernels", [])])

    def _request(self, line: str) -> Any:
        if self._process is None:
            self._errors = open(self._folder / "stderr", "w+")
            env = dict(os.environ, TESSERA_CHECKS="abort,passes", TESSERA_CACHE_DIR=os.environ.get("TESSERA_CACHE_DIR", str(self._folder / "cache")))
            self._process = subprocess.Popen([self._program, "run"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True, env=env, start_new_session=True)
        assert self._process.stdin and self._process.stdout
        try:
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()
            if not select.select([self._process.stdout], [], [], self._seconds)[0]:
                self._stop()
                return Answer(error=f"no answer in {self._seconds:g} s", name="timed-out")
            answer = self._process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        if answer:
            return json.loads(answer)
        code = self._process.wait()
        self._errors.seek(0)
        said = self._errors.read()[-2000:]
        self._stop()
        how = signal.Signals(-code).name if code < 0 else f"exit {code}"
        return Answer(error=f"{how}: {said}", name="crashed")

    def _stop(self) -> None:
        if self._process is None:
            return
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._errors):
            if stream:
                stream.close()
        self._process = None
