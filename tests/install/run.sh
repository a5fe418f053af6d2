#!/usr/bin/env bash
# Installs the build into a scratch prefix, checks what it shows, and builds and runs projects that know nothing else, in C and C++, and
# the examples of serving in Python, too.
#   run.sh BUILD_DIRECTORY SOURCE_DIRECTORY MODEL PYTHON
set -euo pipefail
work=$1/install-test
rm -rf "$work"
cmake --install "$1" --prefix "$work/prefix" >/dev/null
# project NAME SOURCE FOLDER: builds a folder of the source as a project of its own.
project() {
  cmake --no-warn-unused-cli -S "$2/$3" -B "$work/$1" -G Ninja -DCMAKE_PREFIX_PATH="$work/prefix" -DCMAKE_C_FLAGS="-fuse-ld=mold -Wall -Wextra -Werror" \
    -DCMAKE_CXX_FLAGS="-fuse-ld=mold -Wall -Wextra -Werror -Wno-missing-field-initializers" >/dev/null
  cmake --build "$work/$1"
}
project build "$2" tests/install
python3 "$2/tests/install/symbols.py" "$work/prefix"
python3 "$2/tests/install/licences.py" "$work/prefix"
# The example of operators, which is not linked with the library.
project operators "$2" examples/operators
"$1/bin/tessera" ops --operators "$work/operators/example_operators.so" --domain com.example
library=$(dirname "$(find "$work/prefix" -name libtessera.so | head -1)")
export LD_LIBRARY_PATH=$library
"$work/build/embed" "$3"
"$work/build/embed_c" "$3"
"$work/build/embed_hpp" "$3"
# A tile kernel launched from C.
project tile "$2" examples/tile
"$work/tile/launch" "$2/examples/tile/add.tile"
# A server's core: C by find_package() and by pkg-config, C++, Python.
project serving_c "$2" examples/serving/c
"$work/serving_c/serve" "$3" cpu
export PKG_CONFIG_PATH=$library/pkgconfig
read -ra flags < <(pkg-config --cflags --libs tessera)
cc -std=c11 "$2/examples/serving/c/serve.c" "${flags[@]}" -lpthread -fuse-ld=mold -o "$work/serve_c"
"$work/serve_c" "$3" cpu
[ "$(pkg-config --modversion tessera)" = "$(sed -n 's/^version = "\([0-9.]*\)".*/\1/p' "$2/pyproject.toml")" ]
# The same over the library that runs compiled files alone, with such a file.
"$1/bin/tessera" compile "$3" -o "$work/model.tsr" --device cpu --embed-weights
"$work/build/embed_runtime" "$work/model.tsr"
read -ra flags < <(pkg-config --cflags --libs tessera-runtime)
cc -std=c11 "$2/examples/serving/c/serve.c" "${flags[@]}" -lpthread -fuse-ld=mold -o "$work/serve_runtime"
"$work/serve_runtime" "$work/model.tsr" cpu
if ldd "$work/serve_runtime" | grep -Ei 'LLVM|protobuf|libtessera\.so'; then exit 1; fi
project serving_cpp "$2" examples/serving/cpp
"$work/serving_cpp/serve" "$3" cpu
if [ -d "$1/python/tessera" ]; then
  PYTHONPATH=$1/python "$4" "$2/examples/serving/python/serve.py" "$3" cpu
fi
