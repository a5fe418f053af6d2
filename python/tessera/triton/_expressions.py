"""Expressions of kernels: evaluated in Python, on tensors that write tile IR."""

from __future__ import annotations

import ast
import difflib
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from . import _arithmetic as arithmetic
from . import _types as types
from ._errors import Refusal
from ._memory import Unavailable
from ._merge import Undefined, joined
from ._text import writer
from ._values import is_number, kind_of, pointer, tensor, to_tensor, unwrapped

if TYPE_CHECKING:
    from ._source import Source

_BINARY: dict[type, tuple[Callable[[Any, Any], Any], Callable[[Any, Any], Any]]] = {
    ast.Add: (operator.add, arithmetic.add),
    ast.Sub: (operator.sub, arithmetic.sub),
    ast.Mult: (operator.mul, arithmetic.mul),
    ast.Div: (operator.truediv, arithmetic.truediv),
    ast.FloorDiv: (operator.floordiv, arithmetic.floordiv),
    ast.Mod: (operator.mod, arithmetic.mod),
    ast.BitAnd: (operator.and_, lambda a, b: arithmetic.bits("and", a, b)),
    ast.BitOr: (operator.or_, lambda a, b: arithmetic.bits("or", a, b)),
    ast.BitXor: (operator.xor, lambda a, b: arithmetic.bits("xor", a, b)),
    ast.LShift: (operator.lshift, lambda a, b: arithmetic.shift("shl", a, b)),
    ast.RShift: (operator.rshift, lambda a, b: arithmetic.shift("shr", a, b)),
    ast.Pow: (operator.pow, lambda a, b: power(a, b)),
}
_COMPARE: dict[type, tuple[Callable[[Any, Any], Any], str]] = {
    ast.Eq: (operator.eq, "eq"), ast.NotEq: (operator.ne, "ne"), ast.Lt: (operator.lt, "lt"),
    ast.LtE: (operator.le, "le"), ast.Gt: (operator.gt, "gt"), ast.GtE: (operator.ge, "ge"),
}  # fmt: skip


def power(a: Any, b: Any) -> tensor:
    """a ** b: repeated products for small constant exponents."""
    if isinstance(a, tensor) and isinstance(b, int) and 1 <= b <= 8:
        result = a
        for _ in range(b - 1):
            result = arithmetic.mul(result, a)
        return result
    x, y, kind = arithmetic.pair(a, b)
    if not kind.is_floating():
        raise Refusal(f"** of {kind} with an exponent that is no small constant", "use tl.exp2 or shifts")
    return arithmetic._computed("pow", x, y, kind)


class Frame:
    """A function that is being executed. node: what is evaluated, for the places of errors."""

    def __init__(self, source: Source, env: dict[str, Any]) -> None:
        self.source, self.env = source, env
        self.node: ast.AST | None = source.tree
        self.loops = 0  # loops around the current statement


class Expressions:
    """Evaluates expressions in the innermost frame."""

    def __init__(self) -> None:
        self.frames: list[Frame] = []

    @property
    def frame(self) -> Frame:
        return self.frames[-1]

    def evaluate(self, node: ast.expr, result_used: bool = True) -> Any:
        """The value of an expression."""
        frame = self.frame
        outer, frame.node = frame.node, node
        of = getattr(self, f"_{type(node).__name__.lower()}", None)
        if of is None:
            raise Refusal(f"{type(node).__name__} is not a part of Triton's language", "compute it outside of the kernel, and pass it as a tl.constexpr")
        value = unwrapped(of(node))
        if result_used and isinstance(value, Unavailable):
            raise value.refusal
        frame.node = outer
        return value

    def _constant(self, node: ast.Constant) -> Any:
        return node.value

    def _name(self, node: ast.Name) -> Any:
        if node.id in self.frame.env:
            value = self.frame.env[node.id]
            if isinstance(value, Undefined):
                raise Refusal(f"'{node.id}' {value.reason}", "assign it on every path before it is used")
            return value
        try:
            return self.frame.source.lookup(node.id)
        except KeyError:
            near = difflib.get_close_matches(node.id, [*self.frame.env, *self.frame.source.names()], 1)
            raise Refusal(f"'{node.id}' is not defined", f"did you mean '{near[0]}'?" if near else "") from None

    def _tuple(self, node: ast.Tuple) -> Any:
        return tuple(self._items(node.elts))

    _list = _tuple

    def _items(self, nodes: Sequence[ast.expr]) -> Iterator[Any]:
        for node in nodes:
            if isinstance(node, ast.Starred):
                yield from self.evaluate(node.value)
            else:
                yield self.evaluate(node)

    def _attribute(self, node: ast.Attribute) -> Any:
        value = self.evaluate(node.value)
        if (is_number(value) or isinstance(value, str) or value is None) and node.attr == "value":
            return value
        if isinstance(value, types.dtype) and node.attr == "value":
            return value
        if is_number(value) and not hasattr(value, node.attr):
            value = to_tensor(value)
        try:
            return getattr(value, node.attr)
        except AttributeError:
            names = [n for n in dir(value) if not n.startswith("_")]
            near = difflib.get_close_matches(node.attr, names, 1)
            what = f"module '{value.__name__}'" if hasattr(value, "__spec__") else kind_of(value)
            raise Refusal(f"{what} has no '{node.attr}'", f"did you mean '{near[0]}'?" if near else "") from None

    def _subscript(self, node: ast.Subscript) -> Any:
        value = self.evaluate(node.value)
        index = self._index(node.slice)
        if isinstance(value, tensor):
            return self._dimensions(value, index if isinstance(index, tuple) else (index,))
        if isinstance(index, tensor):
            raise Refusal("the index of a tuple is a constant, not a tensor", "unroll the loop with tl.static_range")
        try:
            return value[index]
        except (TypeError, IndexError, KeyError) as e:
            raise Refusal(f"{kind_of(value)}[{index!r}]: {e}") from None

    def _index(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Tuple):
            return tuple(self._index(n) for n in node.elts)
        if isinstance(node, ast.Slice):
            return slice(*(self.evaluate(n) if n else None for n in (node.lower, node.upper, node.step)))
        return self.evaluate(node)

    @staticmethod
    def _dimensions(value: tensor, index: tuple[Any, ...]) -> tensor:
        """x[:, None]: a slice keeps a dimension, None adds one."""
        axis = 0
        for i in index:
            if i is None:
                value = arithmetic.expand_dims(value, axis)
            elif not (isinstance(i, slice) and i == slice(None)):
                raise Refusal(f"a tensor is indexed by ':' and None, not by {kind_of(i)}", "load the part that you need, or select it with tl.where and tl.sum")
            axis += 1
        return value

    def _binop(self, node: ast.BinOp) -> Any:
        return self.binary(node.op, self.evaluate(node.left), self.evaluate(node.right))

    def binary(self, op: ast.operator, a: Any, b: Any) -> Any:
        """An operator of two values."""
        if type(op) not in _BINARY:
            raise Refusal(f"the operator {type(op).__name__} is not a part of Triton's language", "use tl.dot for products of matrices")
        python, of = _BINARY[type(op)]
        if isinstance(a, tensor) or isinstance(b, tensor):
            return of(a, b)
        try:
            return python(a, b)
        except (TypeError, ZeroDivisionError, ValueError) as e:
            raise Refusal(f"{kind_of(a)} and {kind_of(b)}: {e}") from None

    def _unaryop(self, node: ast.UnaryOp) -> Any:
        value = self.evaluate(node.operand)
        if isinstance(node.op, ast.Not):
            return not self._is_true(value) if not isinstance(value, tensor) or isinstance(value, pointer) else arithmetic.logical_not(value)
        if isinstance(node.op, ast.USub):
            return arithmetic.negative(value) if isinstance(value, tensor) else -value
        if isinstance(node.op, ast.Invert):
            return arithmetic.invert(value) if isinstance(value, tensor) else ~value
        return value

    def _compare(self, node: ast.Compare) -> Any:
        left, result = self.evaluate(node.left), None
        for op, right_node in zip(node.ops, node.comparators):
            right = self.evaluate(right_node)
            one = self._compared(op, left, right)
            result = one if result is None else self._both(ast.And(), result, one)
            left = right
        return result

    @staticmethod
    def _compared(op: ast.cmpop, a: Any, b: Any) -> Any:
        if isinstance(op, (ast.Is, ast.IsNot)):
            return (a is b) == isinstance(op, ast.Is)
        if isinstance(op, (ast.In, ast.NotIn)):
            if isinstance(a, tensor):
                raise Refusal("'in' is decided at compile time, and the value is a tensor", "compare with each value, and combine with |")
            return (a in b) == isinstance(op, ast.In)
        python, name = _COMPARE[type(op)]
        if isinstance(a, tensor) or isinstance(b, tensor):
            if all(isinstance(v, tensor) or is_number(v) for v in (a, b)):
                return arithmetic.compare(name, a, b)
            if name in ("eq", "ne"):  # with None, a dtype or a string
                return name == "ne"
        try:
            return python(a, b)
        except TypeError as e:
            raise Refusal(str(e)) from None

    @staticmethod
    def _is_true(value: Any) -> bool:
        return isinstance(value, pointer) or bool(value)

    def _boolop(self, node: ast.BoolOp) -> Any:
        value = self.evaluate(node.values[0])
        for other in node.values[1:]:
            if (not isinstance(value, tensor) or isinstance(value, pointer)) and self._is_true(value) == isinstance(node.op, ast.Or):
                return value
            value = self._both(node.op, value, self.evaluate(other))
        return value

    @staticmethod
    def _both(op: ast.boolop, a: Any, b: Any) -> Any:
        """'a and b', 'a or b' where a does not decide alone."""
        if not isinstance(a, tensor) or isinstance(a, pointer):
            return b
        if not isinstance(b, tensor):
            decides = bool(b) == isinstance(op, ast.Or)
            return bool(b) if decides else arithmetic.truth(a)
        return arithmetic.logical("and" if isinstance(op, ast.And) else "or", a, b)

    def condition(self, node: ast.expr) -> Any:
        """A condition: a bool, or a scalar tensor of int1."""
        value = self.evaluate(node)
        if not isinstance(value, tensor):
            return bool(value)
        if isinstance(value, pointer):
            return True  # None is a constant
        if value.shape:
            raise Refusal(f"a condition is a scalar, not {value!r}", "use tl.where, or reduce the tile to a scalar with tl.max")
        return arithmetic.truth(value)

    def _ifexp(self, node: ast.IfExp) -> Any:
        test = self.condition(node.test)
        if not isinstance(test, tensor):
            return self.evaluate(node.body if test else node.orelse)
        w = writer()
        regions, values = [w.region(), w.region()], []
        for region, branch in zip(regions, (node.body, node.orelse)):
            with w.inside(region):
                values.append(self.evaluate(branch))
        return joined(test, regions, values, "the result of 'if' and 'else'")

    def _joinedstr(self, node: ast.JoinedStr) -> str:
        return "".join(str(self.evaluate(v)) for v in node.values)

    def _formattedvalue(self, node: ast.FormattedValue) -> str:
        return str(self.evaluate(node.value))

    def _call(self, node: ast.Call) -> Any:
        function = self.evaluate(node.func)
        arguments = list(self._items(node.args))
        keywords: dict[str, Any] = {}
        for k in node.keywords:
            if k.arg is None:
                keywords.update(self.evaluate(k.value))
            else:
                keywords[k.arg] = self.evaluate(k.value)
        return self.apply(function, arguments, keywords)

    def apply(self, function: Any, arguments: list[Any], keywords: dict[str, Any]) -> Any:
        raise NotImplementedError


