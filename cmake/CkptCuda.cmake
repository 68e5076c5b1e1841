# CUDA, only with CKPT_CUDA=ON. Targets that need it have their own .cu files; no shared source
# knows of it.
include(CkptWheels)
if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
  find_program(CMAKE_CUDA_COMPILER nvcc PATHS /usr/local/cuda/bin)
  if(NOT CMAKE_CUDA_COMPILER)
    message(FATAL_ERROR "CKPT_CUDA is ON but there is no nvcc in PATH or /usr/local/cuda/bin")
  endif()
endif()
if(NOT CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES 80-real 90)  # A100; H100 and, by its PTX, what comes later
endif()
enable_language(CUDA)
# CMake 3.25 knows no C++20 for nvcc: targets say -std=c++20 themselves.
# CMake 3.25 sets a property of nvToolsExt whether it is there or not; CUDA 13 has none.
if(CMAKE_VERSION VERSION_LESS 3.26 AND NOT TARGET CUDA::nvToolsExt)
  add_library(CUDA::nvToolsExt INTERFACE IMPORTED)
endif()
find_package(CUDAToolkit 12.5 REQUIRED)  # the first with cublasGemmGroupedBatchedEx

if(NOT TARGET CUDA::cublas)
  set(cublas_library "libcublas.so.${CUDAToolkit_VERSION_MAJOR}")
  ckpt_find_in_wheels(CUBLAS cublas_v2.h ${cublas_library} cublas cu${CUDAToolkit_VERSION_MAJOR})
  if(NOT CUBLAS_LIBRARY)
    message(FATAL_ERROR "cuBLAS: no ${cublas_library} in ${CUDAToolkit_LIBRARY_DIR}, nor in a "
      "Python wheel; install it, e.g. with: pip install nvidia-cublas-cu12")
  endif()
  message(STATUS "cuBLAS: ${CUBLAS_LIBRARY}")
  add_library(CUDA::cublas SHARED IMPORTED)
  set_target_properties(CUDA::cublas PROPERTIES
    IMPORTED_LOCATION "${CUBLAS_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${CUBLAS_INCLUDE_DIR}")
endif()

# NCCL comes beside CUDA, from a package of its own, or in a Python wheel. Without it the GPUs of
# several ranks exchange what they must through host memory.
find_path(NCCL_INCLUDE_DIR nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
find_library(NCCL_LIBRARY nccl HINTS "${CUDAToolkit_BIN_DIR}/.." PATH_SUFFIXES lib lib64)
if(NOT NCCL_INCLUDE_DIR OR NOT NCCL_LIBRARY)
  ckpt_find_in_wheels(NCCL nccl.h libnccl.so.2 nccl)
endif()
set(nccl_version 0)
if(NCCL_INCLUDE_DIR AND NCCL_LIBRARY)
  file(STRINGS "${NCCL_INCLUDE_DIR}/nccl.h" nccl_lines REGEX "^#define NCCL_(MAJOR|MINOR) +[0-9]+")
  string(REGEX REPLACE "[^0-9;]" "" nccl_version "${nccl_lines}")
  string(REPLACE ";" "." nccl_version "${nccl_version}")
endif()
set(nccl_needed 2.14) # the first with ncclCommInitRankConfig, whose calls need not block
if(NCCL_INCLUDE_DIR AND NCCL_LIBRARY AND nccl_version VERSION_LESS nccl_needed)
  message(WARNING "NCCL ${nccl_version} in ${NCCL_INCLUDE_DIR} is older than ${nccl_needed}: "
    "building without it; ranks exchange what is on GPUs through host memory")
elseif(NCCL_INCLUDE_DIR AND NCCL_LIBRARY)
  message(STATUS "NCCL ${nccl_version}: ${NCCL_LIBRARY}")
  set(CKPT_NCCL ON)
  add_library(ckpt_nccl INTERFACE)
  target_include_directories(ckpt_nccl SYSTEM INTERFACE "${NCCL_INCLUDE_DIR}")
  target_link_libraries(ckpt_nccl INTERFACE "${NCCL_LIBRARY}" CUDA::cudart)
else()
  message(STATUS "NCCL: not found; ranks exchange what is on GPUs through host memory")
endif()
