"""The options of tessera.load() and tessera.serve.deployment() against the library's table, and the page that lists them."""

from __future__ import annotations

import inspect
import os
import typing
import unittest

import numpy
from support import FOLDER, ROOT, load, save

import tessera
import tessera.serve
from tessera._options import TABLE, OpenOptions, Options

PAGE = ROOT / "docs" / "options.md"
TYPES = ROOT / "python" / "tessera" / "_options.py"
GRAPH = "(float[n] x) => (float[n] y) { y = Relu(x) }"


def page() -> str:
    """docs/options.md."""
    lines = [
        "<!-- generated: TESSERA_BLESS=1 python3 tests/python/options_test.py -->",
        "# Options",
        "",
        "One table, `api/options.def`, has the options of an opened model. They have the same names everywhere: fields of `tessera_options` and",
        "`tessera::stable::Options`, keyword arguments of `tessera.load` and `tessera.serve.deployment`, parameters of the",
        "[backend of Triton](../serving/triton/README.md), and flags of the command, which have hyphens: `--max-variants`.",
        "`torch.compile` takes some ([pytorch.md](pytorch.md)). In C zero or null is the default, and `warm_up` is the field `ranges`.",
        "",
        "| option | values | default | meaning | `torch.compile` |",
        "|---|---|---|---|---|",
    ]
    values = {
        "text": "text", "sizes": "`DIM=VALUE,DIM=VALUE`", "file": "path", "folder": "path", "flag": "true or false", "count": "from 0", "bytes": "from 0", "share": "0 to 1",
    }  # fmt: skip
    for o in TABLE.values():
        shown = ", ".join(f"`{v}`" for v in o.choices.split(", ")) if o.choices else values[o.kind]
        lines.append(f"| `{o.name}` | {shown} | {o.standard and f'`{o.standard}`'} | {o.help} | {f'no: {o.no_torch}' if o.no_torch else 'yes'} |")
    return "\n".join(lines) + "\n"


class Table(unittest.TestCase):
    def test_arguments(self) -> None:
        for function in (tessera.load, tessera.serve.deployment):
            arguments = inspect.signature(function).parameters
            for o in TABLE.values():
                self.assertEqual(arguments[o.name].default, "auto" if o.name == "device" else o.default, o.name)
                if f"{o.name}:" not in (function.__doc__ or ""):
                    self.fail(f"{function.__name__}: no help of {o.name}")

    def test_types(self) -> None:
        """The arguments' types, as mypy knows them, are those of the table."""
        path = "str | bytes | os.PathLike[str]"
        kinds = {"file": path, "folder": path, "flag": "bool", "count": "int", "bytes": "int", "share": "float", "sizes": "str | Mapping[str, Sizes]"}
        wanted = "".join(f"    {o.name}: {kinds.get(o.kind, 'str')} | None\n" for o in TABLE.values() if o.name != "device")
        text = TYPES.read_text(encoding="utf-8")
        begin = text.index('from the table; None is the default."""\n\n')
        begin = text.index("    ", begin)
        end = text.index("\n\n", begin) + 1
        if os.environ.get("TESSERA_BLESS"):
            TYPES.write_text(text[:begin] + wanted + text[end:], encoding="utf-8")
            return
        self.assertEqual(text[begin:end], wanted)
        self.assertTrue(typing.get_type_hints(OpenOptions) if hasattr(typing, "NotRequired") else True)

    def test_page(self) -> None:
        if os.environ.get("TESSERA_BLESS"):
            PAGE.write_text(page(), encoding="utf-8")
        self.assertEqual(PAGE.read_text(encoding="utf-8"), page())

    def test_unknown_and_wrong_kinds(self) -> None:
        path = save(GRAPH)
        for options, text in (
            ({"max_variant": 3}, "tessera has no option 'max_variant'; its options are device, threads"),
            ({"policy": 3}, "policy is 3; it must be a str"),
            ({"tune_share": "much"}, "real number"),
        ):
            with self.subTest(options), self.assertRaisesRegex(TypeError, text):
                tessera.load(path, "cpu", **options)

    def test_none_is_the_default(self) -> None:
        model = tessera.load(save(GRAPH), None, **{name: None for name in TABLE if name != "device"})
        self.assertEqual(model(numpy.float32([-1, 2])).tolist(), [0, 2])


class OfTorchCompile(unittest.TestCase):
    def test_taken(self) -> None:
        options = Options.of({"freeze": True, "tf32": "auto", "tune_share": 0.1, "strict_rounding": True})
        self.assertEqual((options.freeze, options.tf32, dict(options.further)), (True, "auto", {"tune_share": 0.1, "strict_rounding": True}))

    def test_refused(self) -> None:
        for given, text in (
            ({"polcy": "exact"}, "tessera has no option 'polcy'; its options are freeze, strict, device, tf32"),
            ({"policy": "exact"}, "tessera has no option 'policy' here: Dynamo's guards decide"),
            ({"freeze": 1}, "tessera's option 'freeze' is 1, a int; it must be a bool"),
            ({"tf32": "none"}, "tessera's option 'tf32' is 'none'; it must be one of auto, off, conv, matmul, all"),
            ({"device": "cuda:1"}, "it must be one of auto, cpu, cuda"),
            ({"threads": -1}, "tessera's option 'threads' is -1; 0 to 2147483647 are possible"),
            ({"tune_share": 2}, "tessera's option 'tune_share' is 2; 0 to 1 are possible"),
        ):
            with self.subTest(given), self.assertRaisesRegex(ValueError, text):
                Options.of(given)


class Added(unittest.TestCase):
    """Options that Python has by their row in the table."""

    def test_max_variant_bytes(self) -> None:
        model = load("(float[n, 64] x) => (float[n, 64] y) { y = Softmax <axis = -1> (x) }", policy="exact", max_variant_bytes=1)
        for n in (1, 2, 3):
            model(numpy.ones((n, 64), numpy.float32))
        self.assertEqual(model.metrics()["evictions"], 2)  # the last one stays

    def test_cache_dir(self) -> None:
        graph = "(float[n, 33] x) => (float[n, 33] y) { y = Softmax <axis = -1> (x) }"
        own, other = FOLDER / "own cache", FOLDER / "other cache"
        cached = [load(graph, cache_dir=folder).metrics()["cached_kernels"] for folder in (own, str(own), os.fsencode(other))]
        self.assertEqual(cached[0::2], [0, 0])
        self.assertGreater(cached[1], 0)
        self.assertTrue(own.is_dir() and other.is_dir())
        self.assertEqual(Options.of({"cache_dir": str(own)}).further, (("cache_dir", str(own)),))

    def test_tune_share(self) -> None:
        self.assertEqual(load(GRAPH, tune_share=0.1)(numpy.float32([-1, 2])).tolist(), [0, 2])
        with self.assertRaisesRegex(tessera.UsageError, "a tune share replaces kernels"):
            load(GRAPH, tune_share=0.1, deterministic=True)
        with self.assertRaisesRegex(tessera.UsageError, "tune_share is 2.0"):
            load(GRAPH, tune_share=2)
        load(GRAPH, tune_share=0, deterministic=True)


if __name__ == "__main__":
    unittest.main()
