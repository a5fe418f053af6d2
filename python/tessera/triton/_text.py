"""The writer of a kernel's tile IR: lines, regions, sharing of equal pure operations, and the definitions of values."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import Any

from ._errors import Refusal

MAX_TILE_ELEMENTS = 1 << 20  # of the tile IR


@dataclasses.dataclass(frozen=True)
class Ir:
    """A value of the tile IR. text: "%12"; dtype: of the tile IR; shape: () for scalars; low, high: bounds of integers."""

    text: str
    dtype: str
    shape: tuple[int, ...] = ()
    low: int = 0
    high: int = 0

    @property
    def type(self) -> str:
        return type_text(self.dtype, self.shape)

    def within(self, low: int, high: int) -> Ir:
        """The same value with bounds that are known."""
        return dataclasses.replace(self, low=max(low, -(2**63)), high=min(high, 2**63 - 1))


def type_text(dtype: str, shape: Sequence[int]) -> str:
    return f"tile<[{', '.join(map(str, shape))}], {dtype}>" if shape else dtype


_INTEGERS = {"i8": (-(2**7), 2**7 - 1), "i16": (-(2**15), 2**15 - 1), "i32": (-(2**31), 2**31 - 1), "i64": (-(2**63), 2**63 - 1),
             "u8": (0, 2**8 - 1), "u16": (0, 2**16 - 1), "u32": (0, 2**32 - 1), "u64": (0, 2**64 - 1), "bool": (0, 1)}  # fmt: skip


def bounds_of(dtype: str) -> tuple[int, int]:
    """The lowest and greatest value of an integer dtype of the tile IR; (0, 0) of a float."""
    return _INTEGERS.get(dtype, (0, 0))


def ranged(low: int, high: int, dtype: str = "i64") -> dict[str, Any]:
    """Bounds as arguments of Writer.value(): those of the dtype where the result may have wrapped."""
    least, most = bounds_of(dtype)
    return {"low": low, "high": high} if least <= low and high <= most else {"low": least, "high": most}


def literal(value: int, dtype: str = "i64") -> Ir:
    """A number as an operand."""
    return Ir(number_text(value, dtype), dtype, (), int(value), int(value))


def is_integer(dtype: str) -> bool:
    return dtype in _INTEGERS


def number_text(value: Any, dtype: str) -> str:
    """A literal of a dtype."""
    if is_integer(dtype):
        return str(bool(value)).lower() if dtype == "bool" else str(int(value))
    value = float(value)
    if math.isnan(value):
        return "nan"
    return repr(value)


@dataclasses.dataclass
class Definition:
    """How a value is computed: what a transposed copy of it repeats. depth: of regions; epoch: writes to memory before it."""

    op: str
    operands: tuple[Ir, ...]
    attributes: dict[str, Any]
    result: Ir
    path: tuple[int, ...]
    epoch: int


class Region:
    """Lines of a region, and the values that it shares."""

    def __init__(self, number: int, depth: int) -> None:
        self.number, self.depth = number, depth
        self.lines: list[str] = []
        self.shared: dict[tuple[str, str, tuple[int, ...]], Ir] = {}


@dataclasses.dataclass
class Parameter:
    """A parameter of the kernel. name: in the text; type: of the tile IR; divisible: by 16, address in bytes or value."""

    name: str
    type: str
    divisible: bool = False
    written: bool = False
    read: bool = False
    item_bytes: int = 0  # of a pointer's elements


class Writer:
    """Collects the text of one kernel."""

    def __init__(self, num_stages: int = 0) -> None:
        self.num_stages = num_stages  # of loops with products that do not say; 0: the compiler decides
        self.parameters: list[Parameter] = []
        self._blocks: list[list[str]] = [[]]  # lines of the body and of the open regions
        self._levels: dict[str, int] = {}  # how many regions were open where a value was defined
        self._prologue: list[str] = []
        self._count = 0
        self._scopes: list[dict[tuple[str, str, tuple[int, ...]], Ir]] = [{}]
        self._path: list[int] = []  # numbers of the open regions
        self._regions = 0
        self.definitions: dict[str, Definition] = {}
        self.epoch = 0  # operations that write memory, so far

    # ---- values

    def name(self) -> str:
        self._count += 1
        return f"%{self._count}"

    def value(self, op: str, operands: Sequence[Ir | str], dtype: str, shape: Sequence[int], *, low: int | None = None, high: int | None = None, pure: bool = True, form: str = "", **attributes: Any) -> Ir:
        """Appends an operation with one result. form: the text with {} for the operands; else op(operands)."""
        shape = tuple(shape)
        if math.prod(shape) > MAX_TILE_ELEMENTS:
            raise Refusal(f"a tile of shape {list(shape)} has more than {MAX_TILE_ELEMENTS} elements", "use smaller blocks and a loop over them")
        texts = [o if isinstance(o, str) else o.text for o in operands]
        text = form.format(*texts) if form else f"{op}({', '.join(texts)})"
        key = (text, dtype, shape)
        if pure:
            for scope in reversed(self._scopes):
                if key in scope:
                    return scope[key]
        level = self.level(*operands) if pure and not shape else len(self._path)
        least, most = bounds_of(dtype)
        result = Ir(self.name(), dtype, shape, least if low is None else max(low, least), most if high is None else min(high, most))
        self._blocks[level].append("  " * (level + 1) + f"{result.text} = {text} : {result.type}")
        self._levels[result.text] = level
        if pure:
            self._scopes[level][key] = result
        self.definitions[result.text] = Definition(op, tuple(o for o in operands if isinstance(o, Ir)), {"form": form, "texts": texts, **attributes}, result, tuple(self._path[:level]), self.epoch)
        return result

    def level(self, *operands: Ir | str) -> int:
        """The least number of open regions in which operands are visible: there, a pure scalar operation is computed, once for all iterations."""
        inside = len(self._path)
        names = [o if isinstance(o, str) else o.text for o in operands]
        return max((self._levels.get(n, inside) for n in names if n.startswith("%")), default=0)

    def parameter(self, parameter: Parameter) -> None:
        """Adds a parameter of the kernel."""
        self.parameters.append(parameter)
        self._levels[f"%{parameter.name}"] = 0

    def results(self, dtype_shapes: Sequence[tuple[str, tuple[int, ...]]], inner: int = 0) -> list[Ir]:
        """New names for the results of an operation that the caller writes, or with inner=1 for the arguments of its region."""
        names = [Ir(self.name(), d, s, *bounds_of(d)) for d, s in dtype_shapes]
        self._levels.update({ir.text: len(self._path) + inner for ir in names})
        return names

    def line(self, text: str) -> None:
        self._blocks[-1].append("  " * (len(self._path) + 1) + text)

    def scratch(self, dtype: str, elements: int) -> Ir:
        """Memory of the program, allocated before the first statement."""
        pointer = Ir(self.name(), dtype)
        self._prologue.append(f"  {pointer.text} = scratch {elements} : ptr<{dtype}>")
        return pointer

    def wrote(self) -> None:
        """Records that memory was written: loads before and after may differ."""
        self.epoch += 1

    @property
    def path(self) -> tuple[int, ...]:
        return tuple(self._path)

    # ---- regions

    def region(self) -> Region:
        """A region that is not part of the text yet: inside() fills it, close() appends it."""
        self._regions += 1
        return Region(self._regions, len(self._path) + 1)

    @contextlib.contextmanager
    def inside(self, region: Region) -> Iterator[None]:
        """Appends to a region. Values that are computed in it are not shared outside of it."""
        self._blocks.append(region.lines)
        self._path.append(region.number)
        self._scopes.append(region.shared)
        try:
            yield
        finally:
            self._blocks.pop()
            self._scopes.pop()
            self._path.pop()

    def close(self, header: str, *regions: Region) -> None:
        """Appends an operation with its regions: a loop's one, or those of both branches."""
        self.line(f"{header} {{")
        for i, region in enumerate(regions):
            if i and len(region.lines):
                self.line("} else {")
            self._blocks[-1].extend(region.lines)
        self.line("}")

    def prologue_mark(self) -> int:
        return len(self._prologue)

    def forget_prologue(self, mark: int) -> None:
        """Removes memory of the program that a discarded region allocated."""
        del self._prologue[mark:]

    # ---- the kernel

    def text(self, name: str, config: dict[str, int]) -> str:
        """The kernel as text."""
        parameters = ", ".join(_parameter(p) for p in self.parameters)
        options = f" config({', '.join(f'{k}: {v}' for k, v in config.items())})" if config else ""
        return "\n".join([f"tile.kernel @{name}({parameters}){options} {{", *self._prologue, *self._blocks[0], "}"]) + "\n"


def _parameter(p: Parameter) -> str:
    text = f"%{p.name}: {p.type}"
    if p.type.startswith("ptr"):
        return f"{text}{' written' if p.written else ''} align={16 if p.divisible else p.item_bytes}"
    return text + (" multiple=16" if p.divisible and p.type == "i64" else "")


_current: list[Writer] = []


def writer() -> Writer:
    """The writer of the kernel that is being compiled."""
    if not _current:
        raise Refusal("functions of triton.language compute only inside of kernels", "call them in a function with @triton.jit")
    return _current[-1]


@contextlib.contextmanager
def writing(to: Writer) -> Iterator[Writer]:
    """Makes a writer the current one."""
    _current.append(to)
    try:
        yield to
    finally:
        _current.pop()
