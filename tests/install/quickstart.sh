#!/usr/bin/env bash
# Runs tools/quickstart to its last line in a tree where tools/setup and tools/build have nothing left to do.
#   quickstart.sh BUILD_FOLDER SOURCE_FOLDER
set -euo pipefail
build=$1 source=$2
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
mkdir "$tree/tools"
cp "$source/tools/quickstart" "$tree/tools/"
ln -s "$source/tools/scripts" "$tree/tools/scripts"
ln -s "$source/models" "$tree/models"
mkdir "$tree/build" # with models of its own: others read those of the build folder meanwhile
ln -s "$build/venv" "$build/bin" "$tree/build/"
for done in setup build; do
  printf '#!/bin/sh\n' >"$tree/tools/$done"
  chmod +x "$tree/tools/$done"
done
"$tree/tools/quickstart" | tee "$tree/output"
tail -1 "$tree/output" | grep -qF "$(tail -1 "$source/tools/quickstart" | cut -d'"' -f2)"
