# Install rules: files of `cmake --install`, and the package for find_package(ckptd). Included last,
# because all targets must exist.
#
#   client    lib/libckpt.so* (libckpt_cuda.so*)  include/ckpt/  lib/cmake/ckptd/  lib/pkgconfig/
#   programs  bin/ckptd  bin/ckptctl  bin/moetrain  lib/systemd/system/ckptd.{service,socket}
#             lib/sysusers.d/
include(CMakePackageConfigHelpers)
set(ckpt_package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/ckptd")

install(TARGETS ckpt EXPORT ckptd-targets
  LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT client NAMELINK_COMPONENT client)
install(DIRECTORY client/include/ckpt DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}" COMPONENT client)
install(EXPORT ckptd-targets NAMESPACE ckptd:: DESTINATION "${ckpt_package_dir}" COMPONENT client)

if(CKPT_CUDA)  # find_package(ckptd COMPONENTS cuda)
  install(TARGETS ckpt_cuda EXPORT ckptd-cuda-targets
    LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT client NAMELINK_COMPONENT client)
  install(EXPORT ckptd-cuda-targets NAMESPACE ckptd:: DESTINATION "${ckpt_package_dir}"
    COMPONENT client)
endif()

configure_package_config_file(client/cmake/ckptd-config.cmake.in
  "${PROJECT_BINARY_DIR}/client/ckptd-config.cmake" INSTALL_DESTINATION "${ckpt_package_dir}")
write_basic_package_version_file("${PROJECT_BINARY_DIR}/client/ckptd-config-version.cmake"
  COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/client/ckptd-config.cmake"
              "${PROJECT_BINARY_DIR}/client/ckptd-config-version.cmake"
  DESTINATION "${ckpt_package_dir}" COMPONENT client)
# The prefix is known when `cmake --install --prefix` runs, not before. Folders are relative to the
# file's own place, so a staged (DESTDIR) or moved tree works too.
set(pc_file "${PROJECT_BINARY_DIR}/client/ckpt.pc")
file(RELATIVE_PATH pc_to_include
  "${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig" "${CMAKE_INSTALL_FULL_INCLUDEDIR}")
install(CODE "
  set(PROJECT_VERSION \"${PROJECT_VERSION}\")
  set(CKPT_PREFIX \"\${CMAKE_INSTALL_PREFIX}\")
  set(ckpt_pc_to_include \"${pc_to_include}\")
  configure_file(\"${PROJECT_SOURCE_DIR}/client/cmake/ckpt.pc.in\" \"${pc_file}\" @ONLY)"
  COMPONENT client)
install(FILES "${pc_file}" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig" COMPONENT client)

file(RELATIVE_PATH bin_to_lib "${CMAKE_INSTALL_FULL_BINDIR}" "${CMAKE_INSTALL_FULL_LIBDIR}")
foreach(program ckptctl ckptd moetrain)
  if(TARGET ${program})
    set_target_properties(${program} PROPERTIES
      INSTALL_RPATH "$ORIGIN/${bin_to_lib}"
      INSTALL_RPATH_USE_LINK_PATH ${CKPT_CUDA}) # the loader seldom finds the CUDA run time
    install(TARGETS ${program} RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}" COMPONENT programs)
  endif()
endforeach()

if(TARGET ckptd)
  # The unit names the installed program. The folder is always "lib": systemd looks nowhere else,
  # whatever the platform's library folder is.
  set(unit "${PROJECT_BINARY_DIR}/ckptd/systemd/ckptd.service")
  install(CODE "
    set(CKPTD_PROGRAM \"\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_BINDIR}/ckptd\")
    configure_file(\"${PROJECT_SOURCE_DIR}/ckptd/systemd/ckptd.service.in\" \"${unit}\" @ONLY)"
    COMPONENT programs)
  install(FILES "${unit}" ckptd/systemd/ckptd.socket
    DESTINATION lib/systemd/system COMPONENT programs)
  install(FILES ckptd/systemd/sysusers.conf DESTINATION lib/sysusers.d RENAME ckptd.conf
    COMPONENT programs)
endif()
