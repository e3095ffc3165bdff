# What scripts/package needs beside the program; ninja trainer_packaged trainer_start.
# The library once more, from the same objects: it looks for others beside itself only, and nothing in it depends on
# where it was built.
add_library(trainer_packaged SHARED EXCLUDE_FROM_ALL $<TARGET_OBJECTS:trainer_core>
  $<TARGET_OBJECTS:trainer_loops>)
target_link_directories(trainer_packaged PRIVATE ${TORCH_DIR}/lib)
target_link_libraries(trainer_packaged PRIVATE torch_cpu c10 trainer_openmp simdjson::simdjson ${core_libraries})
target_link_options(trainer_packaged PRIVATE LINKER:-z,defs LINKER:-s)
set_target_properties(trainer_packaged PROPERTIES LINKER_LANGUAGE CXX OUTPUT_NAME trainer_core
  LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/packaged BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH "$ORIGIN")

# What pip puts on the PATH.
add_executable(trainer_start EXCLUDE_FROM_ALL cmake/package/start.cpp)
target_link_libraries(trainer_start PRIVATE trainer_warnings)
target_link_options(trainer_start PRIVATE LINKER:-s)
set_target_properties(trainer_start PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/packaged
  OUTPUT_NAME trainer)
