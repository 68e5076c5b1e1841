# CUDA, only with CKPT_CUDA=ON. Targets that need it have their own .cu files; no shared source
# knows of it.
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
find_package(CUDAToolkit REQUIRED)
