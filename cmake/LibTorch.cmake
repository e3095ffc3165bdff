# LibTorch as it lies in a torch wheel or a LibTorch archive: an interface target `LibTorch` around its include/ and
# lib/. find_package(Torch) is not used: the CUDA wheel's stops where no CUDA toolkit is installed (pytorch#73427).
# TORCH_DIR: the folder with include/ and lib/. Default: the torch of the active Python.
set(TORCH_DIR "" CACHE PATH "LibTorch: the folder that holds include/ and lib/ (…/site-packages/torch)")
if(NOT TORCH_DIR)
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
  execute_process(
    COMMAND ${Python3_EXECUTABLE} -c
            "import importlib.util as u; s = u.find_spec('torch'); print(s.submodule_search_locations[0] if s else '')"
    OUTPUT_VARIABLE found OUTPUT_STRIP_TRAILING_WHITESPACE)
  set(TORCH_DIR "${found}" CACHE PATH "" FORCE)
endif()
if(NOT EXISTS "${TORCH_DIR}/lib/libtorch_cpu.so")
  message(FATAL_ERROR "LibTorch not found (TORCH_DIR='${TORCH_DIR}'). Run scripts/setup, or pass -DTORCH_DIR=…/site-packages/torch")
endif()
message(STATUS "LibTorch: ${TORCH_DIR}")

add_library(LibTorch INTERFACE)
# Searched after the system's folders: the wheel brings an own fmt and protobuf, which clash with Debian's packages.
target_compile_options(LibTorch INTERFACE
  "SHELL:-idirafter ${TORCH_DIR}/include" "SHELL:-idirafter ${TORCH_DIR}/include/torch/csrc/api/include")
target_link_directories(LibTorch INTERFACE ${TORCH_DIR}/lib)
target_link_libraries(LibTorch INTERFACE torch_cpu c10)
target_link_options(LibTorch INTERFACE "LINKER:-rpath,${TORCH_DIR}/lib")
