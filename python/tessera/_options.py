"""Options of the PyTorch backend, and what it counts."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping


@dataclasses.dataclass(frozen=True)
class Options:
    """torch.compile(..., options={...}).

    freeze: parameters and buffers that are not changed become constants of the program (inference only).
    tf32: f32 operations on a GPU that may round operands to TF32: "off", "conv", "matmul", "all", or "auto": as PyTorch's settings say.
    deterministic: sums at repeated indices on a GPU have the same bits in each call; torch.use_deterministic_algorithms() says so, too.
    threads: of the host; 0 for as many as PyTorch has.
    strict_rounding: round float16 and bfloat16 after every operator, as PyTorch does operator by operator; nothing is computed in TF32.
    strict: raise an error instead of leaving a subgraph to PyTorch.
    device: "cpu" or "cuda": graphs on another device are left to PyTorch; "auto" for every device.
    """

    freeze: bool = False
    tf32: str = "auto"
    deterministic: bool = False
    threads: int = 0
    strict_rounding: bool = False
    strict: bool = False
    device: str = "auto"

    @classmethod
    def of(cls, given: Mapping[str, object] | None) -> Options:
        """From the options of a call of torch.compile. Raises ValueError for an unknown name or value."""
        given = dict(given or {})
        known = {f.name: f for f in dataclasses.fields(cls)}
        for name, value in given.items():
            if name not in known:
                raise ValueError(f"tessera has no option '{name}'; its options are {', '.join(known)}")
            kind = type(known[name].default)
            if type(value) is not kind:
                raise ValueError(f"tessera's option '{name}' is {value!r}, a {type(value).__name__}; it must be a {kind.__name__}")
        options = cls(**given)  # type: ignore[arg-type]
        for name, values in (("tf32", ("auto", "off", "conv", "matmul", "all")), ("device", ("auto", "cpu", "cuda"))):
            if getattr(options, name) not in values:
                raise ValueError(f"tessera's option '{name}' is {getattr(options, name)!r}; it must be one of {', '.join(values)}")
        return options


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
