"""Loaded models in graphs of PyTorch: the operator `tessera::call`, which tracers and torch.export record.

    traced = torch.jit.trace(lambda x: model(x), x)
    program = torch.export.export(module_that_calls_a_model, (x,))

The graph names the model by its file and the options of tessera.load. Where that model was traced it is used, and lives as long as the
process; elsewhere `import tessera.recorded` makes the operator known, and the first call loads the file.
"""

from __future__ import annotations

import ast
import json
import operator
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ._arrays import NUMBERS, torch_dtype
from ._errors import InputError, InputTypeError, UnsupportedError, UsageError
from ._session import Model, TensorInfo, load

_models: dict[str, Model] = {}  # by what graphs call them
_names: dict[int, str] = {}  # of each model in `_models`, by its id()
_lock = threading.Lock()


def call(model: Model, args: Sequence[Any], stream: int | None) -> list[torch.Tensor]:
    """A call of the model by PyTorch's dispatcher. Raises UnsupportedError: the model has states; UsageError, InputTypeError."""
    if model.states:
        raise UnsupportedError(
            f"calls of {model!r} change its states, which a graph of PyTorch cannot record", notes=("call it outside of what is traced",)
        )
    if stream is not None:
        raise UsageError("a stream is given in a call that PyTorch traces", notes=("such a call runs on PyTorch's current stream",))
    for info, arg in zip(model.inputs, args):
        if not isinstance(arg, torch.Tensor):
            raise InputTypeError(f"input '{info.name}' is of type {type(arg).__name__}; a call that PyTorch traces takes its tensors")
        if _differentiated(arg):
            raise _no_gradients()
    with _lock:
        name = _names.get(id(model))
        if name is None:
            # The number distinguishes models that were loaded from one path, whose file may have changed.
            name = json.dumps({"path": model._file, **model._options, "number": len(_models)})
            _models[name], _names[id(model)] = model, name
    return torch.ops.tessera.call(list(args), name)  # type: ignore[no-any-return]


def _model_of(name: str) -> Model:
    with _lock:
        model = _models.get(name)
        if model is None:
            options = json.loads(name)
            del options["number"]
            model = _models[name] = load(**options)
            _names[id(model)] = name
        return model


@torch.library.custom_op("tessera::call", mutates_args=(), schema="(Tensor[] inputs, str model) -> Tensor[]")
def _call(inputs: list[torch.Tensor], model: str) -> list[torch.Tensor]:
    return _model_of(model)._session.run(tuple(inputs), None, True)  # type: ignore[return-value]


@_call.register_fake
def _(inputs: list[torch.Tensor], model: str) -> list[torch.Tensor]:
    """Outputs of the sizes that the model declares. One that no input's sizes give is a new symbol, as sizes that are data have."""
    of = _model_of(model)
    if len(inputs) != len(of.inputs):
        raise InputTypeError(f"the model has {len(of.inputs)} inputs, and the number given is {len(inputs)}")
    symbols: dict[str, Any] = {}
    for info, t in zip(of.inputs, inputs, strict=True):
        if info.dtype != str(t.dtype).removeprefix("torch."):
            raise InputTypeError(f"input '{info.name}' has dtype {t.dtype}; the model declares {info}")
        if info.shape is not None and len(info.shape) != t.dim():
            raise InputError(f"input '{info.name}' has {t.dim()} dimensions; the model declares {info}")
        for dim, size in zip(info.shape or (), t.shape):
            if isinstance(dim, str) and not isinstance(_parsed(dim), (ast.BinOp, ast.UnaryOp, ast.Call)):
                symbols.setdefault(dim, size)
    for info, t in zip(of.inputs, inputs, strict=True):
        for d, dim in enumerate(info.shape or ()):
            want = _size(dim, symbols)
            if want is not None:
                message = f"dimension {d} of input '{info.name}' is not as the model declares it, {info}"
                torch._check(t.shape[d] == want, message.__str__)
    return [_fake(info, symbols, inputs[0]) for info in of.outputs]


def _no_gradients() -> UnsupportedError:
    return UnsupportedError("a loaded model has no gradients", notes=('torch.compile(module, backend="tessera") compiles a module for training',))


def _differentiated(t: torch.Tensor) -> bool:
    """Whether torch.func differentiates by the tensor, forwards or backwards."""
    f = torch._C._functorch
    while f.is_functorch_wrapped_tensor(t):
        if f.is_gradtrackingtensor(t) and (t.requires_grad or torch.autograd.forward_ad.unpack_dual(t).tangent is not None):
            return True
        t = f.get_unwrapped(t)
    return False


def _backward(context: Any, *gradients: Any) -> Any:
    raise _no_gradients()


_call.register_autograd(_backward)


@_call.register_vmap
def _(vmap: Any, dims: Any, inputs: list[torch.Tensor], model: str) -> tuple[list[torch.Tensor], list[int]]:
    """A call for each index of the mapped dimension: what the model does along others is not known here."""
    if vmap.batch_size == 0:
        raise InputError("vmap over a dimension of size 0: the model is called for each index, and there is none")
    calls = [_call([t if d is None else t.select(d, i) for t, d in zip(inputs, dims[0])], model) for i in range(vmap.batch_size)]
    outputs = [torch.stack(of_each) for of_each in zip(*calls, strict=True)]
    return outputs, [0] * len(outputs)


def _fake(info: TensorInfo, symbols: dict[str, Any], like: torch.Tensor) -> torch.Tensor:
    if info.shape is None:
        raise UnsupportedError(f"each call decides how many dimensions output '{info.name}' has, which a graph of PyTorch cannot record")
    sizes = []
    for dim in info.shape:
        size = _size(dim, symbols)
        if size is None:
            size = symbols[str(dim)] = torch.library.get_ctx().new_dynamic_size()
        sizes.append(size)
    return like.new_empty(sizes, dtype=torch_dtype(NUMBERS[info.dtype]))


# Sizes as the library writes them: expressions of Python over symbols, where that is how they are parsed.
_FUNCTIONS: dict[Any, Callable[..., Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.USub: operator.neg,
    "floordiv": operator.floordiv, "mod": operator.mod, "min": torch.sym_min, "max": torch.sym_max,
}  # fmt: skip


def _parsed(dim: str) -> ast.expr | None:
    try:
        return ast.parse(dim, mode="eval").body
    except SyntaxError:
        return None


def _size(dim: int | str, symbols: Mapping[str, Any]) -> Any:
    """None: a symbol or a function in it is not known."""
    if not isinstance(dim, str) or dim in symbols:
        return symbols[dim] if isinstance(dim, str) else dim
    parsed = _parsed(dim)
    return None if parsed is None else _value(parsed, dim, symbols)


def _value(node: ast.expr, dim: str, symbols: Mapping[str, Any]) -> Any:
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    if isinstance(node, ast.BinOp):
        function, operands = _FUNCTIONS.get(type(node.op)), [node.left, node.right]
    elif isinstance(node, ast.UnaryOp):
        function, operands = _FUNCTIONS.get(type(node.op)), [node.operand]
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        function, operands = _FUNCTIONS.get(node.func.id), node.args
    else:
        return symbols.get(ast.get_source_segment(dim, node) or "")
    values = [_value(o, dim, symbols) for o in operands]
    return None if function is None or any(v is None for v in values) else function(*values)
