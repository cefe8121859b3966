# TROUPE_HAS_CUDA: whether the page mover for NVIDIA GPUs is built. Everything else is built either way.

set(TROUPE_CUDA AUTO CACHE STRING "Build the page mover for NVIDIA GPUs: AUTO (where nvcc is), ON or OFF")
set_property(CACHE TROUPE_CUDA PROPERTY STRINGS AUTO ON OFF)

set(TROUPE_HAS_CUDA OFF)
if(TROUPE_CUDA STREQUAL "OFF")
  return()
endif()

# Machine code for current data centre GPUs, and PTX for later ones.
if(NOT CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES 80-real 90)
endif()
include(CheckLanguage)
if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX} AND EXISTS /usr/local/cuda/bin/nvcc)
  set(CMAKE_CUDA_COMPILER /usr/local/cuda/bin/nvcc)
endif()
check_language(CUDA)
find_package(CUDAToolkit QUIET)
if(CMAKE_CUDA_COMPILER AND CUDAToolkit_FOUND)
  enable_language(CUDA)
  # CMake 3.25 does not know that nvcc supports C++20.
  if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
    set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
  endif()
  set(CMAKE_CUDA_STANDARD 20)
  set(TROUPE_HAS_CUDA ON)
elseif(TROUPE_CUDA STREQUAL "ON")
  message(FATAL_ERROR "TROUPE_CUDA is ON, but there is no CUDA compiler: install the toolkit, or name it with "
    "-DCMAKE_CUDA_COMPILER=/path/to/nvcc, or configure with -DTROUPE_CUDA=AUTO")
endif()
message(STATUS "Page mover for NVIDIA GPUs: ${TROUPE_HAS_CUDA}")
