# cmake --install build --prefix P: the program, the library with its headers and its package for
# find_package(trainer), the presets. What is installed can be moved as a whole.
include(CMakePackageConfigHelpers)
set(package ${CMAKE_INSTALL_LIBDIR}/cmake/trainer)

# LibTorch is looked for where it was at build time (an option of trainer::LibTorch). Other libraries lie next to ours in
# the packages of scripts/package, which take the component `program`.
set_target_properties(trainer_core PROPERTIES EXPORT_NAME trainer INSTALL_RPATH "$ORIGIN")
set_target_properties(trainer PROPERTIES INSTALL_RPATH "$ORIGIN/${library_folder}")
# Else CMake fills the place with colons at build time, which make the loader look in the working directory.
set_target_properties(trainer trainer_core PROPERTIES BUILD_WITH_INSTALL_RPATH ON)
install(TARGETS trainer RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT program)
set_target_properties(trainer_http PROPERTIES BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH "$ORIGIN")
install(TARGETS trainer_http LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT program)
install(TARGETS trainer_core EXPORT trainerTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
# The file lists the public API; scripts/check/public_headers checks that it needs no header outside the list.
set(public_headers cmake/public_headers.txt)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${public_headers})
file(STRINGS ${public_headers} headers)
foreach(header ${headers})
  get_filename_component(folder ${header} DIRECTORY)
  install(FILES include/${header} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/${folder})
endforeach()
install(DIRECTORY configs DESTINATION ${CMAKE_INSTALL_DATADIR}/trainer COMPONENT program)
# Pages for `trainer help`, and what the program writes of itself: manual pages, completion.
install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DATADIR}/trainer COMPONENT program FILES_MATCHING PATTERN "*.md"
  PATTERN dev EXCLUDE)
set(written ${CMAKE_BINARY_DIR}/written)
file(MAKE_DIRECTORY ${written})
add_custom_command(TARGET trainer POST_BUILD VERBATIM
  COMMAND trainer help --man ${written}/man
  COMMAND trainer completion bash > ${written}/trainer
  COMMAND trainer completion zsh > ${written}/_trainer
  COMMAND trainer completion fish > ${written}/trainer.fish)
install(DIRECTORY ${written}/man/ DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT program)
install(FILES ${written}/trainer DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions COMPONENT program)
install(FILES ${written}/_trainer DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions COMPONENT program)
install(FILES ${written}/trainer.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d
  COMPONENT program)
install(PROGRAMS scripts/sync_metrics DESTINATION ${CMAKE_INSTALL_DATADIR}/trainer COMPONENT program)

install(EXPORT trainerTargets NAMESPACE trainer:: DESTINATION ${package})
configure_package_config_file(cmake/trainerConfig.cmake.in trainerConfig.cmake INSTALL_DESTINATION ${package})
write_basic_package_version_file(trainerConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/trainerConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/trainerConfigVersion.cmake
              cmake/LibTorchTarget.cmake DESTINATION ${package})
