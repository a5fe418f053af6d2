#!/usr/bin/env python3
"""Writes aten_schemas.txt from PyTorch's own declarations: one line an overload, names, types and defaults of arguments.

    python3 frontend/fx/make_schemas.py            # with a Python that has torch
"""
import pathlib
import re

import torch

LEFT_OUT = re.compile(r"^aten::(?!_fused_rms_norm|cudnn_batch_norm)(_foreach|_fused|_sparse|sparse|_cudnn|cudnn|miopen|mkldnn|_mkldnn|_test|_nested|quantized|mps|_validate|to_mkldnn|_nnpack|_linalg_check)")


def main():
    lines = set()
    for schema in torch._C._jit_get_all_schemas():
        if not schema.name.startswith("aten::") or LEFT_OUT.match(schema.name):
            continue
        if any(a.is_out for a in schema.arguments) or any("Dict" in str(a.type) or "Future" in str(a.type) for a in schema.arguments):
            continue
        text = str(schema)
        # The JSON names an operator without an overload's name "default".
        name, rest = text.split("(", 1)
        name = name.removeprefix("aten::")
        if "." not in name:
            name += ".default"
        rest = re.sub(r"\([a-z]!?(?: -> \*)?(?:\|[a-z]!?)?\)", "", rest)  # marks of aliasing
        lines.add(f"aten.{name}({rest}")
    out = pathlib.Path(__file__).with_name("aten_schemas.txt")
    head = f"# Written by make_schemas.py from PyTorch {torch.__version__.split('+')[0]}.\n"
    out.write_text(head + "\n".join(sorted(lines)) + "\n")
    print(f"{out}: {len(lines)} operators, {out.stat().st_size} bytes")


if __name__ == "__main__":
    main()
