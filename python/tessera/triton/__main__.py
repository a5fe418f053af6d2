"""python -m tessera.triton [--device auto|cpu|cuda] SCRIPT [ARGUMENTS]: runs a script in which `import triton` is Tessera's.

--device cpu: tensors that name "cuda" lie in the host's memory, and kernels compute there. auto: where there is no GPU.
"""

from __future__ import annotations

import argparse
import os
import runpy
import sys

from . import install


def main() -> None:
    """Runs the script of the command line."""
    parser = argparse.ArgumentParser(prog="python -m tessera.triton", description="Runs a script in which `import triton` is Tessera's.")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto", help="cpu: tensors that name cuda lie in the host's memory (auto: where there is no GPU)")
    parser.add_argument("-m", dest="module", action="store_true", help="SCRIPT is a module")
    parser.add_argument("script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    given = parser.parse_args()
    if not given.module and not os.path.exists(given.script):
        parser.error(f"there is no file '{given.script}'")
    install(device=given.device)
    sys.argv = [given.script, *given.arguments]
    if given.module:
        runpy.run_module(given.script, run_name="__main__", alter_sys=True)
    else:
        sys.path.insert(0, os.path.dirname(os.path.abspath(given.script)))
        runpy.run_path(given.script, run_name="__main__")


if __name__ == "__main__":
    main()
