#!/usr/bin/env bash
# Installs the build into a scratch prefix, checks what it shows, and builds and runs a project that knows nothing else, in C and C++.
#   run.sh BUILD_DIRECTORY SOURCE_DIRECTORY MODEL
set -euo pipefail
work=$1/install-test
rm -rf "$work"
cmake --install "$1" --prefix "$work/prefix" >/dev/null
cmake -S "$2/tests/install" -B "$work/build" -G Ninja -DCMAKE_PREFIX_PATH="$work/prefix" -DCMAKE_CXX_FLAGS=-fuse-ld=mold >/dev/null
cmake --build "$work/build"
python3 "$2/tests/install/symbols.py" "$work/prefix"
# The example of operators, which is not linked with the library.
cmake -S "$2/examples/operators" -B "$work/operators" -G Ninja -DCMAKE_PREFIX_PATH="$work/prefix" -DCMAKE_CXX_FLAGS=-fuse-ld=mold >/dev/null
cmake --build "$work/operators"
"$1/bin/tessera" ops --operators "$work/operators/example_operators.so" --domain com.example
LD_LIBRARY_PATH=$(dirname "$(find "$work/prefix" -name libtessera.so | head -1)")
export LD_LIBRARY_PATH
"$work/build/embed" "$3"
"$work/build/embed_c" "$3"
