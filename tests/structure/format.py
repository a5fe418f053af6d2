#!/usr/bin/env python3
"""Check that clang-format leaves every C and C++ file as it is.

    format.py SOURCE_DIRECTORY

Another version of clang-format breaks lines elsewhere: the one that tools/setup installs counts.
"""
import concurrent.futures, os, subprocess, sys
from cpp import sources

SUFFIXES = (".c", ".cpp", ".h", ".hpp", ".inc")


def main():
    root, formatter = os.path.abspath(sys.argv[1]), os.path.join(os.path.dirname(sys.executable), "clang-format")
    if not os.path.exists(formatter): sys.exit(f"error: {formatter} is not there; tools/setup installs it")
    files = list(sources(root, SUFFIXES))
    check = lambda some: subprocess.run([formatter, "--dry-run", *some], stderr=subprocess.PIPE, text=True, check=True).stderr
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        said = "".join(pool.map(check, (files[i : i + 40] for i in range(0, len(files), 40))))
    wrong = sorted({os.path.relpath(line.split(":")[0], root) for line in said.splitlines() if "code should be clang-formatted" in line})
    for name in wrong: print(f"{name}: clang-format -i changes it")
    sys.exit(bool(wrong))


if __name__ == "__main__": main()
