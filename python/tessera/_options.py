"""Options of opened models and of the PyTorch backend, from the library's table (api/options.def), and what the backend counts."""

from __future__ import annotations

import dataclasses
import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypedDict, TypeVar, Union

from . import _native

Sizes = Union[int, str, Sequence[int]]  # of a dimension: 8, (1, 32), (1, 8, 32), or "1..8..32"
_F = TypeVar("_F", bound=Callable[..., Any])


class OpenOptions(TypedDict, total=False):
    """Keyword arguments of tessera.load(), from the table; None is the default."""

    threads: int | None
    tune_share: float | None
    tf32: str | None
    plan: str | bytes | os.PathLike[str] | None
    memory_limit: int | None
    policy: str | None
    max_variants: int | None
    deterministic: bool | None
    specialize: str | Mapping[str, Sizes] | None
    warm_up: str | Mapping[str, Sizes] | None
    max_variant_bytes: int | None
    strict_rounding: bool | None
    cache_dir: str | bytes | os.PathLike[str] | None


class Option(NamedTuple):
    """A row of the table."""

    name: str
    kind: str  # "text", "choice", "sizes", "file", "folder", "flag", "count", "bytes" or "share"
    choices: str  # "off, conv, matmul, all"
    standard: str  # the default; empty: none
    help: str
    no_torch: str  # why torch.compile does not take it; empty: it does

    @property
    def default(self) -> Any:
        """As a value of Python."""
        if self.kind == "flag":
            return False
        if not self.standard:
            return None
        return int(self.standard) if self.kind in ("count", "bytes") else self.standard

    @property
    def type(self) -> type:
        """The type of its values."""
        return {"flag": bool, "count": int, "bytes": int, "share": float}.get(self.kind, str)


TABLE = {o.name: o for o in map(Option._make, _native.options())}


def documented(of: _F) -> _F:
    """A function with **options of the table: its signature has each of them, its docstring their help in the place of {options}."""
    signature = inspect.signature(of)
    own = [p for p in signature.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
    rest = [p for p in signature.parameters.values() if p.kind is inspect.Parameter.VAR_KEYWORD and p.name != "options"]
    rows = [o for o in TABLE.values() if o.name not in signature.parameters]
    added = [inspect.Parameter(o.name, inspect.Parameter.KEYWORD_ONLY, default=o.default) for o in rows]
    of.__signature__ = signature.replace(parameters=[*own, *added, *rest])  # type: ignore[attr-defined]
    if of.__doc__:
        of.__doc__ = of.__doc__.replace("{options}", "\n    ".join(f"{o.name}: {o.help}." for o in rows))
    return of


def sizes_text(sizes: Mapping[str, Sizes]) -> str:
    """The text of a mapping that an option of kind "sizes" takes: "batch=1..8..32,seq=exact"."""
    return ",".join(f"{name}={s if isinstance(s, (str, int)) else '..'.join(map(str, s))}" for name, s in sizes.items())


@dataclasses.dataclass(frozen=True)
class Options:
    """torch.compile(..., options={...}): the fields, and options of the table that it takes.

    freeze: parameters and buffers that are not changed become constants of the program (inference only).
    strict: raise an error instead of leaving a subgraph to PyTorch.
    device: "cpu" or "cuda": graphs on another device are left to PyTorch; "auto" for every device.
    tf32: of the table, or "auto": as PyTorch's settings say.
    deterministic: of the table; torch.use_deterministic_algorithms() says so, too.
    threads: of the table; 0 for as many as PyTorch has.
    further: others of the table that were given.
    """

    freeze: bool = False
    strict: bool = False
    device: str = "auto"
    tf32: str = "auto"
    deterministic: bool = False
    threads: int = 0
    further: tuple[tuple[str, object], ...] = ()

    @staticmethod
    def names() -> list[str]:
        """The names of all options."""
        own = [f.name for f in dataclasses.fields(Options) if f.name != "further"]
        return own + [o.name for o in TABLE.values() if not o.no_torch and o.name not in own]

    @classmethod
    def of(cls, given: Mapping[str, object] | None) -> Options:
        """From the options of a call of torch.compile. Raises ValueError for an unknown name or value."""
        own: dict[str, Any] = {}
        further: dict[str, object] = {}
        for name, value in (given or {}).items():
            if name not in cls.names():
                reason = TABLE[name].no_torch if name in TABLE else ""
                raise ValueError(f"tessera has no option '{name}'{' here: ' + reason if reason else ''}; its options are {', '.join(cls.names())}")
            _check(name, value)
            (own if name in cls.__dataclass_fields__ else further)[name] = value
        return cls(**own, further=tuple(further.items()))


def _check(name: str, value: object) -> None:
    """Raises ValueError for a value that an option of torch.compile does not take."""
    row = TABLE.get(name)
    kind = row.type if row else bool
    if type(value) is not kind and not (kind is float and type(value) is int):
        raise ValueError(f"tessera's option '{name}' is {value!r}, a {type(value).__name__}; it must be a {kind.__name__}")
    values = {"tf32": f"auto, {TABLE['tf32'].choices}", "device": "auto, cpu, cuda"}.get(name, row.choices if row else "")
    if values and value not in values.split(", "):
        raise ValueError(f"tessera's option '{name}' is {value!r}; it must be one of {values}")
    most = {"count": (1 << 31) - 1, "bytes": (1 << 63) - 1, "share": 1}.get(row.kind if row else "")
    if most is not None and not 0 <= value <= most:  # type: ignore[operator]
        raise ValueError(f"tessera's option '{name}' is {value!r}; 0 to {most} are possible")


@dataclasses.dataclass
class Statistics:
    """Counts since the process started, or since reset()."""

    graphs: int = 0  # that PyTorch gave to the backend: forward and backward ones count each
    compiles: int = 0  # of subgraphs
    kernels: int = 0  # that these needed
    cached_kernels: int = 0  # of them, in the cache folder on disk
    calls: int = 0  # of compiled subgraphs
    copies: int = 0  # of inputs whose strides are not those of the compile, or that lie on another device
    copied_bytes: int = 0
    operators_left: int = 0  # calls of operators in graphs that run in PyTorch
    fallback_calls: int = 0  # of subgraphs that were compiled and failed when called
    contained_failures: int = 0  # internal failures of compiles that cost a schedule, a route or a pass: explain() lists them

    def reset(self) -> None:
        """Sets every count to 0."""
        for f in dataclasses.fields(self):
            setattr(self, f.name, 0)


statistics = Statistics()


def stats() -> dict[str, int]:
    """The counts of torch.compile's backend since the process started: the fields of Statistics by name."""
    return dataclasses.asdict(statistics)
