# libtessera.so: all of ours, with LLVM and protobuf inside; libtessera_runtime.so: what runs compiled files, with the same C interface. The
# first exports the C interface and the documented C++ one; all else is
# hidden, so that a process may hold other copies of these libraries.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(parts tessera_base tessera_symbols tessera_graph tessera_passes tessera_onnx tessera_fx tessera_frontend tessera_fusion tessera_target tessera_tile tessera_layout tessera_schedule tessera_llvm tessera_runtime tessera_load tessera_driver tessera_tune tessera_calibrate tessera_accuracy tessera_report tessera_session tessera_api tessera_onnx_proto)
set(libraries DNNL::dnnl ${RE2_LIBRARY} ${TESSERA_IMAGE_LIBRARIES} spdlog::spdlog Threads::Threads ${CMAKE_DL_LIBS})
# The parts that run compiled files: neither importers nor compiler, so neither protobuf nor LLVM.
set(runtime_parts tessera_base tessera_symbols tessera_graph tessera_tile tessera_runtime tessera_load tessera_session tessera_runtime_api)

# The ABI of the C interface: the soname's number, and the version of its symbols. The C++ headers promise nothing beyond a minor
# version, whose number their symbols have, so that a program of another one does not start.
file(STRINGS ${CMAKE_SOURCE_DIR}/api/c.h abi REGEX "^#define TESSERA_ABI_VERSION ")
string(REGEX MATCH "[0-9]+$" TESSERA_ABI_VERSION "${abi}")
set_property(DIRECTORY ${CMAKE_SOURCE_DIR} APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/api/c.h)
foreach(map exports exports_whole exports_runtime)
  configure_file(${CMAKE_SOURCE_DIR}/cmake/${map}.map ${CMAKE_BINARY_DIR}/${map}.map @ONLY)
endforeach()

if(NOT TESSERA_SANITIZE) # sanitizers' functions are the program's
  set(no_undefined -Wl,--no-undefined)
endif()

# tessera_shared_library(TARGET OUTPUT name MAP file PARTS part... LIBRARIES library...): parts of the project as one shared library,
# from objects that are compiled once. It exports what the version script says.
function(tessera_shared_library name)
  cmake_parse_arguments(ARG "" "OUTPUT;MAP" "PARTS;LIBRARIES" ${ARGN})
  set(objects)
  foreach(part ${ARG_PARTS})
    get_target_property(kind ${part} TYPE)
    if(NOT kind STREQUAL "INTERFACE_LIBRARY")
      list(APPEND objects $<TARGET_OBJECTS:${part}>)
    endif()
    if(TARGET ${part}_small)
      list(APPEND objects $<TARGET_OBJECTS:${part}_small>)
    endif()
  endforeach()
  add_library(${name} SHARED ${objects})
  set_target_properties(${name} PROPERTIES OUTPUT_NAME ${ARG_OUTPUT} VERSION ${TESSERA_ABI_VERSION}.${PROJECT_VERSION} SOVERSION ${TESSERA_ABI_VERSION}
    # A program that opens it without a search path of its own, a script say, finds the libraries next to it in a bundle.
    BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH "$ORIGIN")
  target_link_libraries(${name} PRIVATE ${ARG_LIBRARIES})
  # Much of LLVM is in sections that nothing refers to. Helper threads stay when a program closes the library.
  target_link_options(${name} PRIVATE -Wl,-z,nodelete -Wl,--exclude-libs,ALL -Wl,--disable-new-dtags -Wl,--gc-sections ${no_undefined} -Wl,--version-script=${CMAKE_BINARY_DIR}/${ARG_MAP})
  set_target_properties(${name} PROPERTIES LINK_DEPENDS ${CMAKE_BINARY_DIR}/${ARG_MAP})
  target_compile_features(${name} INTERFACE cxx_std_20)
endfunction()

set(compiler_libraries ${TESSERA_LLVM_LIBRARIES} protobuf::libprotobuf-lite)
tessera_shared_library(tessera_shared OUTPUT tessera MAP exports.map PARTS ${parts} LIBRARIES ${compiler_libraries} ${libraries})
set_target_properties(tessera_shared PROPERTIES EXPORT_NAME tessera EXCLUDE_FROM_ALL OFF)
tessera_shared_library(tessera_runtime_shared OUTPUT tessera_runtime MAP exports_runtime.map PARTS ${runtime_parts} LIBRARIES ${libraries})
set_target_properties(tessera_runtime_shared PROPERTIES EXPORT_NAME runtime)
foreach(library tessera_shared tessera_runtime_shared)
  target_include_directories(${library} INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
endforeach()
# The same for the bundle, whose command and tests use all of it.
tessera_shared_library(tessera_whole OUTPUT tessera MAP exports_whole.map PARTS ${parts} LIBRARIES ${compiler_libraries} ${libraries})
set_target_properties(tessera_whole PROPERTIES EXCLUDE_FROM_ALL ON LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bundled/lib)
target_link_options(tessera_whole PRIVATE -s)

set(installed tessera_shared tessera_runtime_shared tessera_triton)
if(TARGET tessera)
  list(APPEND installed tessera)
endif()
add_custom_target(libraries DEPENDS ${installed})
list(TRANSFORM installed REPLACE "(.+)" "\"$<TARGET_FILE:\\1>\"" OUTPUT_VARIABLE files)
list(JOIN files " " files)
install(CODE "foreach(file ${files})
  if(NOT EXISTS \"\${file}\")
    message(FATAL_ERROR \"\${file} has not been built; build what is installed: tools/build release libraries\")
  endif()
endforeach()")
install(TARGETS tessera_shared tessera_runtime_shared EXPORT TesseraTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(TARGET tessera)
  install(TARGETS tessera RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
# A folder of backends for Triton's server, as its option --backend-directory names one.
install(TARGETS tessera_triton LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/triton/tessera)
# tessera_install_licences(DESTINATION folder [COMPONENT name] [EXCLUDE_FROM_ALL] TARGETS target...): licenses/ and sboms/ of what is linked
# into the targets (tools/scripts/licences.py), made when installing. They are taken from Debian's packages and Ninja's records: a build
# that has neither switches them off, and is not for passing on.
option(TESSERA_LICENCES "Install the licence texts and an SBOM of what is linked" ON)
function(tessera_install_licences)
  if(NOT TESSERA_LICENCES)
    return()
  endif()
  cmake_parse_arguments(ARG "EXCLUDE_FROM_ALL" "DESTINATION;COMPONENT" "TARGETS" ${ARGN})
  list(TRANSFORM ARG_TARGETS REPLACE "(.+)" "\"$<TARGET_FILE:\\1>\"")
  list(JOIN ARG_TARGETS " " files)
  cmake_path(ABSOLUTE_PATH ARG_DESTINATION BASE_DIRECTORY "\${CMAKE_INSTALL_PREFIX}" OUTPUT_VARIABLE folder)
  set(options)
  if(ARG_COMPONENT)
    list(APPEND options COMPONENT ${ARG_COMPONENT})
  endif()
  if(ARG_EXCLUDE_FROM_ALL)
    list(APPEND options EXCLUDE_FROM_ALL)
  endif()
  install(CODE "message(STATUS \"Installing: ${folder}/licenses, sboms\")
execute_process(COMMAND \"${TESSERA_PYTHON}\" \"${CMAKE_SOURCE_DIR}/tools/scripts/licences.py\" \"${CMAKE_BINARY_DIR}\" \"\$ENV{DESTDIR}${folder}\" ${files}
  COMMAND_ERROR_IS_FATAL ANY)" ${options})
endfunction()
tessera_install_licences(DESTINATION ${CMAKE_INSTALL_DOCDIR} TARGETS ${installed})
install(CODE "set(source \"${CMAKE_SOURCE_DIR}\")\nset(include \"${CMAKE_INSTALL_INCLUDEDIR}\")")
install(SCRIPT ${CMAKE_SOURCE_DIR}/cmake/PublicHeaders.cmake)
install(EXPORT TesseraTargets NAMESPACE Tessera:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/Tessera)
file(WRITE ${CMAKE_BINARY_DIR}/TesseraConfig.cmake "include(\${CMAKE_CURRENT_LIST_DIR}/TesseraTargets.cmake)\n")
write_basic_package_version_file(${CMAKE_BINARY_DIR}/TesseraConfigVersion.cmake COMPATIBILITY SameMinorVersion)
# The file finds its prefix from its own place, so that an installed tree may be moved.
string(REGEX REPLACE "[^/]+" ".." relative_prefix ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
foreach(library tessera tessera_runtime)
  string(REPLACE "_" "-" package ${library})
  configure_file(${CMAKE_SOURCE_DIR}/cmake/tessera.pc.in ${CMAKE_BINARY_DIR}/${package}.pc @ONLY)
  install(FILES ${CMAKE_BINARY_DIR}/${package}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endforeach()
install(FILES ${CMAKE_BINARY_DIR}/TesseraConfig.cmake ${CMAKE_BINARY_DIR}/TesseraConfigVersion.cmake DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/Tessera)
