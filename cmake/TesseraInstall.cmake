# libtessera.so: all of ours, with LLVM and protobuf inside. It exports the C interface and the documented C++ one; all else is
# hidden, so that a process may hold other copies of these libraries.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(parts tessera_support tessera_graph tessera_onnx tessera_fx tessera_frontend tessera_fusion tessera_target tessera_tile tessera_layout tessera_schedule tessera_llvm tessera_runtime tessera_driver tessera_tune tessera_calibrate tessera_accuracy tessera_report tessera_api)
set(objects)
foreach(part ${parts} tessera_onnx_proto)
  get_target_property(kind ${part} TYPE)
  if(NOT kind STREQUAL "INTERFACE_LIBRARY")
    list(APPEND objects $<TARGET_OBJECTS:${part}>)
  endif()
endforeach()

# The ABI of the C interface: the soname's number, and the version of its symbols. The C++ headers promise nothing beyond a minor
# version, whose number their symbols have, so that a program of another one does not start.
file(STRINGS ${CMAKE_SOURCE_DIR}/api/c.h abi REGEX "^#define TESSERA_ABI_VERSION ")
string(REGEX MATCH "[0-9]+$" TESSERA_ABI_VERSION "${abi}")
set_property(DIRECTORY ${CMAKE_SOURCE_DIR} APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/api/c.h)
foreach(map exports exports_whole)
  configure_file(${CMAKE_SOURCE_DIR}/cmake/${map}.map ${CMAKE_BINARY_DIR}/${map}.map @ONLY)
endforeach()

# tessera_shared_library(TARGET [FILE]): the whole project as one shared library, from objects that are compiled once. With FILE, a
# version script, it exports what that says and nothing else; without, everything of ours.
function(tessera_shared_library name)
  add_library(${name} SHARED ${objects})
  set_target_properties(${name} PROPERTIES OUTPUT_NAME tessera VERSION ${TESSERA_ABI_VERSION}.${PROJECT_VERSION} SOVERSION ${TESSERA_ABI_VERSION}
    # A program that opens it without a search path of its own, a script say, finds the libraries that lie beside it in a bundle.
    BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH "$ORIGIN")
  target_link_libraries(${name} PRIVATE ${TESSERA_LLVM_LIBRARIES} protobuf::libprotobuf-lite TBB::tbb DNNL::dnnl ${RE2_LIBRARY} ${TESSERA_IMAGE_LIBRARIES} spdlog::spdlog Threads::Threads ${CMAKE_DL_LIBS})
  # Much of LLVM is in sections that nothing refers to.
  target_link_options(${name} PRIVATE -Wl,--exclude-libs,ALL -Wl,--disable-new-dtags -Wl,--gc-sections)
  if(ARGC GREATER 1)
    target_link_options(${name} PRIVATE -Wl,--version-script=${ARGV1})
    set_target_properties(${name} PROPERTIES LINK_DEPENDS ${ARGV1})
  endif()
  target_compile_features(${name} INTERFACE cxx_std_20)
endfunction()

tessera_shared_library(tessera_shared ${CMAKE_BINARY_DIR}/exports.map)
set_target_properties(tessera_shared PROPERTIES EXPORT_NAME tessera EXCLUDE_FROM_ALL OFF)
target_include_directories(tessera_shared INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
# The same for the bundle, whose command and tests use all of it.
tessera_shared_library(tessera_whole ${CMAKE_BINARY_DIR}/exports_whole.map)
set_target_properties(tessera_whole PROPERTIES EXCLUDE_FROM_ALL ON LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bundled/lib)
target_link_options(tessera_whole PRIVATE -s)

install(TARGETS tessera_shared EXPORT TesseraTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(TARGET tessera)
  install(TARGETS tessera RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
# A folder of backends for Triton's server, as its option --backend-directory names one.
install(TARGETS tessera_triton LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/triton/tessera)
install(CODE "set(source \"${CMAKE_SOURCE_DIR}\")\nset(include \"${CMAKE_INSTALL_INCLUDEDIR}\")")
install(SCRIPT ${CMAKE_SOURCE_DIR}/cmake/PublicHeaders.cmake)
install(EXPORT TesseraTargets NAMESPACE Tessera:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/Tessera)
file(WRITE ${CMAKE_BINARY_DIR}/TesseraConfig.cmake "include(\${CMAKE_CURRENT_LIST_DIR}/TesseraTargets.cmake)\n")
write_basic_package_version_file(${CMAKE_BINARY_DIR}/TesseraConfigVersion.cmake COMPATIBILITY SameMinorVersion)
# The file finds its prefix from its own place, so that an installed tree may be moved.
string(REGEX REPLACE "[^/]+" ".." relative_prefix ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
configure_file(${CMAKE_SOURCE_DIR}/cmake/tessera.pc.in ${CMAKE_BINARY_DIR}/tessera.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/tessera.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
install(FILES ${CMAKE_BINARY_DIR}/TesseraConfig.cmake ${CMAKE_BINARY_DIR}/TesseraConfigVersion.cmake DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/Tessera)
