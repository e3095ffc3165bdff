# Finds LibTorch in a torch wheel or a LibTorch archive.
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
include(LibTorchTarget)
if(LIBTORCH_PROBLEM)
  message(FATAL_ERROR "${LIBTORCH_PROBLEM}. Run scripts/setup, or pass -DTORCH_DIR=…/site-packages/torch")
endif()
message(STATUS "LibTorch ${LIBTORCH_VERSION}: ${TORCH_DIR}")
