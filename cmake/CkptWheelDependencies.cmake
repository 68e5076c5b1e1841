# Libraries of the daemon for the Python wheel: inside the programs, so that a machine needs none of
# them. spdlog and toml++, of which Debian has no static library, are made in client/python.
set(ckpt_suffixes ${CMAKE_FIND_LIBRARY_SUFFIXES})
set(CMAKE_FIND_LIBRARY_SUFFIXES .a)
pkg_check_modules(URING REQUIRED IMPORTED_TARGET liburing)
pkg_check_modules(ZSTD REQUIRED IMPORTED_TARGET libzstd)
foreach(library rocksdb snappy bz2 lz4 z)
  find_library(CKPT_WHEEL_${library} ${library} REQUIRED)
  target_link_libraries(ckpt_rocksdb INTERFACE "${CKPT_WHEEL_${library}}")
endforeach()
target_link_libraries(ckpt_rocksdb INTERFACE PkgConfig::ZSTD ${CMAKE_DL_LIBS} Threads::Threads)
set(CMAKE_FIND_LIBRARY_SUFFIXES ${ckpt_suffixes})
