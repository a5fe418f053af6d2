# Precompiled headers, for building from nothing: parsing headers from outside is a quarter of the time. Off by default: a compiler
# cache, which knows files that were compiled elsewhere, gains more where there is one. tools/build turns this on where there is none.
option(TESSERA_PRECOMPILE "Precompile headers from outside, and go without a compiler cache" OFF)
if(TESSERA_PRECOMPILE AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # gcc frees memory while it compiles, which takes a fifth of the time: not before a file has taken 1 GB, which few do.
  add_compile_options(--param=ggc-min-heapsize=1048576)
  # A unity file (TesseraUnity.cmake) includes sources as it does headers, in which a class of an anonymous namespace would be a mistake.
  # Of more code in one file the optimizer sees more paths that none takes.
  add_compile_options(-Wno-subobject-linkage -Wno-free-nonheap-object -Wno-dangling-pointer -Wno-use-after-free -Wno-nonnull)
endif()

# tessera_precompile(TARGET NAME): compiles the target with cmake/precompiled/NAME.h.
function(tessera_precompile target name)
  if(TESSERA_PRECOMPILE)
    target_precompile_headers(${target} PRIVATE ${CMAKE_SOURCE_DIR}/cmake/precompiled/${name}.h)
  endif()
endfunction()

# The same with one precompiled header for all targets of a kind, which must be compiled with the same options: `library` (code that
# may be shared) or `test` (programs, with GoogleTest).
function(tessera_precompile_as target kind)
  if(NOT TESSERA_PRECOMPILE)
    return()
  endif()
  set(owner precompiled_${kind})
  if(NOT TARGET ${owner})
    set(source ${CMAKE_BINARY_DIR}/${owner}.cpp)
    file(CONFIGURE OUTPUT ${source} CONTENT "int main() {}\n")
    if(kind STREQUAL "library")
      add_library(${owner} OBJECT EXCLUDE_FROM_ALL ${source})
      tessera_precompile(${owner} standard)
    else()
      add_executable(${owner} EXCLUDE_FROM_ALL ${source})
      tessera_compile_quickly(${owner} -O0)
      tessera_precompile(${owner} test)
    endif()
    target_link_libraries(${owner} PRIVATE tessera_flags $<$<STREQUAL:${kind},test>:GTest::gtest>)
  endif()
  target_precompile_headers(${target} REUSE_FROM ${owner})
endfunction()
