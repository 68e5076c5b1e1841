# cmake -P: see CMakeLists.txt for the variables. A library in a Python wheel is found by the search
# path of Python, with the header of the same wheel, or not at all.
include("${SOURCES}/cmake/CkptWheels.cmake")
file(REMOVE_RECURSE "${WORK}")
set(nccl "${WORK}/site-packages/nvidia/nccl")
file(WRITE "${nccl}/include/nccl.h" "")
file(WRITE "${nccl}/lib/libnccl.so.2" "")
file(WRITE "${WORK}/other/nvidia/cublas/lib/libcublas.so.13" "") # without its header
file(WRITE "${WORK}/other/nvidia/cu13/include/cublas_v2.h" "")
file(WRITE "${WORK}/other/nvidia/cu13/lib/libcublas.so.13" "")
file(WRITE "${WORK}/given/nccl/include/nccl.h" "")
file(WRITE "${WORK}/given/nccl/lib/libnccl.so.2" "")

function(expect_equal value expected)
  if(NOT value STREQUAL expected)
    message(FATAL_ERROR "'${value}' instead of '${expected}'")
  endif()
endfunction()

set(ENV{VIRTUAL_ENV} "${WORK}/none")
set(ENV{PYTHONPATH} "${WORK}/site-packages:${WORK}/other")
ckpt_find_in_wheels(NCCL nccl.h libnccl.so.2 nccl)
expect_equal("${NCCL_LIBRARY}" "${nccl}/lib/libnccl.so.2")
expect_equal("${NCCL_INCLUDE_DIR}" "${nccl}/include")
ckpt_find_in_wheels(CUBLAS cublas_v2.h libcublas.so.13 cublas cu13)
expect_equal("${CUBLAS_LIBRARY}" "${WORK}/other/nvidia/cu13/lib/libcublas.so.13")
ckpt_find_in_wheels(OLDER cublas_v2.h libcublas.so.12 cublas cu12)
expect_equal("${OLDER_LIBRARY}" "")

set(CKPT_WHEELS "${WORK}/given")
ckpt_find_in_wheels(GIVEN nccl.h libnccl.so.2 nccl)
expect_equal("${GIVEN_LIBRARY}" "${WORK}/given/nccl/lib/libnccl.so.2")
