# The pieces of the bundle that tools/bundle packs: command, tests and benchmarks over one libtessera.so (so that LLVM is in it
# once; tessera_whole, which exports everything), with library paths relative to themselves.
function(tessera_bundled name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINK" ${ARGN})
  add_executable(${name} EXCLUDE_FROM_ALL ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE tessera_flags tessera_whole Threads::Threads ${ARG_LINK})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bundled
    BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH "$ORIGIN/../lib")
  target_link_options(${name} PRIVATE -s -Wl,--disable-new-dtags) # a path that holds for the libraries' own libraries, too
  add_dependencies(bundled ${name})
endfunction()

add_custom_target(bundled)
tessera_bundled(bundled_tessera SOURCES $<TARGET_OBJECTS:tessera> LINK tessera_triton_config)
if(TESSERA_TESTS)
  find_package(GTest REQUIRED)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/device/*.cpp)
  tessera_bundled(bundled_test_device SOURCES ${sources} ${CMAKE_SOURCE_DIR}/tests/ops/samples_run.cpp LINK GTest::gtest GTest::gtest_main)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/soak/*.cpp)
  tessera_bundled(bundled_soak SOURCES ${sources} ${CMAKE_SOURCE_DIR}/tests/memory/failing_allocations.cpp
    ${CMAKE_SOURCE_DIR}/tests/onnx/model_maker.cpp LINK GTest::gtest protobuf::libprotobuf-lite)
  target_include_directories(bundled_soak SYSTEM PRIVATE $<TARGET_PROPERTY:tessera_onnx_proto,INTERFACE_INCLUDE_DIRECTORIES>)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/cuda/*.cpp)
  if(sources)
    tessera_bundled(bundled_test_cuda SOURCES ${sources} ${CMAKE_SOURCE_DIR}/tests/runtime/build_executable.cpp LINK GTest::gtest GTest::gtest_main)
    target_include_directories(bundled_test_cuda SYSTEM PRIVATE ${TESSERA_CUDA_INCLUDE})
    target_compile_definitions(bundled_test_cuda PRIVATE TESSERA_TEST_DIR="" TESSERA_SOURCE_DIR="" TESSERA_BINARY_DIR="")
  endif()
endif()
