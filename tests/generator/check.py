"""Whether Tessera's runs of a case agree with ONNX Runtime, and with each other."""

from __future__ import annotations

import re
from dataclasses import dataclass

import exact
import numpy
from case import Case
from oracle import Spread, difference, run, tolerance
from runner import RUNS, Answer, Runner


@dataclass
class Failure:
    """kind: what went wrong, short and without values, by which failures of one cause look the same. run: of RUNS."""

    run: str
    kind: str
    detail: str

    def same(self, other: Failure | None) -> bool:
        return other is not None and (self.run, self.kind) == (other.run, other.kind)


def check(case: Case, runner: Runner, runs: tuple[str, ...] = RUNS) -> Failure | None:
    """The first failure, None where all agree. Raises what ONNX Runtime raises."""
    if exact.is_exact(case):
        return check_exact(case, runner, runs)
    expected = run(case.model, case.calls)
    answers = runner.run(case, runs)
    spread = Spread(case, expected)
    for name in runs:
        for call, answer in enumerate(answers[name]):
            failure = compare(case, name, call, answer, expected[call], spread)
            if failure:
                others = {o: compare(case, o, call, answers[o][call], expected[call], spread) for o in runs if o != name}
                agree = [o for o, f in others.items() if f is None]
                failure.detail += f"; without noise: {spread.refused[:200]}" if spread.refused and failure.kind == "values" else ""
                failure.detail += f"; agree with ONNX Runtime in this call: {', '.join(agree) or 'none'}"
                return failure
    return None


def check_exact(case: Case, runner: Runner, runs: tuple[str, ...]) -> Failure | None:
    """The same for a model that exact rules decide, to the bit. Where its kind of failure is of ONNX Runtime, the rules are in doubt."""
    expected = [exact.run(case.model, feeds, onnxruntime=True) for feeds in case.calls]
    for e in expected:
        if e.departs:
            return Failure("onnxruntime", f"departs in {e.departs.split()[0]}", e.departs)
    answers = runner.run(case, tuple(r for r in runs if r != "onnxruntime"), strict_rounding=True)
    for name, calls in answers.items():
        for call, answer in enumerate(calls):
            failure = compare_exact(case, name, call, answer, expected[call])
            if failure:
                agree = [o for o in answers if o != name and not compare_exact(case, o, call, answers[o][call], expected[call])]
                failure.detail += f"; agree with the rules in this call: {', '.join(agree) or 'none'}"
                return failure
    return None


def compare_exact(case: Case, run_name: str, call: int, answer: Answer, expected: exact.Expected) -> Failure | None:
    where = f"call {call}"
    if answer.outputs is None:
        return Failure(run_name, f"{answer.name}: {_plain(answer.error)}", f"{where}: {answer.error}")
    for i, (ours, right) in enumerate(zip(answer.outputs, expected.outputs, strict=True)):
        name = case.model.graph.output[i].name
        if ours.shape != right.shape or ours.dtype.itemsize != right.dtype.itemsize:
            return Failure(run_name, "type or shape", f"{where}: output {name}: {ours.dtype}{list(ours.shape)} instead of {right.dtype}{list(right.shape)}")
        ours = ours if ours.dtype == right.dtype else ours.view(right.dtype)  # .npy files have the bits of types that NumPy lacks
        other = ~exact.same_bits(ours, right) & ~expected.open[i]
        if other.any():
            at = tuple(numpy.argwhere(other)[0])
            return Failure(run_name, "bits", f"{where}: output {name} {right.dtype}{list(right.shape)}: element {list(map(int, at))} is {ours[at]!r} instead of {right[at]!r}, and {int(other.sum())} differ")
    return None


REFUSALS = ("unsupported-op", "unsupported-type", "unsupported-feature", "type-mismatch", "bad-attribute", "malformed-model")


def check_compiles(case: Case, runner: Runner, runs: tuple[str, ...], refusals: bool, times: list[tuple[float, str, str]]) -> Failure | None:
    """The first error of compiling for the GPUs `runs`; with `refusals`, a model that is refused as invalid is none. `times` gets
    milliseconds, GPU and name of each kernel."""
    for name, answers in runner.run(case, runs).items():
        for answer in answers:
            times += [(ms, name, kernel) for kernel, ms in answer.kernels]
            if answer.outputs is None and not (refusals and answer.name in REFUSALS):
                return Failure(name, f"{answer.name}: {_plain(answer.error)}", answer.error)
    return None


def compare(case: Case, run_name: str, call: int, answer: Answer, expected: list[numpy.ndarray], spread: Spread) -> Failure | None:
    sizes = {k: list(a.shape) for k, a in case.calls[call].items()}
    where = f"call {call} {sizes}"
    if answer.outputs is None:
        return Failure(run_name, f"{answer.name}: {_plain(answer.error)}", f"{where}: {answer.error}")
    for i, (ours, theirs) in enumerate(zip(answer.outputs, expected)):
        name = case.model.graph.output[i].name
        measured, wrong = difference(ours, theirs)
        if wrong:
            return Failure(run_name, "type or shape", f"{where}: output {name}: {wrong}")
        if measured > tolerance(theirs.dtype) and not spread.allows(call, i, measured):
            return Failure(run_name, "values", f"{where}: output {name} {theirs.dtype}{list(theirs.shape)} differs by {measured:.2g}\n  ours   {_some(ours)}\n  theirs {_some(theirs)}")
    return None


def _plain(error: str) -> str:
    """The text of an error without names, numbers and the place."""
    text = error.splitlines()[0].rpartition("): ")[2] or error
    text = re.sub(r"'[^']*'|[0-9a-z_]*[0-9][0-9a-z_]*|[(\[].*?[)\]]", "*", text.rpartition(".onnx: ")[2] or text)
    return " ".join(w for w in text.split() if w != "*")[:40].rpartition(" ")[0]


def _some(array: numpy.ndarray) -> str:
    return numpy.array2string(array.ravel()[:24], precision=9, max_line_width=200).replace("\n", "\n         ")
