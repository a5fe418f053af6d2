"""Executes the syntax tree of a kernel, which writes its tile IR: statements, control flow and calls."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from . import _arithmetic as arithmetic
from . import _types as types
from ._errors import CompileTimeAssertionFailure, Refusal, lacking
from ._expressions import Expressions, Frame
from ._merge import Carried, Changed, Iterations, Leaf, Undefined, carried, joined, leaves, merge, named, rebuilt, same
from ._source import Source, assigned, pure, returns
from ._text import Ir, literal, writer
from ._values import is_number, kind_of, pointer, summed, tensor, unwrapped, whole, widened

MAX_STAGES = 8  # of a loop of the tile IR
MAX_INLINED = 64  # calls within calls


class Returned:
    """The value of a return statement."""

    def __init__(self, value: Any) -> None:
        self.value = value


class Loop:
    """range, tl.range: a loop of the program. num_stages: of software pipelining, 0 for the compiler's choice."""

    def __init__(self, *bounds: Any, num_stages: Any = None) -> None:
        if not 1 <= len(bounds) <= 3:
            raise Refusal(f"range takes one to three bounds, not {len(bounds)}")
        start, stop, step = (0, bounds[0], 1) if len(bounds) == 1 else (*bounds, 1)[:3]
        self.start, self.stop, self.step = (unwrapped(b) for b in (start, stop, step))
        self.num_stages = unwrapped(num_stages) or 0


class Executor(Expressions):
    """Executes functions. num_stages: of loops that do not say."""

    def __init__(self) -> None:
        super().__init__()
        self.file = ""

    # ---- calls

    def call(self, source: Source, arguments: list[Any], keywords: dict[str, Any]) -> Any:
        """Inlines a function; its result."""
        if len(self.frames) >= MAX_INLINED:
            raise Refusal(f"functions call each other {MAX_INLINED} deep", "kernels have no recursion")
        try:
            bound = source.signature.bind(*arguments, **keywords)
        except TypeError as e:
            raise Refusal(f"{source.tree.name}(): {e}") from None
        bound.apply_defaults()
        env = {name: self._argument(value) for name, value in bound.arguments.items()}
        self.frames.append(Frame(source, env))
        result = self.block(source.tree.body)
        self.frames.pop()
        return result.value if isinstance(result, Returned) else None

    @staticmethod
    def _argument(value: Any) -> Any:
        value = unwrapped(value)
        if isinstance(value, list):
            value = tuple(value)
        return value

    def apply(self, function: Any, arguments: list[Any], keywords: dict[str, Any]) -> Any:
        """A call in a kernel: of a function with @triton.jit, of one of tl, or of one that computes constants."""
        from ._builtins import substitute

        function = unwrapped(function)
        source = jit_source(function)
        if source is not None:
            return self.call(source, arguments, keywords)
        function = substitute(function)
        module = getattr(function, "__module__", None) or getattr(type(function), "__module__", "")
        if not str(module).startswith(__package__) and (kind := first_tensor([*arguments, *keywords.values()])) is not None:
            name = getattr(function, "__qualname__", kind_of(function))
            raise Refusal(f"{name}() is no function of triton.language, and takes a tensor {kind!r}", "decorate it with @triton.jit")
        try:
            return function(*arguments, **keywords)
        except Refusal:
            raise
        except (TypeError, ValueError, AttributeError, KeyError) as e:
            raise Refusal(f"{getattr(function, '__name__', kind_of(function))}(): {e}") from e

    # ---- statements

    def block(self, body: list[ast.stmt]) -> Returned | None:
        """Statements up to the end of the function, or of a region without return."""
        for i, statement in enumerate(body):
            self.frame.node = statement
            if isinstance(statement, ast.If):
                ends, result = self._if(statement, body[i + 1 :])
                if ends:
                    return result
                continue
            of = getattr(self, f"_do_{type(statement).__name__.lower()}", None)
            if of is None:
                raise Refusal(f"'{type(statement).__name__.lower()}' is not a part of Triton's language", "compute it outside of the kernel")
            result = of(statement)
            if isinstance(result, Returned):
                return result
        return None

    def _if(self, node: ast.If, rest: list[ast.stmt]) -> tuple[bool, Returned | None]:
        """Whether the function ends here, and its result; else the statements behind it follow."""
        test = self.condition(node.test)
        if not isinstance(test, tensor):
            taken = node.body if test else node.orelse
            if returns(taken):
                return True, self.block([*taken, *rest])
            self.block(taken)
            return False, None
        if returns([node]):
            return True, self._returning(test, [*node.body, *rest], [*node.orelse, *rest])
        self._branches(test, node.body, node.orelse)
        return False, None

    def _returning(self, test: tensor, then: list[ast.stmt], otherwise: list[ast.stmt]) -> Returned:
        """Both branches up to the end of the function."""
        w, frame = writer(), self.frame
        env, values, regions = frame.env, [], [w.region(), w.region()]
        for region, body in zip(regions, (then, otherwise)):
            frame.env = dict(env)
            with w.inside(region):
                result = self.block(body)
            values.append(result.value if result else None)
        frame.env = env
        return Returned(joined(test, regions, values, "the result of the function"))

    def _branches(self, test: tensor, then: list[ast.stmt], otherwise: list[ast.stmt]) -> None:
        """Both branches, and the names that they assign."""
        w, frame, node = writer(), self.frame, self.frame.node
        env, after, regions = frame.env, [], [w.region(), w.region()]
        for region, body in zip(regions, (then, otherwise)):
            frame.env = dict(env)
            with w.inside(region):
                self.block(body)
            after.append(frame.env)
        frame.env, frame.node = env, node
        changed = [n for n in {**after[0], **after[1]} if n not in env or after[0].get(n) is not env[n] or after[1].get(n) is not env[n]]
        both = []
        for name in changed:
            a, b = (e.get(name, Undefined("is assigned in one branch only")) for e in after)
            if isinstance(a, Undefined) or isinstance(b, Undefined):
                env[name] = a if isinstance(a, Undefined) else b
                continue
            try:
                merge(a, b, name)
            except Refusal as refusal:
                if name in env:
                    raise
                env[name] = Undefined(f"has different types in two branches: {refusal.message}")
                continue
            both.append(name)
        values = joined(test, regions, [tuple(e[n] for n in both) for e in after], ", ".join(both))
        env.update(zip(both, values))

    def _do_pass(self, node: ast.Pass) -> None:
        pass

    def _do_global(self, node: ast.Global) -> None:
        pass

    def _do_expr(self, node: ast.Expr) -> None:
        self.evaluate(node.value, result_used=False)
        call = node.value
        if isinstance(call, ast.Call) and len(call.args) == 1 and isinstance(call.args[0], ast.Compare):
            from .language.core import assume

            if self.evaluate(call.func) is assume:
                self._bounded(call.args[0])

    def _bounded(self, test: ast.Compare) -> None:
        """Bounds a scalar by a comparison with a constant that the caller promises."""
        if not isinstance(test.left, ast.Name) or len(test.ops) != 1:
            return
        t, bound = self.frame.env.get(test.left.id), self.evaluate(test.comparators[0])
        if not isinstance(t, tensor) or t.shape or not isinstance(bound, int) or t.base.dtype != "i64" or isinstance(t, pointer):
            return
        low, high = {ast.GtE: (bound, None), ast.Gt: (bound + 1, None), ast.Lt: (None, bound - 1), ast.LtE: (None, bound), ast.Eq: (bound, bound)}.get(type(test.ops[0]), (None, None))
        ir = whole(t)
        self.frame.env[test.left.id] = tensor(ir.within(ir.low if low is None else max(ir.low, low), ir.high if high is None else min(ir.high, high)), t.dtype)

    def _do_return(self, node: ast.Return) -> Returned:
        if self.frame.loops:
            raise lacking("return in loop")
        return Returned(self.evaluate(node.value) if node.value else None)

    def _do_assign(self, node: ast.Assign) -> None:
        value = self.evaluate(node.value, result_used=False)
        for target in node.targets:
            self._bind(target, value)

    def _bind(self, target: ast.expr, value: Any) -> None:
        if isinstance(target, ast.Name):
            self.frame.env[target.id] = value
        elif isinstance(target, (ast.Tuple, ast.List)):
            if not isinstance(value, (tuple, list)) or len(value) != len(target.elts):
                raise Refusal(f"{kind_of(value)} is not unpacked into {len(target.elts)} names")
            for t, v in zip(target.elts, value):
                self._bind(t, unwrapped(v))
        else:
            raise Refusal("an assignment is to a name", "write to memory with tl.store")

    def _do_annassign(self, node: ast.AnnAssign) -> None:
        if node.value is None:
            return
        value = self.evaluate(node.value)
        self._bind(node.target, value)

    def _do_augassign(self, node: ast.AugAssign) -> None:
        if not isinstance(node.target, ast.Name):
            raise Refusal("an assignment is to a name", "write to memory with tl.store")
        current = self.evaluate(ast.copy_location(ast.Name(node.target.id, ast.Load()), node.target))
        value = self.evaluate(node.value)
        self.frame.node = node
        self.frame.env[node.target.id] = self.binary(node.op, current, value)

    def _do_assert(self, node: ast.Assert) -> None:
        test = self.evaluate(node.test)
        if not isinstance(test, tensor) and not test:  # one of a tensor is for debug builds of a kernel
            raise Refusal(f"assertion failed: {self.evaluate(node.msg) if node.msg else ast.unparse(node.test)}", kind=CompileTimeAssertionFailure)

    # ---- loops

    def _do_for(self, node: ast.For) -> Returned | None:
        if node.orelse:
            raise Refusal("a loop has no 'else' in Triton's language")
        over = self.evaluate(node.iter)
        if isinstance(over, Loop):
            self._loop(node, over)
            return None
        if isinstance(over, tensor) or not hasattr(over, "__iter__"):
            raise Refusal(f"a loop is over range, tl.range, tl.static_range or a tuple, not over {kind_of(over)}")
        for item in over:
            self._bind(node.target, unwrapped(item))
            self.frame.loops += 1
            self.block(node.body)
            self.frame.loops -= 1
        return None

    def _decided(self, names: set[str]) -> Callable[[ast.expr], bool | None]:
        """How conditions are decided whose names are constants that a loop does not assign."""

        def taken(test: ast.expr) -> bool | None:
            used = pure(test)
            if used is None or used & names or any(not self._is_constant(n) for n in used):
                return None
            value = self.evaluate(test)
            return None if isinstance(value, tensor) else bool(value)

        return taken

    def _is_constant(self, name: str) -> bool:
        """True of a name whose value is known at compile time."""
        if name in self.frame.env:
            return not isinstance(self.frame.env[name], (tensor, Undefined))
        try:
            self.frame.source.lookup(name)
        except KeyError:
            return False
        return True

    def _loop(self, node: ast.For, loop: Loop) -> None:
        if not isinstance(node.target, ast.Name):
            raise Refusal("a loop over range has one name")
        for bound in (loop.start, loop.stop, loop.step):
            if not (isinstance(bound, tensor) and not bound.shape and bound.dtype.is_int()) and not isinstance(bound, int):
                raise Refusal(f"the bounds of a loop are scalar integers, found {kind_of(bound)}")
        names = {node.target.id, *assigned(node.body, lambda test: None)}
        chosen = dict.fromkeys(n for n in assigned(node.body, self._decided(names)) if n != node.target.id and n in self.frame.env)
        how: dict[int, Leaf] = {}
        w = writer()
        while True:
            mark = w.prologue_mark()
            try:
                self._run_loop(node, loop, list(chosen), how)
                return
            except Changed as changed:
                how.update(changed.how)
                w.forget_prologue(mark)

    def _run_loop(self, node: ast.For, loop: Loop, names: list[str], how: dict[int, Leaf]) -> None:
        """One attempt to write a loop that carries the names. how: what earlier attempts have shown, by leaf."""
        w, frame = writer(), self.frame
        before = {n: frame.env[n] for n in names if not isinstance(frame.env[n], Undefined)}
        old = [(name, leaf) for name, value in before.items() for leaf in leaves(value)]
        bounds, induction, iterations = self._bounds(loop, w.results([("i64", ())], inner=1)[0])
        plans = [carried(leaf, name, i, how.get(i, Leaf()), iterations) for i, (name, leaf) in enumerate(old)]
        initial = [p.initial for p in plans if p and p.initial]
        arguments = w.results([(p.dtype, p.shape) for p in initial], inner=1)
        env, frame.env, region = frame.env, dict(frame.env), w.region()
        inner = iter(arguments)
        frame.loops += 1
        try:
            with w.inside(region):
                values = iter([p.result(next(inner) if p.initial else iterations.index()) if p else leaf for p, (_, leaf) in zip(plans, old)])
                frame.env.update({name: rebuilt(value, values) for name, value in before.items()})
                assert isinstance(node.target, ast.Name)
                frame.env[node.target.id] = induction(region)
                self.block(node.body)
                frame.node = node
                yields = self._yielded(before, plans, old, frame.env)
                if yields:
                    w.line(f"yield {', '.join(y.text for y in yields)}")
        except Changed:
            frame.node = node
            raise
        finally:
            frame.loops -= 1
            frame.env = env
        results = w.results([(a.dtype, a.shape) for a in arguments])
        carry = ", ".join(f"{a.text} = {p.text}" for a, p in zip(arguments, initial))
        wanted = loop.num_stages or (w.num_stages if any(" = dot(" in line for line in region.lines) else 0)
        stages = f" num_stages={min(wanted, MAX_STAGES)}" if wanted > 0 else ""
        head = f"{', '.join(r.text for r in results)} = " if results else ""
        w.close(f"{head}for {bounds}{stages}{f' carry({carry})' if carry else ''}", region)
        outer = iter(results)
        values = iter([p.result(next(outer) if p.initial else iterations.count()) if p else leaf for p, (_, leaf) in zip(plans, old)])
        env.update({name: rebuilt(value, values) for name, value in before.items()})

    @staticmethod
    def _yielded(before: dict[str, Any], plans: list[Carried | None], old: list[tuple[str, Any]], env: dict[str, Any]) -> list[Ir]:
        out: list[Ir] = []
        changes: dict[int, Leaf] = {}
        i = 0
        for name, value in before.items():
            now = env[name]
            if isinstance(now, Undefined):
                raise Refusal(f"'{name}', which the loop carries, {now.reason}", "assign it on every path")
            new = list(leaves(now))
            count = len(list(leaves(value)))
            if len(new) != count:
                raise Refusal(f"'{name}' is {value!r} before the loop and {now!r} after an iteration", "keep its type through the loop")
            for leaf in new:
                plan = plans[i]
                if plan is not None:
                    try:
                        following = plan.next(leaf)
                        out += [following] if plan.initial else []
                    except Changed as changed:
                        changes.update(changed.how)
                elif not same(leaf, old[i][1]):
                    raise Refusal(f"'{name}' is {old[i][1]!r} before the loop and {leaf!r} after an iteration", "give it a tensor before the loop, or unroll it with tl.static_range")
                i += 1
        if changes:
            raise Changed(changes)
        return out

    def _bounds(self, loop: Loop, name: Ir) -> tuple[str, Callable[[Any], tensor], Iterations]:
        """The text of a loop's bounds, its induction value, and its numbers."""
        tensors = [b for b in (loop.start, loop.stop, loop.step) if isinstance(b, tensor)]
        kind = types.int32
        for t in tensors:
            kind = types.promote(kind, t.dtype)
        for number in (loop.start, loop.stop):
            if isinstance(number, int) and not types.int32.low <= number <= types.int32.high:
                kind = types.int64
        start, stop, step = (self._bound(b, kind) for b in (loop.start, loop.stop, loop.step))
        if step.low == step.high and step.low < 0:
            return self._backwards(loop, name, kind, start, step.low)
        if step.low == step.high == 0:
            raise Refusal("a loop's step is 0")
        low, high = start.low, max(stop.high - 1, start.low)
        text = f"{name.text} = {start.text} to {stop.text} step {step.text}"
        index = name.within(low, high)
        return text, lambda region: self._induction(index, kind), _iterations(index, start, stop, step)

    def _backwards(self, loop: Loop, name: Ir, kind: types.dtype, start: Ir, step: int) -> tuple[str, Callable[[Any], tensor], Iterations]:
        """A loop that counts down, as one that counts its iterations."""
        distance = arithmetic.sub(loop.start, loop.stop) if isinstance(loop.start, tensor) or isinstance(loop.stop, tensor) else loop.start - loop.stop
        if isinstance(distance, tensor):
            count = self._bound(arithmetic.floordiv(arithmetic.add(distance, -step - 1), -step), kind)
        else:
            count = literal(max(0, -(distance // step)))

        def induction(region: Any) -> tensor:
            i = tensor(name.within(0, max(count.high - 1, 0)), types.int64)
            first = tensor(start, types.int64)
            at = arithmetic.add(arithmetic.mul(i, step), first if start.text.startswith("%") else start.low)
            return self._induction(summed(at).within(-(2**63), start.high), kind)

        return f"{name.text} = 0 to {count.text} step 1", induction, _iterations(name.within(0, max(count.high - 1, 0)), literal(0), count, literal(1))

    @staticmethod
    def _induction(ir: Ir, kind: types.dtype) -> tensor:
        if kind in (types.int32, types.int64):
            return tensor(ir, kind)
        return arithmetic.cast(tensor(ir, types.int64), kind)

    @staticmethod
    def _bound(bound: Any, kind: types.dtype) -> Ir:
        """A bound as an i64 scalar."""
        if is_number(bound):
            return literal(int(bound))
        t = widened(arithmetic.cast(bound, kind))
        ir = whole(t)
        return named(ir) if ir.dtype == "i64" else whole(arithmetic.cast(tensor(ir, t.dtype), types.int64))

    def _do_while(self, node: ast.While) -> None:
        """while i < n, where the last statement is i += step: a loop over range. A constant condition is unrolled."""
        counter = self._counted(node)
        if counter is None:
            raise lacking("while")
        name, stop, step, body = counter
        start = self.frame.env[name]
        loop = Loop(start, stop, step)
        target = ast.copy_location(ast.Name(name, ast.Store()), node)
        self._loop(ast.copy_location(ast.For(target, node.test, body, []), node), loop)
        span = arithmetic.sub(stop, start)
        steps = arithmetic.extreme("max", arithmetic.floordiv(arithmetic.add(span, arithmetic.sub(step, 1)), step), 0)
        self.frame.env[name] = arithmetic.add(arithmetic.mul(steps, step), start)

    def _counted(self, node: ast.While) -> tuple[str, Any, Any, list[ast.stmt]] | None:
        test, last = node.test, node.body[-1]
        if not (isinstance(test, ast.Compare) and isinstance(test.left, ast.Name) and len(test.ops) == 1 and isinstance(test.ops[0], ast.Lt)):
            return None
        name = test.left.id
        if not (isinstance(last, ast.AugAssign) and isinstance(last.op, ast.Add) and isinstance(last.target, ast.Name) and last.target.id == name):
            return None
        body = node.body[:-1]
        changed = set(assigned(body, lambda test: None))
        used = {n.id for part in (test.comparators[0], last.value) for n in ast.walk(part) if isinstance(n, ast.Name)}
        calls = any(isinstance(n, ast.Call) for part in (test.comparators[0], last.value) for n in ast.walk(part))
        if name in changed or used & (changed | {name}) or calls or name not in self.frame.env:
            return None
        stop, step = self.evaluate(test.comparators[0]), self.evaluate(last.value)
        positive = step > 0 if is_number(step) else isinstance(step, tensor) and step.low > 0
        integers = all(isinstance(v, int) or (isinstance(v, tensor) and not v.shape and v.dtype.is_int()) for v in (self.frame.env[name], stop, step))
        return (name, stop, step, body) if positive and integers else None


def _iterations(index: Ir, start: Ir, stop: Ir, step: Ir) -> Iterations:
    """The numbers of a loop from start to stop, whose induction value is index."""

    def part(ir: Ir) -> Ir | int:
        return ir if ir.text.startswith("%") and ir.low != ir.high else ir.low

    def quotient(a: Ir | int, b: Ir | int) -> Ir | int:
        if isinstance(a, int) and isinstance(b, int):
            return a // b
        if b == 1:
            return a
        x, y = (v if isinstance(v, Ir) else literal(v) for v in (a, b))
        low, high = min(x.low, 0), max(x.high, 0)
        return writer().value("div", [x, y], "i64", (), low=low, high=high)

    def count() -> Ir | int:
        ahead = arithmetic.part_add(arithmetic.part_add(part(stop), part(start), "sub"), arithmetic.part_add(part(step), 1, "sub"))
        if isinstance(ahead, int):
            ahead = max(ahead, 0)
        else:
            ahead = writer().value("max", [ahead, literal(0)], "i64", (), low=max(ahead.low, 0), high=max(ahead.high, 0))
        return quotient(ahead, part(step))

    return Iterations(lambda: quotient(arithmetic.part_add(part(index), part(start), "sub"), part(step)), count)


def first_tensor(values: list[Any]) -> tensor | None:
    """A tensor among arguments."""
    for value in values:
        for leaf in leaves(unwrapped(value)):
            if isinstance(leaf, tensor):
                return leaf
    return None


def jit_source(function: Any) -> Source | None:
    """The source of a function with @triton.jit, also within autotune and heuristics."""
    for _ in range(8):
        source = getattr(function, "source", None)
        if isinstance(source, Source):
            return source
        function = getattr(function, "fn", None)
        if function is None:
            return None
    return None


_executors: list[Executor] = []


def executing() -> Executor | None:
    """The executor of the kernel that is being compiled."""
    return _executors[-1] if _executors else None


def run(source: Source, env: dict[str, Any]) -> Any:
    """Executes a kernel with its arguments. Raises an error with its place."""
    executor = Executor()
    _executors.append(executor)
    try:
        executor.frames.append(Frame(source, env))
        result = executor.block(source.tree.body)
        if isinstance(result, Returned) and result.value is not None:
            raise Refusal("a kernel returns nothing", "store the result through a pointer")
        return result
    except Refusal as refusal:
        places = [f.source.place(f.node) for f in reversed(executor.frames)]
        raise refusal.at(places[0], places[1:]) from refusal.__cause__
    finally:
        _executors.pop()

