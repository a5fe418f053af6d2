"""Models from files, as functions on arrays."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from . import _native
from ._arrays import NAMES, memory_of, state_array, state_given
from ._errors import InputTypeError, UsageError
from ._options import OpenOptions, Sizes, documented, sizes_text

if TYPE_CHECKING:
    from typing_extensions import Unpack


@dataclass(frozen=True)
class TensorInfo:
    """An input or output as the model declares it.

    dtype: NumPy's name of it ("float32", "bfloat16"); shape: of each dimension its size, or the expression over symbols
    that it is ("batch", "2*seq"); None where the model does not say how many there are, and each call decides.
    """

    name: str
    dtype: str
    shape: tuple[int | str, ...] | None

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype}[{'...' if self.shape is None else ', '.join(map(str, self.shape))}]"


def _infos(described: tuple[_native.Described, ...]) -> tuple[TensorInfo, ...]:
    return tuple(TensorInfo(name, NAMES.get(number, "list" if number < 0 else "undefined"), shape) for name, number, shape in described)


class Model:
    """A compiled model: a function from arrays to arrays. tessera.load() makes one.

    Several threads may call it at the same time (with states they run one after another); other Python threads run while it computes. A call with sizes that no
    call had before plans memory once; it does not compile again unless the model's code assumed otherwise.
    """

    def __init__(self, session: _native.Session, path: str, options: Mapping[str, Any]) -> None:
        """options: of load() that were given, such that JSON has them."""
        self._session = session
        self._options = options
        self._run: Callable[..., list[Any] | None] = session.run
        self._path = path
        self._file = os.path.abspath(path)  # whichever folder is the current one later
        self._inputs = _infos(session.inputs)
        self._outputs = _infos(session.outputs)
        self._states = _infos(session.states)
        self._names = tuple(i.name for i in self._inputs)
        lists = session.list_types
        if any(lists) or any(i.dtype == "string" for i in self._inputs + self._outputs):
            from ._items import Items

            self._run = Items(session, self._inputs, lists)

    @property
    def inputs(self) -> tuple[TensorInfo, ...]:
        """The inputs, in the order of positional arguments."""
        return self._inputs

    @property
    def outputs(self) -> tuple[TensorInfo, ...]:
        """The outputs, in the order in which a call returns them."""
        return self._outputs

    @property
    def device(self) -> str:
        """The device that the model runs on: "cpu" or "cuda"."""
        return self._session.device

    def __call__(self, *args: Any, stream: int | None = None, **named: Any) -> Any:
        """Computes the outputs.

        args, named: one array for each input, by position, by name or in a dict by name: a NumPy array, a PyTorch tensor, any object with
        __dlpack__ and __dlpack_device__, or a capsule of DLPack (which is not consumed), of the declared dtype and sizes.
        Contiguous, aligned memory is used where it lies; another layout is copied first (in a GPU's memory PyTorch's
        tensors alone are). All inputs lie in the same memory: the host's, or (for a model on "cuda") the GPU's. A name
        that is no Python identifier is passed as **{"name": array}; inputs named "stream" are passed by position.
        stream: of inputs in a GPU's memory: the CUDA stream, as an int, on which the work is put. It lives as long as the
        outputs. None: PyTorch's current stream where the first input is a tensor of it, else the default stream. The call
        does not wait for the GPU.

        Returns the output, or a tuple where the model has several or none. They are NumPy arrays where the first input
        is one (without inputs, too), PyTorch tensors on the same device where it is one, else objects with __dlpack__.
        An output of a dtype that NumPy has only with the package ml_dtypes is an object with __dlpack__ where that is
        not installed.
        Tracers, modes and transforms of PyTorch see the call as an operator (tessera.recorded), without gradients.
        A tensor of strings is a NumPy array of objects (str), a sequence a list, an optional a value or None, a map a dict: in
        and out. A model that has one takes and returns NumPy arrays alone.

        Raises InputTypeError (a TypeError): an input is missing, unknown, of the wrong kind or dtype; InputError (a
        ValueError): its sizes do not fit, or it lies in the wrong memory; OutOfMemoryError; RunError.
        """
        if named:
            args = self._in_order(args, named)
        try:
            outputs = self._run(args, stream)
        except InputTypeError:
            if len(args) != 1 or not isinstance(args[0], Mapping) or not args[0].keys() & set(self._names):
                raise
            args = self._in_order((), dict(args[0]))
            outputs = self._run(args, stream)
        if outputs is None:  # PyTorch records the call
            from .recorded import call

            outputs = call(self, args, stream)
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    def _in_order(self, args: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, ...]:
        known = ", ".join(f"'{n}'" for n in self._names)
        for name in named:
            if name not in self._names:
                raise InputTypeError(f"the model has no input '{name}'; its inputs are {known}", code="TES-1002", name="unknown-input")
            if name in self._names[: len(args)]:
                raise InputTypeError(f"input '{name}' is given twice, by position and by name", code="TES-1001", name="usage")
        missing = [n for n in self._names[len(args) :] if n not in named]
        if missing:
            raise InputTypeError(f"input '{missing[0]}' was not given; the model's inputs are {known}", code="TES-1003", name="missing-input")
        return (*args, *(named[n] for n in self._names[len(args) :]))

    @property
    def states(self) -> tuple[TensorInfo, ...]:
        """The values that calls change and later ones read, as the module's buffers are: no inputs or outputs. Empty for
        most models.

        They are the loaded model's: calls of several threads run one after another, and a model that is loaded again has values of its
        own, which begin as the file's. On a GPU they stay in its memory. A call that raises leaves them as they were, as warmup()
        does; one on a GPU's stream changes them whatever the GPU finds later.
        """
        return self._states

    def state_dict(self) -> dict[str, Any]:
        """Copies of the states' present values by name, as NumPy arrays; as PyTorch tensors of a dtype that NumPy has only with the
        package ml_dtypes, where that is not installed.
        """
        out = {s.name: state_array(s) for s in self._states}
        self._session.read_states([(i, *memory_of(out[s.name])) for i, s in enumerate(self._states)])
        return out

    def load_state_dict(self, values: Mapping[str, Any], strict: bool = True) -> None:
        """Other values of states: NumPy arrays or PyTorch tensors by name, of the states' dtypes and shapes.

        strict: all states are given and nothing else; otherwise states that are not given stay as they are, and other names are passed over.
        Raises UsageError, before any state is changed.
        """
        known = {s.name: (i, s) for i, s in enumerate(self._states)}
        if strict and values.keys() != known.keys():
            raise UsageError(f"the states given are {sorted(values)}, the model's are {sorted(known)}")
        given = [(known[name][0], state_given(known[name][1], value)) for name, value in values.items() if name in known]
        self._session.write_states([(i, *memory_of(value)) for i, value in given])

    def reset(self) -> None:
        """All states to the values that they have in the file."""
        self._session.reset_states()

    def explain(self, format: str = "text", **sizes: int) -> str:
        """Describes the compiled model: kernels, library calls, bytes moved, edges that were not fused and why.

        format: "text", what the command `tessera explain` prints (it compiles the file once more), or "json", this
        session's report. sizes: of symbolic dimensions, for the text's bytes: explain(batch=8).
        Raises UsageError: another format; InputTypeError: a dimension that the model does not have.
        """
        if format == "json":
            return self._session.report()
        if format != "text":
            raise UsageError(f"format is {format!r}; it may be \"text\" or \"json\"")
        from ._report import text

        return text(self._file, self.device, sizes)

    def warmup(self, *shapes: Sequence[int], **named: Sequence[int]) -> None:
        """Makes ready for calls of these sizes, one shape for each input, by position or by name: compiles and plans what they
        need, by a run on zeros. Threads that call at the same time later plan by themselves; they do not compile again.

        Raises as a call does.
        """
        self._session.warmup(self._in_order(shapes, named) if named else shapes)

    def warmup_ranges(self, ranges: str | None = None, **sizes: Sizes) -> None:
        """Makes ready for calls whose sizes lie in ranges, MIN..OPT..MAX of each symbolic dimension: warmup_ranges("batch=1..8..32"), or
        warmup_ranges(batch=(1, 8, 32)). No call within them waits for the compiler, unless values that it reads decide so; the largest
        sizes fit memory_limit; the typical ones, OPT, are planned. Sizes outside work as before. It runs the model on zeros.

        Raises UsageError: a dimension that the model does not have, or one without a range, MIN above MAX; else as a call does.
        """
        texts = ([ranges] if ranges else []) + ([sizes_text(sizes)] if sizes else [])
        self._session.warmup_ranges(",".join(texts))

    def trim(self) -> None:
        """Gives back the memory that earlier calls have left behind: intermediate results, plans of shapes, graphs of a GPU. Weights
        stay, and the next call of a shape prepares it again. Of a thread's calls: each thread has memory of its own.
        """
        self._session.trim()

    def metrics(self) -> dict[str, Any]:
        """Counts of the model's work since it was loaded, and the memory that it holds: the fields of tessera_metrics in
        api/c.h by name, which says what each counts, and in which unit."""
        return self._session.metrics()

    def metrics_text(self, **labels: str) -> str:
        """The same in Prometheus' text format 0.0.4, each sample with these labels: model.metrics_text(model="bert")."""
        return self._session.metrics_text(",".join(f"{name}={json.dumps(str(value), ensure_ascii=False)}" for name, value in labels.items()))

    def last_miss(self) -> str | None:
        """Why no variant that there was fitted the last call of which that is so, and what came of it. None: it never happened."""
        return self._session.last_miss()

    def __repr__(self) -> str:
        inputs = ", ".join(map(str, self._inputs))
        outputs = ", ".join(map(str, self._outputs))
        return f"<tessera.Model {self._path!r} on {self.device}: ({inputs}) -> ({outputs})>"


@documented
def load(path: str | bytes | os.PathLike[str], device: str = "auto", **options: Unpack[OpenOptions]) -> Model:
    """Reads and compiles a model.

    path: an ONNX file, an archive of torch.export (.pt2), or what `tessera compile` wrote.
    device: "cpu", "cuda" (the first GPU), "cuda:1" (the second one), or "auto": the first GPU where there is one that can
    be used.
    {options}

    specialize and warm_up may be mappings: {"batch": "exact", "seq": "div:8"}, {"batch": (1, 8, 32)}.
    Raises FileError, ModelError, UnsupportedError, UsageError, OutOfMemoryError, RunError; all are tessera.Error.
    """
    given: dict[str, Any] = {name: sizes_text(v) if isinstance(v, Mapping) else v for name, v in {"device": device, **options}.items() if v is not None}
    native = _native.open(path, given)
    if "plan" in given:
        given["plan"] = os.path.abspath(os.fsdecode(given["plan"]))
    return Model(native, os.fsdecode(path), given)
