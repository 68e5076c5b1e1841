# Flags and the two functions every target is made with. Nothing global but the output folders.
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
target_compile_options(ckpt_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-missing-field-initializers>)
if(CKPT_SANITIZE)
  target_compile_options(ckpt_flags INTERFACE
    $<$<COMPILE_LANGUAGE:C,CXX>:-fsanitize=${CKPT_SANITIZE} -fno-omit-frame-pointer
      -fno-sanitize-recover=all>)
  target_link_options(ckpt_flags INTERFACE -fsanitize=${CKPT_SANITIZE})
  if(CKPT_SANITIZE MATCHES "thread")
    # GCC's TSan does not model the fences in Asio and says so on every one.
    target_compile_options(ckpt_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-tsan>)
  endif()
endif()

# ckpt_library(NAME SOURCES a.cc ... [PUBLIC lib ...] [PRIVATE lib ...])
# A static library of this project, position independent so that libckpt can take it in.
function(ckpt_library name)
  cmake_parse_arguments(arg "" "" "SOURCES;PUBLIC;PRIVATE" ${ARGN})
  add_library(${name} STATIC ${arg_SOURCES})
  set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE ON)
  target_link_libraries(${name} PUBLIC ckpt_flags ${arg_PUBLIC} PRIVATE ${arg_PRIVATE})
endfunction()

# ckpt_program(NAME SOURCES a.cc ... LINK lib ...)
function(ckpt_program name)
  cmake_parse_arguments(arg "" "" "SOURCES;LINK" ${ARGN})
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE ckpt_flags ${arg_LINK})
endfunction()

# ckpt_test(NAME SOURCES a_test.cc ... LINK lib ... [TIMEOUT seconds] [LABELS label ...])
# One GoogleTest program = one ctest entry.
function(ckpt_test name)
  cmake_parse_arguments(arg "" "TIMEOUT" "SOURCES;LINK;LABELS" ${ARGN})
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE ckpt_flags ${arg_LINK} GTest::gmock GTest::gtest_main)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests")
  add_test(NAME ${name} COMMAND ${name})
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 120)
  endif()
  set_tests_properties(${name} PROPERTIES TIMEOUT ${arg_TIMEOUT} LABELS "${arg_LABELS}")
endfunction()
