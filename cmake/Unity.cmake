# Compiles the files of a folder together, some at a time. Their includes are parsed only once, which takes a third of
# the time of compiling file by file (docs/dev/building.md). TRAINER_UNITY=OFF compiles file by file.
option(TRAINER_UNITY "Compile the files of a folder together" ON)

# unite(TARGET FILES_AT_ONCE SOURCE...). Neighboring files of a folder are compiled together, so that a new file shifts
# only the files after it in its folder.
function(unite target files_at_once)
  if(NOT TRAINER_UNITY)
    return()
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  # GCC takes what a united file defines in an anonymous namespace for something from a header.
  target_compile_options(${target} PRIVATE -Wno-subobject-linkage)
  set(folder "")
  foreach(source ${ARGN})
    get_filename_component(here ${source} DIRECTORY)
    if(NOT here STREQUAL folder)
      set(folder ${here})
      set(count 0)
    endif()
    math(EXPR part "${count} / ${files_at_once}")
    math(EXPR count "${count} + 1")
    file(RELATIVE_PATH name ${CMAKE_SOURCE_DIR} ${folder})
    string(REPLACE "/" "_" name "${name}_${part}")
    set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${name})
  endforeach()
endfunction()
