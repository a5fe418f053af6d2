"""The command `tessera`, which the wheel carries as a program next to this file."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from ._errors import FileError
from ._libraries import environment


def program() -> str:
    """The path of the program: in an installed package, or in the build folder that this package lies in. Raises FileError."""
    here = Path(__file__).parent
    built = Path(os.path.abspath(here)).parent.parent / "bin" / "tessera"
    for path in (here / "bin" / "tessera", built):
        if path.is_file():
            return str(path)
    raise FileError(f"the command is neither at {here / 'bin' / 'tessera'} nor at {built}; install the wheel, or build the target 'tessera'")


def main() -> int:
    """Becomes the program, with this process's arguments."""
    path = program()
    if not os.access(path, os.X_OK):  # an installer that does not keep modes
        os.chmod(path, 0o755)
    sys.stdout.flush()
    os.execve(path, ["tessera", *sys.argv[1:]], environment())


if __name__ == "__main__":
    sys.exit(main())
