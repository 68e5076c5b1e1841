# Every library the project uses, found once. Debian 12 package names are in ./dev.
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)
pkg_check_modules(ISAL REQUIRED IMPORTED_TARGET libisal)
pkg_check_modules(XXHASH REQUIRED IMPORTED_TARGET libxxhash)

# fmt without its shared library: fmt 9 is compiled into ckpt_base (base/fmt_compiled.cc), any other
# version is used as headers only.
add_library(ckpt_fmt INTERFACE)
if(fmt_VERSION VERSION_GREATER_EQUAL 9 AND fmt_VERSION VERSION_LESS 10)
  get_target_property(fmt_include fmt::fmt-header-only INTERFACE_INCLUDE_DIRECTORIES)
  target_include_directories(ckpt_fmt SYSTEM INTERFACE $<BUILD_INTERFACE:${fmt_include}>)
else()
  target_link_libraries(ckpt_fmt INTERFACE fmt::fmt-header-only)
endif()

# FlatBuffers: the compiler at build time, headers only at run time.
find_program(FLATC flatc REQUIRED)
find_path(FLATBUFFERS_INCLUDE_DIR flatbuffers/flatbuffers.h REQUIRED)

# The daemon, the trainer and the tools.
find_package(CLI11 REQUIRED)
add_library(ckpt_rocksdb INTERFACE)
if(CKPT_PYTHON_WHEEL)
  include(CkptWheelDependencies)
else()
  pkg_check_modules(URING REQUIRED IMPORTED_TARGET liburing)
  pkg_check_modules(ZSTD REQUIRED IMPORTED_TARGET libzstd)
  find_package(RocksDB REQUIRED)
  target_link_libraries(ckpt_rocksdb INTERFACE RocksDB::rocksdb-shared)
  find_package(spdlog REQUIRED)
  find_package(tomlplusplus REQUIRED)
endif()
pkg_check_modules(OPENBLAS REQUIRED IMPORTED_TARGET openblas)
find_path(ASIO_INCLUDE_DIR asio.hpp REQUIRED)
find_path(GLOO_INCLUDE_DIR gloo/context.h REQUIRED)
find_library(GLOO_LIBRARY gloo REQUIRED)

if(CKPT_TESTS)
  find_package(GTest REQUIRED)
endif()
# Benches, and the tests of what they parse.
find_package(ZLIB REQUIRED)
if(CKPT_BENCH)
  find_package(benchmark REQUIRED)
endif()
