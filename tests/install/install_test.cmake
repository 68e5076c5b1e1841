# cmake -P: see CMakeLists.txt for the variables. Fails with the output of the step that failed.
function(run what)
  execute_process(COMMAND ${ARGN}
    RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "${what}: ${result}\n${output}")
  endif()
endfunction()

file(REMOVE_RECURSE "${WORK}")
run("install the client"
  "${CMAKE_COMMAND}" --install "${BUILD}" --prefix "${WORK}/prefix" --component client)
run("install the programs"
  "${CMAKE_COMMAND}" --install "${BUILD}" --prefix "${WORK}/prefix" --component programs)

set(flags "")
if(SANITIZE)
  set(flags "-fsanitize=${SANITIZE}")
endif()
set(configure "${CMAKE_COMMAND}" -S "${STRANGER}" -G "${GENERATOR}"
  "-DCMAKE_PREFIX_PATH=${WORK}/prefix" "-DCMAKE_C_COMPILER=${C_COMPILER}"
  "-DCMAKE_CXX_COMPILER=${CXX_COMPILER}" "-DCMAKE_C_FLAGS=${flags}" "-DCMAKE_CXX_FLAGS=${flags}")
run("configure" ${configure} -B "${WORK}/build")
run("build" "${CMAKE_COMMAND}" --build "${WORK}/build")
run("the C program" "${WORK}/build/stranger_c" "${WORK}/no.sock")
run("the C++ program" "${WORK}/build/stranger_cc" "${WORK}/no.sock")
foreach(program ckptctl ckptd moetrain)
  run("the installed ${program}" "${WORK}/prefix/bin/${program}" --help)
endforeach()

# pkg-config: the prefix that was installed to, and a tree that works where it is staged or moved.
find_program(PKG_CONFIG pkg-config REQUIRED)
function(check_pkg_config tree prefix)
  file(GLOB_RECURSE file "${tree}/*/ckpt.pc")
  cmake_path(GET file PARENT_PATH folder)
  set(ENV{PKG_CONFIG_PATH} "${folder}")
  execute_process(COMMAND "${PKG_CONFIG}" --variable=prefix ckpt
    OUTPUT_VARIABLE found OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(NOT found STREQUAL prefix)
    message(FATAL_ERROR "ckpt.pc in ${tree}: prefix is ${found}, not ${prefix}")
  endif()
  execute_process(COMMAND "${PKG_CONFIG}" --cflags --libs ckpt
    OUTPUT_VARIABLE words OUTPUT_STRIP_TRAILING_WHITESPACE)
  separate_arguments(words UNIX_COMMAND "${words} ${flags}")
  run("the C program, by pkg-config" "${C_COMPILER}" "${STRANGER}/main.c" ${words}
    -o "${WORK}/by_pkg_config")
endfunction()
check_pkg_config("${WORK}/prefix" "${WORK}/prefix")
run("stage the client" "${CMAKE_COMMAND}" -E env "DESTDIR=${WORK}/stage"
  "${CMAKE_COMMAND}" --install "${BUILD}" --prefix /opt/ckptd --component client)
check_pkg_config("${WORK}/stage" /opt/ckptd)
file(RENAME "${WORK}/stage" "${WORK}/moved")
check_pkg_config("${WORK}/moved" /opt/ckptd)

# The unit starts the program that was installed with it, and is one that systemd understands.
set(units "${WORK}/prefix/lib/systemd/system")
file(READ "${units}/ckptd.service" unit)
if(NOT unit MATCHES "\nExecStart=${WORK}/prefix/bin/ckptd ")
  message(FATAL_ERROR "ckptd.service:\n${unit}")
endif()
find_program(SYSTEMD_ANALYZE systemd-analyze)
if(SYSTEMD_ANALYZE)
  execute_process(
    COMMAND "${SYSTEMD_ANALYZE}" verify "${units}/ckptd.service" "${units}/ckptd.socket"
    RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT result EQUAL 0 OR output MATCHES "ckptd\\.(service|socket):")
    message(FATAL_ERROR "systemd-analyze verify: ${result}\n${output}")
  endif()
endif()

# A component is there if it was built; else it is refused with a sentence that names it.
execute_process(COMMAND ${configure} -B "${WORK}/component" -DSTRANGER_COMPONENT=cuda
  RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
string(REGEX REPLACE "[ \n]+" " " output "${output}")
if(CUDA)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "COMPONENTS cuda: ${result}\n${output}")
  endif()
  run("build with the component" "${CMAKE_COMMAND}" --build "${WORK}/component")
  run("the program for GPUs" "${WORK}/component/stranger_cuda" "${WORK}/no.sock")
elseif(result EQUAL 0 OR NOT output MATCHES "built without its component 'cuda'")
  message(FATAL_ERROR "COMPONENTS cuda: ${result}\n${output}")
endif()

# The library needs only libraries of the system, none of the build tree.
execute_process(COMMAND objdump -p "${WORK}/prefix/lib/libckpt.so" OUTPUT_VARIABLE dynamic)
string(REGEX MATCHALL "NEEDED +[^\n]+" needed "${dynamic}")
foreach(line IN LISTS needed)
  if(NOT line MATCHES "lib(isal|stdc\\+\\+|gcc_s|m|c|ld-linux[^.]*|asan|ubsan|tsan)\\.so"
     AND NOT line MATCHES "ld-linux")
    message(FATAL_ERROR "libckpt.so: ${line}")
  endif()
endforeach()
if(NOT needed)
  message(FATAL_ERROR "libckpt.so: objdump said nothing")
endif()
if(dynamic MATCHES "(RPATH|RUNPATH)")
  message(FATAL_ERROR "libckpt.so: has a search path of its own")
endif()
file(REMOVE_RECURSE "${WORK}")
