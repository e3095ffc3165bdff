# How every target is compiled: warnings, sanitizers, linker and compiler cache.
add_library(trainer_warnings INTERFACE)
target_compile_options(trainer_warnings INTERFACE -Wall -Wextra -Werror)

# Messages of failed checks name source files, by a path that is the same wherever the program is built.
add_compile_options(-fmacro-prefix-map=${CMAKE_SOURCE_DIR}/= -fmacro-prefix-map=${TORCH_DIR}/=torch/)

find_package(OpenMP REQUIRED)
# Linked by flag, not by file: LibTorch has its own libgomp, and CMake warns if two folders contain one.
add_library(trainer_openmp INTERFACE)
target_compile_options(trainer_openmp INTERFACE ${OpenMP_CXX_FLAGS})
target_link_options(trainer_openmp INTERFACE ${OpenMP_CXX_FLAGS})

find_program(MOLD mold)
if(MOLD)
  add_link_options(-fuse-ld=mold)
endif()
find_program(CCACHE ccache)
if(CCACHE)
  # ccache requires this sloppiness with precompiled headers. In depend mode it takes the includes from the compiler
  # instead of preprocessing first, which would load the precompiled header (500 MB) twice.
  set(CMAKE_CXX_COMPILER_LAUNCHER
    ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros CCACHE_DEPEND=1 ${CCACHE})
  add_compile_options(-fpch-preprocess)
endif()

if(TRAINER_SANITIZE)
  add_compile_options(-fsanitize=address,undefined -fno-omit-frame-pointer -g1 -O1)  # -O1: half the time to compile
  # These checks, most of them of each reference and member, double the time to compile. AddressSanitizer finds null
  # pointers and what lies outside of an object; misaligned addresses and wrong types of objects are not looked for.
  add_compile_options(-fno-sanitize=null,alignment,object-size,vptr)
  # g++ 12 warns about uninitialized values in <regex>, only with sanitizers
  add_compile_options(-Wno-maybe-uninitialized)
  add_link_options(-fsanitize=address,undefined)
endif()
