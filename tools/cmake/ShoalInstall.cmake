# What is installed, how others find it, and the Debian packages. Components are the packages: libshoal, libshoal-dev, shoal.
include(CMakePackageConfigHelpers)

# find_package(shoal): targets shoal::shoal, shoal::vision, shoal::engine, shoal::predict.
set(config_dir ${CMAKE_INSTALL_LIBDIR}/cmake/shoal)
install(EXPORT shoalTargets NAMESPACE shoal:: DESTINATION ${config_dir} COMPONENT libshoal-dev)
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/shoalConfig.cmake.in shoalConfig.cmake INSTALL_DESTINATION ${config_dir})
write_basic_package_version_file(shoalConfigVersion.cmake COMPATIBILITY SameMinorVersion)  # below 1.0 a minor version may break
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/shoalConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/shoalConfigVersion.cmake
  DESTINATION ${config_dir} COMPONENT libshoal-dev)

# pkg-config: shoal, shoal-vision, shoal-engine, shoal_predict. Paths are relative to the file, so the installed tree may be moved.
set(pc_dir ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
file(RELATIVE_PATH pc_prefix /${pc_dir} /)
function(shoal_pkg_config pc_name pc_description pc_requires)
  configure_file(${CMAKE_SOURCE_DIR}/tools/cmake/shoal.pc.in ${pc_name}.pc @ONLY)
  install(FILES ${CMAKE_CURRENT_BINARY_DIR}/${pc_name}.pc DESTINATION ${pc_dir} COMPONENT libshoal-dev)
endfunction()
shoal_pkg_config(shoal "Client of the Shoal inference pool" "")
shoal_pkg_config(shoal-vision "Pictures in, class names and boxes out" "shoal = ${PROJECT_VERSION}")
shoal_pkg_config(shoal-engine "Shoal's executor in the calling process" "shoal = ${PROJECT_VERSION}")
shoal_pkg_config(shoal_predict "MXNet's C predict API on Shoal" "")

# The model that ships, to try things out.
install(DIRECTORY tools/shapes/model/ DESTINATION ${CMAKE_INSTALL_DATADIR}/shoal/models/shapes COMPONENT shoal)
install(DIRECTORY tools/shapes/pictures DESTINATION ${CMAKE_INSTALL_DATADIR}/shoal COMPONENT shoal)
install(FILES client/examples/hello.c client/examples/multi_threaded_inference.c client/examples/predict.cpp client/vision/examples/classify_folder.cpp
  client/vision/examples/detect.cpp client/predict/examples/mxnet_predict.cpp DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/libshoal-dev/examples
  COMPONENT libshoal-dev)

# A service of systemd, and the user it runs as.
configure_file(tools/systemd/shoald.service.in shoald.service @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/shoald.service DESTINATION lib/systemd/system COMPONENT shoal)
install(FILES tools/systemd/shoal.conf DESTINATION lib/sysusers.d COMPONENT shoal)

# Manual pages: the text of --help, compressed as Debian wants it.
function(shoal_man_page target section)
  set(page ${CMAKE_CURRENT_BINARY_DIR}/man/$<TARGET_FILE_NAME:${target}>.${section})
  set(stamp ${CMAKE_CURRENT_BINARY_DIR}/man/${target}.stamp)
  add_custom_command(OUTPUT ${stamp} DEPENDS ${target} ${CMAKE_SOURCE_DIR}/tools/make-man
    COMMAND ${CMAKE_SOURCE_DIR}/tools/make-man $<TARGET_FILE:${target}> ${section} ${page}
    COMMAND gzip -9nkf ${page}
    COMMAND ${CMAKE_COMMAND} -E touch ${stamp}
    COMMENT "Manual page of ${target}" VERBATIM)
  add_custom_target(man_${target} ALL DEPENDS ${stamp})
  install(FILES ${page}.gz DESTINATION ${CMAKE_INSTALL_MANDIR}/man${section} COMPONENT shoal)
endfunction()
shoal_man_page(shoal_tool 1)
shoal_man_page(shoald 8)

# What shells complete. Debian's zsh looks for what packages bring in vendor-completions, others in site-functions.
set(completions ${CMAKE_CURRENT_BINARY_DIR}/completions)
add_custom_command(OUTPUT ${completions}/shoal ${completions}/_shoal DEPENDS shoal_tool
  COMMAND ${CMAKE_COMMAND} -E make_directory ${completions}
  COMMAND shoal_tool completion bash > ${completions}/shoal
  COMMAND shoal_tool completion zsh > ${completions}/_shoal
  COMMENT "Completions for bash and zsh")
add_custom_target(completions ALL DEPENDS ${completions}/shoal)
foreach(program IN ITEMS shoal shoald)  # bash looks for a file of the program's name, and this one is for both
  install(FILES ${completions}/shoal DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME ${program} COMPONENT shoal)
endforeach()
foreach(directory IN ITEMS site-functions vendor-completions)
  install(FILES ${completions}/_shoal DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/${directory} COMPONENT shoal)
endforeach()

# Debian packages: cpack, or cmake --workflow --preset package.
set(debian_dir ${CMAKE_CURRENT_LIST_DIR}/debian)
set(packages libshoal libshoal-dev shoal)
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "")  # each package has its own, the first line of its description
set(CPACK_COMPONENTS_ALL ${packages})
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
set(CPACK_OUTPUT_FILE_PREFIX ${CMAKE_BINARY_DIR}/packages)
set(CPACK_PACKAGE_CONTACT "The Shoal authors <shoal@localhost>")
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_COMPRESSION_TYPE xz)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${CMAKE_BINARY_DIR}/lib)  # libshoal.so, which the other libraries link
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS_POLICY ">=")

set(CPACK_DEBIAN_LIBSHOAL_PACKAGE_NAME libshoal)
set(CPACK_DEBIAN_LIBSHOAL_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_LIBSHOAL_PACKAGE_CONTROL_EXTRA ${debian_dir}/triggers)
set(CPACK_COMPONENT_LIBSHOAL_DESCRIPTION "client libraries of the Shoal inference pool
Shoal serves neural-network models from worker processes that share one copy
of the weights. libshoal submits requests to the local daemon, libshoal-vision
classifies pictures and finds objects in them, libshoal-engine runs a model in
the calling process, and libshoal_predict has the functions of MXNet's C
predict API.")
set(CPACK_DEBIAN_LIBSHOAL-DEV_PACKAGE_NAME libshoal-dev)
set(CPACK_DEBIAN_LIBSHOAL-DEV_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_LIBSHOAL-DEV_PACKAGE_DEPENDS "libshoal (= ${PROJECT_VERSION})")
set(CPACK_COMPONENT_LIBSHOAL-DEV_DESCRIPTION "headers for programs that use the Shoal inference pool
Headers, CMake and pkg-config files for libshoal, libshoal-vision,
libshoal-engine and libshoal_predict.")
set(CPACK_DEBIAN_SHOAL_PACKAGE_NAME shoal)
set(CPACK_DEBIAN_SHOAL_PACKAGE_SECTION science)
set(CPACK_DEBIAN_SHOAL_PACKAGE_RECOMMENDS ca-certificates)  # models from https://
set(CPACK_DEBIAN_SHOAL_PACKAGE_CONTROL_EXTRA ${debian_dir}/postinst ${debian_dir}/prerm ${debian_dir}/postrm)
set(CPACK_COMPONENT_SHOAL_DESCRIPTION "pool of inference workers that share one copy of the weights
The daemon shoald loads MXNet checkpoints into shared memory, forks worker
processes from that state and routes requests to them; a crash stays inside
one worker. The command shoal looks into checkpoints, runs them, and uses what
the daemon serves. A small classifier of drawn shapes is included.")

# What Debian's policy wants of each package.
string(TIMESTAMP package_date "%a, %d %b %Y 00:00:00 +0000" UTC)
configure_file(${debian_dir}/changelog.in debian/changelog @ONLY)
add_custom_command(OUTPUT debian/changelog.gz DEPENDS ${CMAKE_CURRENT_BINARY_DIR}/debian/changelog
  COMMAND gzip -9nkf ${CMAKE_CURRENT_BINARY_DIR}/debian/changelog)
add_custom_target(debian_changelog ALL DEPENDS debian/changelog.gz)
foreach(package IN LISTS packages)
  set(doc_dir ${CMAKE_INSTALL_DATADIR}/doc/${package})
  install(FILES ${debian_dir}/copyright DESTINATION ${doc_dir} RENAME copyright COMPONENT ${package})
  install(FILES ${CMAKE_CURRENT_BINARY_DIR}/debian/changelog.gz DESTINATION ${doc_dir} COMPONENT ${package})
endforeach()
install(FILES ${debian_dir}/libshoal.lintian-overrides DESTINATION ${CMAKE_INSTALL_DATADIR}/lintian/overrides RENAME libshoal
  COMPONENT libshoal)
include(CPack)
