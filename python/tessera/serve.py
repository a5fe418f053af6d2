"""Models as deployments of Ray Serve.

    from ray import serve
    import tessera.serve

    app = tessera.serve.deployment("model.onnx", max_batch=16, replicas=2)
    handle = serve.run(app, name="model", route_prefix="/model")
    y = handle.infer.remote(x).result()       # NumPy arrays in and out, by position or by name

    POST /model {"inputs": [{"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [1, 2]}]}   # KServe's protocol, version 2

Each replica is a process of Ray's that holds the model. Ray (`pip install "ray[serve]"`) starts, places and counts them, on one machine
or several; the model's file has the same path on each.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import math
import os
import reprlib
from collections.abc import Mapping, Sequence
from typing import Any

from ._arrays import DTYPES_OF_KSERVE, KSERVE
from ._errors import Error, InputError, InputTypeError, UnsupportedError, UsageError
from ._options import TABLE, documented
from ._session import Model, load

_Named = dict[str, Any]  # arrays by the names of inputs or outputs


def batch_symbol(model: Model) -> str | None:
    """The symbol that is dimension 0 of every input and output, and stands in no other dimension; None without one."""
    values = (*model.inputs, *model.outputs)
    firsts = {v.shape[0] if v.shape else None for v in values}
    if len(firsts) != 1 or not model.inputs:
        return None
    (symbol,) = firsts
    if not isinstance(symbol, str) or not symbol.isidentifier():
        return None
    words = "".join(c if c.isalnum() or c in "_." else " " for v in values for d in (v.shape or ())[1:] for c in f"{d} ").split()
    return None if symbol in words else symbol


class Replica:
    """A replica of the model, with its calls. Requests are dicts of one array for each input."""

    def __init__(self, path: str, options: Mapping[str, Any], max_batch: int) -> None:
        self._model = load(path, **options)
        self._outputs = tuple(o.name for o in self._model.outputs)
        if max_batch > 1 and batch_symbol(self._model) is None:
            raise UsageError(
                f"max_batch is {max_batch}, and {path!r} has no batch dimension: no symbol is dimension 0 of every input and output, and no other",
                notes=("max_batch=1 computes each request by itself",),
            )

    def named(self, args: Sequence[Any], named: Mapping[str, Any]) -> _Named:
        """Arguments by the names of inputs. Raises InputTypeError where one is missing, unknown or given twice."""
        names = [i.name for i in self._model.inputs]
        given = dict(zip(names, args, strict=False))
        twice = given.keys() & named.keys()
        given.update(named)
        if len(args) > len(names) or twice or given.keys() != set(names):
            raise InputTypeError(f"the model's inputs are {', '.join(names)}; {len(args)} were given by position, and by name {', '.join(named) or 'none'}")
        return given

    def one(self, request: _Named) -> _Named:
        """One call of the model."""
        outputs = self._model(*(request[i.name] for i in self._model.inputs))
        return dict(zip(self._outputs, outputs if isinstance(outputs, tuple) else (outputs,), strict=True))

    def several(self, requests: Sequence[_Named]) -> list[_Named | Exception]:
        """The answer to each: those of equal sizes but for dimension 0 are one call. A call that fails is divided, so that only
        the request that is wrong gets the error.
        """
        groups: dict[Any, list[int]] = {}
        answers: list[_Named | Exception] = [InputError("the request was not computed")] * len(requests)
        for index, request in enumerate(requests):
            groups.setdefault(self._sizes(request, index), []).append(index)
        for indices in groups.values():
            try:
                parts = self._together([requests[i] for i in indices])
            except Exception as e:
                parts = [e] if len(indices) == 1 else [self._alone(requests[i]) for i in indices]
            for i, part in zip(indices, parts, strict=True):
                answers[i] = part
        return answers

    def _alone(self, request: _Named) -> _Named | Exception:
        try:
            return self.one(request)
        except Exception as e:
            return e

    def _sizes(self, request: _Named, index: int) -> Any:
        """The key that requests of one call share; the index where that is not known, so that it is computed alone."""
        arrays = [request[i.name] for i in self._model.inputs]
        if not all(getattr(a, "shape", None) and hasattr(a, "dtype") for a in arrays) or len({a.shape[0] for a in arrays}) != 1:
            return index
        return tuple((str(a.dtype), tuple(a.shape[1:])) for a in arrays)

    def _together(self, requests: Sequence[_Named]) -> list[_Named | Exception]:
        if len(requests) == 1:
            return [self.one(requests[0])]
        import numpy

        whole = self.one({i.name: numpy.concatenate([r[i.name] for r in requests]) for i in self._model.inputs})
        ends = numpy.cumsum([r[self._model.inputs[0].name].shape[0] for r in requests]).tolist()
        for name, value in whole.items():
            if value.shape[0] != ends[-1]:
                raise InputError(f"output '{name}' has {value.shape[0]} rows for a batch of {ends[-1]}")
        # Copies: an answer does not keep the whole batch.
        return [{name: value[end - r[self._model.inputs[0].name].shape[0] : end].copy() for name, value in whole.items()} for r, end in zip(requests, ends, strict=True)]

    def arrays_of(self, body: bytes) -> _Named:
        """The inputs in the body of a request of KServe's protocol, version 2. Raises InputError or InputTypeError, which say what is wrong."""
        try:
            request = json.loads(body)
        except RecursionError:
            raise InputError("the body is JSON that is nested too deeply") from None
        except ValueError as e:
            raise InputError(f"the body is not JSON: {e}") from e
        if not isinstance(request, dict) or not isinstance(request.get("inputs"), list):
            raise InputTypeError('the body is no object with a list "inputs"')
        out: _Named = {}
        for index, one in enumerate(request["inputs"]):
            name, array = _input_of(one, index)
            if name in out:
                raise InputTypeError(f"input '{name}' is given twice")
            out[name] = array
        return self.named((), out)


def _shown(value: Any) -> str:
    """JSON of a value, or the beginning of it."""
    return reprlib.repr(value) if isinstance(value, (dict, list)) else json.dumps(value)[:80]


def _input_of(one: Any, index: int) -> tuple[str, Any]:
    """Name and array of an element of "inputs"."""
    import numpy

    if not isinstance(one, dict):
        raise InputTypeError(f'inputs[{index}] is {_shown(one)}; an object with "name", "shape", "datatype" and "data" is expected')
    name, shape, datatype, data = (one.get(key) for key in ("name", "shape", "datatype", "data"))
    if not isinstance(name, str):
        raise InputTypeError(f'inputs[{index}]: "name" is {_shown(name)}; a string is expected')
    if not isinstance(shape, list) or not all(type(size) is int and size >= 0 for size in shape):
        raise InputTypeError(f"input '{name}': \"shape\" is {_shown(shape)}; a list of integers that are 0 or more is expected")
    dtype = DTYPES_OF_KSERVE.get(datatype) if isinstance(datatype, str) else None
    if dtype is None:
        raise InputTypeError(f"input '{name}': \"datatype\" is {_shown(datatype)}; it may be {', '.join(DTYPES_OF_KSERVE)}")
    if not isinstance(data, list):
        raise InputTypeError(f"input '{name}': \"data\" is {_shown(data)}; a list is expected")
    flat = _flat(data, shape, name)
    kinds, expected = _VALUES[numpy.dtype(dtype).kind]
    if not kinds.issuperset(map(type, flat)):
        at = next(i for i, value in enumerate(flat) if type(value) not in kinds)
        raise InputTypeError(f"input '{name}': element {at} is {_shown(flat[at])}; {datatype} takes {expected}")
    beyond = _beyond(flat, dtype)
    if beyond is not None:
        limits = numpy.finfo(dtype) if dtype.startswith("float") else numpy.iinfo(dtype)
        raise InputError(f"input '{name}': element {beyond} is {_shown(flat[beyond])}; {datatype} takes {expected} from {limits.min} to {limits.max}")
    try:
        return name, numpy.array(flat, dtype).reshape(shape)
    except ValueError as e:  # sizes that no array has
        raise InputError(f"input '{name}': shape {_shown(shape)}: {e}") from e


# Types of Python that JSON's values have, by kind of NumPy's dtype.
_VALUES: dict[str, tuple[frozenset[type], str]] = {
    "b": (frozenset({bool}), "true and false"), "i": (frozenset({int}), "integers"), "u": (frozenset({int}), "integers"),
    "f": (frozenset({int, float}), "numbers"), "O": (frozenset({str}), "strings"),
}  # fmt: skip


def _beyond(flat: list[Any], dtype: str) -> int | None:
    """The first number that the dtype does not hold. Infinities of floats are held."""
    import numpy

    if not flat or dtype in ("bool", "object"):
        return None
    if not dtype.startswith("float"):
        low, high = int(numpy.iinfo(dtype).min), int(numpy.iinfo(dtype).max)
        return None if low <= min(flat) and max(flat) <= high else next(i for i, v in enumerate(flat) if not low <= v <= high)
    most = int(numpy.finfo(dtype).max)  # with which Python compares integers of any size exactly
    try:
        sizes = numpy.abs(numpy.array(flat, numpy.float64))
        if not ((sizes > float(most)) & (sizes != math.inf)).any():
            return None
    except OverflowError:  # an integer beyond float64
        pass
    return next((i for i, v in enumerate(flat) if abs(v) > most and abs(v) != math.inf), None)


def _flat(data: list[Any], shape: list[int], name: str) -> list[Any]:
    """The elements, row-major. The protocol has them in one list, or in lists nested as the shape says."""
    level, flat = 0, data
    while list in set(map(type, flat)):
        level += 1
        fits = level < len(shape) and len(flat) == math.prod(shape[:level]) and all(isinstance(v, list) and len(v) == shape[level] for v in flat)
        if not fits:
            raise InputError(f"input '{name}': \"data\" is nested in another way than shape {_shown(shape)} says")
        flat = list(itertools.chain.from_iterable(flat))
    if len(flat) != math.prod(shape):
        raise InputError(f"input '{name}': \"data\" has {len(flat)} elements; shape {_shown(shape)} says {math.prod(shape)}")
    return flat


def _text_of(answer: _Named, name: str) -> str:
    """The body of an answer. NaN and infinities are NaN, Infinity and -Infinity, as Triton's server writes and reads them.

    Raises UnsupportedError: the protocol's JSON has no values for an output's dtype.
    """
    outputs = []
    for output, value in answer.items():
        datatype = KSERVE.get(str(getattr(value, "dtype", type(value).__name__)))
        if datatype is None:
            raise UnsupportedError(f"output '{output}' is {getattr(value, 'dtype', type(value).__name__)}, for which the protocol has no JSON")
        outputs.append({"name": output, "shape": list(value.shape), "datatype": datatype, "data": value.ravel().tolist()})
    return json.dumps({"model_name": name, "outputs": outputs})


def _serve() -> Any:
    """The module ray.serve."""
    try:
        from ray import serve
    except ImportError as e:
        raise UsageError(f"tessera.serve needs Ray Serve, which cannot be imported: {e}", notes=('pip install "ray[serve]"',)) from e
    return serve


def _class_of(serve: Any, max_batch: int, batch_wait: float) -> type:
    """The class of a deployment: Replica with the batching of Ray Serve, whose decorator keeps one queue for each replica."""

    class TesseraModel(Replica):
        async def _answers(self, requests: list[_Named]) -> list[_Named | Exception]:
            # Ray's loop goes on during the call, which does not hold the interpreter's lock.
            return await asyncio.to_thread(self.several, requests)

        if max_batch > 1:
            _answers = serve.batch(max_batch_size=max_batch, batch_wait_timeout_s=batch_wait)(_answers)

        async def _answer(self, request: _Named) -> _Named:
            answer = await self._answers(request) if max_batch > 1 else (await self._answers([request]))[0]  # type: ignore[arg-type]
            if isinstance(answer, Exception):
                raise answer
            return answer  # type: ignore[return-value]

        async def infer(self, *args: Any, **named: Any) -> Any:
            """The outputs as NumPy arrays: one, or a tuple where the model has several or none."""
            answer = await self._answer(self.named(args, named))
            values = tuple(answer.values())
            return values[0] if len(values) == 1 else values

        async def __call__(self, request: Any) -> Any:
            """A request by HTTP, with a body of KServe's protocol, version 2."""
            from starlette.responses import Response

            try:
                answer = await self._answer(self.arrays_of(await request.body()))
                text, status = _text_of(answer, serve.get_replica_context().deployment), 200
            except Error as e:
                text, status = json.dumps({"error": str(e)}), 400 if isinstance(e, (InputError, InputTypeError)) else 500
            return Response(text, status, media_type="application/json")

    return TesseraModel


@documented
def deployment(
    path: str | os.PathLike[str],
    *,
    max_batch: int = 1,
    batch_wait: float = 0.002,
    replicas: int | None = None,
    autoscaling: Mapping[str, Any] | None = None,
    name: str = "TesseraModel",
    **further: Any,
) -> Any:
    """An application of Ray Serve that computes a model: what serve.run() takes.

    path: as of tessera.load. A replica opens it with these options, and takes requests once it is warm:

    {options}

    threads is 1 where it is not given.
    max_batch: rows of requests that are computed together, at most; 1: each request by itself. More needs a batch dimension: one
        symbol that is dimension 0 of every input and output, and no other. Rows must not depend on each other.
    batch_wait: seconds that a request waits for others.
    replicas: processes that hold the model. autoscaling: Ray's autoscaling_config instead, such as {"min_replicas": 1,
        "max_replicas": 8, "target_ongoing_requests": 4}.
    name: of the deployment. further: options of serve.deployment. Where ray_actor_options does not say otherwise, a replica has
        `threads` CPUs (at least one), and a GPU for device "cuda".

    Raises UsageError: Ray is absent, or replicas and autoscaling are both given. Errors of the model are the replica's.
    """
    serve = _serve()
    if replicas is not None and autoscaling is not None:
        raise UsageError("replicas and autoscaling are both given", notes=("autoscaling has min_replicas and max_replicas",))
    if max_batch < 1 or batch_wait < 0:
        raise UsageError(f"max_batch is {max_batch} and batch_wait {batch_wait}; they are at least 1 and 0")
    model_options = {"device": "auto", "threads": 1, **{name: further.pop(name) for name in TABLE if name in further}}
    if model_options.get("plan") is not None:
        model_options["plan"] = os.path.abspath(model_options["plan"])
    resources: dict[str, Any] = {"num_cpus": max(model_options["threads"] or 0, 1)}
    if (model_options["device"] or "").startswith("cuda"):
        resources["num_gpus"] = 1
    further["ray_actor_options"] = {**resources, **further.get("ray_actor_options", {})}
    if autoscaling is not None:
        further["autoscaling_config"] = dict(autoscaling)
    else:
        further["num_replicas"] = 1 if replicas is None else replicas
    # A batch is filled by requests that are in the replica: more of them than one batch, so that the next one is there in time.
    further.setdefault("max_ongoing_requests", max(2 * max_batch, 8))
    made = serve.deployment(name=name, **further)(_class_of(serve, max_batch, batch_wait))
    return made.bind(os.path.abspath(path), model_options, max_batch)
