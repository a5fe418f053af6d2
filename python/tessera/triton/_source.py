"""Functions with @triton.jit as syntax trees, with the places of their source."""

from __future__ import annotations

import ast
import builtins
import inspect
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

from ._values import constexpr


class Source:
    """The syntax tree of a function. file, first_line, indent: where it stands; parameters: names in order."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        lines, self.first_line = inspect.getsourcelines(fn)
        text = "".join(lines)
        self.indent = len(lines[0]) - len(lines[0].lstrip())
        self.text = textwrap.dedent(text)
        self.file = inspect.getsourcefile(fn) or "<unknown>"
        self.fn = fn
        tree = ast.parse(self.text).body[0]
        if not isinstance(tree, ast.FunctionDef):
            raise TypeError(f"{self.file}:{self.first_line}: @triton.jit decorates functions written with 'def'")
        self.tree = tree
        self.signature = inspect.signature(fn)
        self.constants = [name for name, p in self.signature.parameters.items() if is_constexpr(p.annotation)]

    def place(self, node: ast.AST | None) -> str:
        """ "file:line:column" of a node."""
        line = getattr(node, "lineno", 1) + self.first_line - 1
        column = getattr(node, "col_offset", 0) + self.indent + 1
        return f"{self.file}:{line}:{column}"

    def lookup(self, name: str) -> Any:
        """A name that the function does not define: of an enclosing function, of its module, or of Python. Raises KeyError."""
        closure = self.fn.__closure__ or ()
        for variable, cell in zip(self.fn.__code__.co_freevars, closure):
            if variable == name:
                return cell.cell_contents
        if name in self.fn.__globals__:
            return self.fn.__globals__[name]
        return vars(builtins)[name]

    def names(self) -> list[str]:
        """Names that the function could mean, for suggestions."""
        return [*self.fn.__code__.co_freevars, *self.fn.__globals__, *dir(builtins)]


def is_constexpr(annotation: Any) -> bool:
    """True of tl.constexpr, also as text."""
    return annotation is constexpr or (isinstance(annotation, str) and annotation.strip("'\" ").split(".")[-1] == "constexpr")


def assigned(body: list[ast.stmt], taken: Callable[[ast.expr], bool | None]) -> Iterator[str]:
    """Names that statements assign. taken(test): how a condition is decided at compile time, or None."""
    for statement in body:
        if isinstance(statement, ast.Assign):
            for target in statement.targets:
                yield from _names(target)
        elif isinstance(statement, (ast.AugAssign, ast.AnnAssign)):
            yield from _names(statement.target)
        elif isinstance(statement, (ast.For, ast.While)):
            if isinstance(statement, ast.For):
                yield from _names(statement.target)
            yield from assigned(statement.body, taken)
        elif isinstance(statement, ast.If):
            decided = taken(statement.test)
            if decided is not False:
                yield from assigned(statement.body, taken)
            if decided is not True:
                yield from assigned(statement.orelse, taken)
        elif isinstance(statement, ast.With):
            yield from assigned(statement.body, taken)


def _names(target: ast.expr) -> Iterator[str]:
    if isinstance(target, ast.Name):
        yield target.id
    elif isinstance(target, (ast.Tuple, ast.List)):
        for item in target.elts:
            yield from _names(item)
    elif isinstance(target, ast.Starred):
        yield from _names(target.value)


def returns(body: list[ast.stmt]) -> bool:
    """True if statements contain a return."""
    return any(isinstance(node, ast.Return) for statement in body for node in ast.walk(statement))


def pure(test: ast.expr) -> set[str] | None:
    """The names of an expression without calls; None for one with calls."""
    allowed = (ast.Name, ast.Constant, ast.Compare, ast.BoolOp, ast.UnaryOp, ast.BinOp, ast.Attribute, ast.operator, ast.unaryop, ast.boolop, ast.cmpop, ast.expr_context)
    if not all(isinstance(node, allowed) for node in ast.walk(test)):
        return None
    return {node.id for node in ast.walk(test) if isinstance(node, ast.Name)}
