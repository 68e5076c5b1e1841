# cmake -P: see CMakeLists.txt for the variables. No CUDA source is compiled as one with others,
# whatever CMake would do. Those before 3.31 never join what is CUDA: so here it is called C++,
# which all of them join.
file(REMOVE_RECURSE "${WORK}")
set(targets library program test)
set(project "
cmake_minimum_required(VERSION 3.25)
project(unity LANGUAGES CXX)
set(CMAKE_UNITY_BUILD ON)
include(\"${SOURCES}/cmake/CkptTargets.cmake\")
add_library(GTest::gmock INTERFACE IMPORTED)
add_library(GTest::gtest_main INTERFACE IMPORTED)
enable_testing()
")
foreach(target ${targets})
  set(sources "")
  foreach(name a.cc a.cu b.cc b.cu)
    file(WRITE "${WORK}/${target}_${name}" "")
    string(APPEND sources " ${target}_${name}")
  endforeach()
  string(APPEND project "
ckpt_${target}(of_${target} SOURCES ${sources})
set_source_files_properties(${target}_a.cu ${target}_b.cu PROPERTIES LANGUAGE CXX)
")
endforeach()
file(WRITE "${WORK}/CMakeLists.txt" "${project}")
execute_process(
  COMMAND "${CMAKE_COMMAND}" -S "${WORK}" -B "${WORK}/build" -G "${GENERATOR}"
    "-DCMAKE_CXX_COMPILER=${CXX_COMPILER}"
  RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
if(NOT result EQUAL 0)
  message(FATAL_ERROR "configure: ${result}\n${output}")
endif()

file(READ "${WORK}/build/compile_commands.json" commands)
string(REGEX MATCHALL "-o [^ ]*" objects "${commands}")
foreach(target ${targets})
  foreach(name a.cu b.cu)
    if(NOT objects MATCHES "of_${target}\\.dir/${target}_${name}\\.o")
      message(FATAL_ERROR "ckpt_${target}: ${name} is not compiled by itself: ${objects}")
    endif()
  endforeach()
  if(NOT objects MATCHES "of_${target}\\.dir/Unity/" OR objects MATCHES "${target}_a\\.cc")
    message(FATAL_ERROR "ckpt_${target}: nothing is joined, so nothing is shown: ${objects}")
  endif()
endforeach()
