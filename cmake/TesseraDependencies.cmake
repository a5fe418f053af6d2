# Everything comes from Debian packages, except onnx-ml.proto, which the PyPI package onnx carries.
find_package(Threads REQUIRED)
find_package(spdlog REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)
# Debian's dnnl package config requires OpenCL, which the CPU path does not use: take the library as it is.
find_library(RE2_LIBRARY re2 REQUIRED)
# These libraries decode images (graph/ops/image.cpp), which loads libtiff when it needs it.
find_library(JPEG_LIBRARY jpeg REQUIRED)
find_library(PNG_LIBRARY png16 REQUIRED)
find_path(TIFF_INCLUDE tiffio.h REQUIRED)
find_library(WEBP_LIBRARY webp REQUIRED)
find_library(OPENJP2_LIBRARY openjp2 REQUIRED)
find_path(OPENJP2_INCLUDE openjpeg.h PATH_SUFFIXES openjpeg-2.5 REQUIRED)
set(TESSERA_IMAGE_LIBRARIES ${JPEG_LIBRARY} ${PNG_LIBRARY} ${WEBP_LIBRARY} ${OPENJP2_LIBRARY})
find_library(DNNL_LIBRARY dnnl REQUIRED)
find_path(DNNL_INCLUDE oneapi/dnnl/dnnl.h REQUIRED)
add_library(DNNL::dnnl SHARED IMPORTED)
set_target_properties(DNNL::dnnl PROPERTIES IMPORTED_LOCATION ${DNNL_LIBRARY} INTERFACE_INCLUDE_DIRECTORIES ${DNNL_INCLUDE})
find_path(XXHASH_INCLUDE xxhash.h REQUIRED)

set(LLVM_DIR "/usr/lib/llvm-19/lib/cmake/llvm" CACHE PATH "LLVM 19's CMake package")
find_package(LLVM 19.1 REQUIRED CONFIG)
llvm_map_components_to_libnames(TESSERA_LLVM_LIBRARIES core support irreader passes native nvptxcodegen nvptxdesc nvptxinfo bitreader linker)

# Declarations only: the driver and NVIDIA's libraries are loaded at run time.
find_path(TESSERA_CUDA_INCLUDE cuda.h HINTS $ENV{TESSERA_CUDA_PATH}/include ${CMAKE_SOURCE_DIR}/build/cuda/include /usr/local/cuda/include)
foreach(header cuda.h cublasLt.h cudnn.h nvJitLink.h)
  if(NOT EXISTS "${TESSERA_CUDA_INCLUDE}/${header}")
    message(FATAL_ERROR "${header} was not found in '${TESSERA_CUDA_INCLUDE}'; run tools/setup, or set TESSERA_CUDA_INCLUDE to the headers of CUDA 13 and cuDNN 9")
  endif()
endforeach()

# NVIDIA's mathematical functions for devices: bitcode, embedded in the compiler.
find_file(TESSERA_LIBDEVICE libdevice.10.bc HINTS ${TESSERA_CUDA_INCLUDE}/../nvvm/libdevice $ENV{TESSERA_CUDA_PATH}/nvvm/libdevice
          /usr/local/cuda/nvvm/libdevice ${CMAKE_SOURCE_DIR}/build/cuda/nvvm/libdevice NO_DEFAULT_PATH)
if(NOT TESSERA_LIBDEVICE)
  message(FATAL_ERROR "libdevice.10.bc was not found next to '${TESSERA_CUDA_INCLUDE}'; run tools/setup, or set TESSERA_LIBDEVICE")
endif()

find_package(Protobuf REQUIRED)

if(NOT TESSERA_PYTHON)
  find_program(TESSERA_PYTHON python3 PATHS ${CMAKE_SOURCE_DIR}/build/venv/bin NO_DEFAULT_PATH)
  find_program(TESSERA_PYTHON python3 REQUIRED)
endif()
execute_process(COMMAND ${TESSERA_PYTHON} -c "import onnx, os; print(os.path.dirname(onnx.__file__))"
                OUTPUT_VARIABLE ONNX_PYTHON_DIR OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
if(NOT EXISTS "${ONNX_PYTHON_DIR}/onnx-ml.proto")
  message(FATAL_ERROR "the Python package onnx was not found by ${TESSERA_PYTHON}; run tools/setup, or set TESSERA_PYTHON to a Python that has it")
endif()
