find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM AND NOT TESSERA_PRECOMPILE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
endif()
find_program(MOLD_PROGRAM mold)
if(MOLD_PROGRAM)
  add_link_options(-fuse-ld=mold)
endif()

add_link_options(LINKER:-z,relro,-z,now) # no pointers to functions that stay writable

# gcc 12 warns falsely of uninitialized optionals and of overlapping or overflowing string copies when it inlines at -O3.
add_library(tessera_flags INTERFACE)
target_compile_options(tessera_flags INTERFACE -Wall -Wextra -Werror -Wno-missing-field-initializers -Wno-maybe-uninitialized -Wno-restrict -Wno-stringop-overflow -Wno-stringop-overread -Wno-array-bounds -ffp-contract=off)
target_include_directories(tessera_flags INTERFACE $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}>)
if(TESSERA_SANITIZE)
  add_compile_options(-fsanitize=${TESSERA_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all -g1)
  add_link_options(-fsanitize=${TESSERA_SANITIZE})
  # Two checks at every dereference, a quarter of the time to compile: the address sanitizer reports null pointers, too, and what
  # is not aligned in a file is read by memcpy.
  if(TESSERA_SANITIZE MATCHES "address.*undefined")
    add_compile_options(-fno-sanitize=null,alignment)
  endif()
endif()
if(CMAKE_BUILD_TYPE STREQUAL "Debug")
  add_compile_definitions(TESSERA_DEBUG=1)
endif()
