# Defines the interface target `trainer::LibTorch` for the LibTorch in TORCH_DIR. This file is also installed, for
# projects that use trainer. find_package(Torch) is not used, because that of the CUDA wheel fails if no CUDA toolkit is
# installed (pytorch#73427). Sets LIBTORCH_VERSION (2.11), or LIBTORCH_PROBLEM if the folder does not contain LibTorch.
set(LIBTORCH_PROBLEM "")
set(_header "${TORCH_DIR}/include/torch/headeronly/version.h")
if(NOT EXISTS "${TORCH_DIR}/lib/libtorch_cpu.so" OR NOT EXISTS "${_header}")
  set(LIBTORCH_PROBLEM "LibTorch not found (TORCH_DIR='${TORCH_DIR}')")
  return()
endif()
file(STRINGS "${_header}" _lines REGEX "define TORCH_VERSION_(MAJOR|MINOR) ")
list(TRANSFORM _lines REPLACE "^.* ([0-9]+).*$" "\\1")
list(JOIN _lines "." LIBTORCH_VERSION)

if(NOT TARGET trainer::LibTorch)
  add_library(trainer::LibTorch INTERFACE IMPORTED)
  # Searched after the system's folders: the wheel has its own fmt and protobuf, which clash with Debian's packages.
  target_compile_options(trainer::LibTorch INTERFACE
    "SHELL:-idirafter ${TORCH_DIR}/include" "SHELL:-idirafter ${TORCH_DIR}/include/torch/csrc/api/include")
  target_link_directories(trainer::LibTorch INTERFACE ${TORCH_DIR}/lib)
  target_link_libraries(trainer::LibTorch INTERFACE torch_cpu c10)
  target_link_options(trainer::LibTorch INTERFACE "LINKER:-rpath,${TORCH_DIR}/lib")
endif()
