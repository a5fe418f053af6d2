#!/usr/bin/env python3
"""Runs README's section "In a C or C++ program" as printed, with another prefix, and the command's examples, where all has been built.

    readme_test.py BUILD_FOLDER SOURCE_FOLDER
"""
import os, re, subprocess, sys, tempfile


def main():
    build, source = map(os.path.abspath, sys.argv[1:3])
    text = open(os.path.join(source, "README.md"), encoding="utf-8").read()
    section = text.split("## In a C or C++ program")[1].split("\n## ")[0]
    block = re.search(r"((?:^    .*\n)+)", section, re.MULTILINE).group(1)
    commands = [line.strip().split("  #")[0] for line in block.splitlines()]
    with tempfile.TemporaryDirectory() as tree:
        for name in ("examples", "models"): os.symlink(os.path.join(source, name), os.path.join(tree, name))
        os.symlink(build, os.path.join(tree, "build"))
        os.mkdir(os.path.join(tree, "tools"))
        with open(os.path.join(tree, "tools", "build"), "w") as f: f.write('#!/bin/sh\n[ "$*" = "release libraries" ]\n')  # nothing is left to do
        os.chmod(f.name, 0o755)
        for command in commands:
            print("$", command, flush=True)
            subprocess.run(command.replace("/opt/tessera", f"{tree}/prefix"), shell=True, cwd=tree, check=True)
        # The command's examples are of a model with the dimensions batch and seq.
        minilm = os.path.join(build, "models", "minilm")
        for name in os.listdir(minilm): os.symlink(os.path.join(minilm, name), os.path.join(tree, name))
        examples = [line.split("  #")[0].strip() for line in re.findall(r"^    (build/bin/tessera .*)$", text, re.MULTILINE)]
        for command in examples:
            print("$", command, flush=True)
            subprocess.run(command, shell=True, cwd=tree, check=True, stdout=subprocess.DEVNULL, env={**os.environ, "TESSERA_CACHE_DIR": f"{tree}/cache"})
    sys.exit(len(commands) < 5 or len(examples) < 8)


if __name__ == "__main__": main()
