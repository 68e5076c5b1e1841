# Compiler flags, and functions that create targets. Sets nothing globally but the output folders.
include(GNUInstallDirs)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin")
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib")
set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib")
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

add_library(ckpt_flags INTERFACE)
target_compile_features(ckpt_flags INTERFACE cxx_std_20)
target_include_directories(ckpt_flags INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>)
target_compile_options(ckpt_flags INTERFACE
  $<$<COMPILE_LANGUAGE:C,CXX>:-Wall -Wextra -Wshadow -Wnon-virtual-dtor -fvisibility=hidden>
  $<$<AND:$<COMPILE_LANGUAGE:C,CXX>,$<BOOL:${CKPT_WERROR}>>:-Werror>)
target_compile_options(ckpt_flags INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wno-missing-field-initializers>
  # clang: libstdc++ 12's stable_sort uses a feature that is deprecated now; and a double returned
  # from a C++ library is not C-compatible.
  $<$<COMPILE_LANG_AND_ID:CXX,Clang>:-Wno-deprecated-declarations -Wno-return-type-c-linkage>)
# Messages name sources by repository path, so the compiled output is the same in every checkout.
target_compile_options(ckpt_flags INTERFACE
  $<$<COMPILE_LANGUAGE:C,CXX>:-fmacro-prefix-map=${PROJECT_SOURCE_DIR}/=>)
if(CKPT_SANITIZE)
  target_compile_options(ckpt_flags INTERFACE
    $<$<COMPILE_LANGUAGE:C,CXX>:-fsanitize=${CKPT_SANITIZE} -fno-omit-frame-pointer
      -fno-sanitize-recover=all>)
  target_link_options(ckpt_flags INTERFACE -fsanitize=${CKPT_SANITIZE})
  if(CKPT_SANITIZE MATCHES "thread")
    # GCC's TSan does not model the fences in Asio and warns about each of them.
    target_compile_options(ckpt_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-tsan>)
  endif()
endif()

# Since 3.31 CMake unity builds include CUDA sources, whose kernels reuse the same names. So each
# CUDA source is compiled alone, whatever its target.
function(ckpt_keep_cuda_apart)
  list(FILTER ARGN INCLUDE REGEX "\\.cu$")
  if(ARGN)
    set_source_files_properties(${ARGN} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  endif()
endfunction()

# ckpt_library(NAME SOURCES a.cc ... [PUBLIC lib ...] [PRIVATE lib ...])
# A static library of this project, position independent so that libckpt can include it.
function(ckpt_library name)
  cmake_parse_arguments(arg "" "" "SOURCES;PUBLIC;PRIVATE" ${ARGN})
  ckpt_keep_cuda_apart(${arg_SOURCES})
  add_library(${name} STATIC ${arg_SOURCES})
  set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE ON)
  target_link_libraries(${name} PUBLIC ckpt_flags ${arg_PUBLIC} PRIVATE ${arg_PRIVATE})
endfunction()

# ckpt_program(NAME SOURCES a.cc ... LINK lib ...)
function(ckpt_program name)
  cmake_parse_arguments(arg "" "" "SOURCES;LINK" ${ARGN})
  ckpt_keep_cuda_apart(${arg_SOURCES})
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE ckpt_flags ${arg_LINK})
endfunction()

# ckpt_test(NAME SOURCES a_test.cc ... LINK lib ... [TIMEOUT seconds] [LABELS label ...])
# One GoogleTest program = one ctest entry. Its labels are the first folder under tests/ and the
# given ones. These labels have an effect:
#   daemon  tests how a real ckptd writes, reads or recovers: runs a second time as NAME_pwritev
#           with CKPTD_IO=pwritev, so that both I/O engines carry the same tests
#   system  starts whole programs: begins first, since it takes longest, and runs once: the tests
#           of the daemon and of the client cover both I/O engines
#   gpu     needs a device if built for CUDA: without one the test exits with 77 and counts as
#           skipped, not passed; if anything failed anyway, the test has failed
#   fuzz    obeys CKPT_FUZZ_SECONDS and CKPT_FUZZ_SEED (./dev fuzz)
function(ckpt_test name)
  cmake_parse_arguments(arg "" "TIMEOUT" "SOURCES;LINK;LABELS" ${ARGN})
  ckpt_keep_cuda_apart(${arg_SOURCES})
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE ckpt_flags ${arg_LINK} GTest::gmock)
  if("gpu" IN_LIST arg_LABELS)
    target_sources(${name} PRIVATE $<TARGET_OBJECTS:skipping_main>)
  else()
    target_link_libraries(${name} PRIVATE GTest::gtest_main)
  endif()
  # Only the code under test is fully optimised. Test sources build a quarter faster at -O1. With a
  # sanitizer, whose checks surround every assertion, they build in half the time at -O0.
  target_compile_options(${name} PRIVATE $<$<CONFIG:Release>:-O1>)
  if(CKPT_SANITIZE)
    target_compile_options(${name} PRIVATE -O0)
  endif()
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests")
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 120)
  endif()
  ckpt_add_test(${name} "${arg_TIMEOUT}" "${arg_LABELS}" COMMAND ${name})
endfunction()

# add_test with the common properties: labels (and their effects, above), and a time limit.
# Sanitized programs are several times slower; the limits are those of a plain build.
function(ckpt_add_test name timeout labels)
  cmake_parse_arguments(PARSE_ARGV 3 arg "" "" "COMMAND")
  if(CKPT_SANITIZE)
    math(EXPR timeout "${timeout} * 5")
  endif()
  file(RELATIVE_PATH folder "${PROJECT_SOURCE_DIR}/tests" "${CMAKE_CURRENT_SOURCE_DIR}")
  string(REGEX MATCH "^[^/]+" area "${folder}")
  list(PREPEND labels ${area})
  set(names ${name})
  if("daemon" IN_LIST labels)
    list(APPEND names ${name}_pwritev)
  endif()
  foreach(entry ${names})
    add_test(NAME ${entry} COMMAND ${arg_COMMAND})
    set_tests_properties(${entry} PROPERTIES TIMEOUT ${timeout} LABELS "${labels}")
  endforeach()
  # Fixed I/O shape: hundreds of daemons start here, and measuring the disk has its own test.
  set_property(TEST ${names} APPEND PROPERTY ENVIRONMENT_MODIFICATION
    "CKPTD_IO_SHAPE=set:32x4MiB")
  if("system" IN_LIST labels)
    set_tests_properties(${names} PROPERTIES COST 1000)
  endif()
  if("gpu" IN_LIST labels)
    set_tests_properties(${names} PROPERTIES SKIP_RETURN_CODE 77)
  endif()
  # With this option every fiber of the emulated device would get a second stack: megabytes mapped
  # and unmapped for a device thread of a few instructions, five times as slow. Other tests cover
  # the code outside of fibers.
  if(CKPT_SANITIZE AND NOT CKPT_CUDA AND name MATCHES "cuda|gpu|cufile")
    set_property(TEST ${names} APPEND PROPERTY ENVIRONMENT_MODIFICATION
      "ASAN_OPTIONS=path_list_append:detect_stack_use_after_return=0")
  endif()
  if(TEST ${name}_pwritev)
    set_tests_properties(${name}_pwritev PROPERTIES ENVIRONMENT "CKPTD_IO=pwritev")
  endif()
endfunction()
