# What `cmake --install` lays out, and what find_package(ckptd) finds there. Included last, when all
# targets are known.
#
#   client    lib/libckpt.so* (libckpt_cuda.so*)  include/ckpt/  lib/cmake/ckptd/  lib/pkgconfig/
#   programs  bin/ckptd  bin/ckptctl  lib/systemd/system/ckptd.{service,socket}  lib/sysusers.d/
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
configure_file(client/cmake/ckpt.pc.in "${PROJECT_BINARY_DIR}/client/ckpt.pc" @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/client/ckptd-config.cmake"
              "${PROJECT_BINARY_DIR}/client/ckptd-config-version.cmake"
  DESTINATION "${ckpt_package_dir}" COMPONENT client)
install(FILES "${PROJECT_BINARY_DIR}/client/ckpt.pc"
  DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig" COMPONENT client)

foreach(program ckptctl ckptd)
  if(TARGET ${program})
    set_target_properties(${program} PROPERTIES
      INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}")
    install(TARGETS ${program} RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}" COMPONENT programs)
  endif()
endforeach()

if(TARGET ckptd)
  # The unit names the program where it is installed. Always "lib": systemd looks nowhere else,
  # however libraries are laid out.
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
