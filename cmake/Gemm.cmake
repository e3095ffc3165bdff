# The layer gemm, the CPU products of our own, can be left out: then MKL and oneDNN multiply everything.
option(TRAINER_GEMM "Multiply on CPUs with this program's own kernels where they are faster" ON)
set(without_gemm_source ${CMAKE_SOURCE_DIR}/src/gemm/left_out/left_out.cpp)

# leave_out_gemm(LIST): with TRAINER_GEMM=OFF, takes the layer's files out of a list of sources.
function(leave_out_gemm sources)
  if(NOT TRAINER_GEMM)
    list(FILTER ${sources} EXCLUDE REGEX "/src/gemm/")
    set(${sources} ${${sources}} PARENT_SCOPE)
  endif()
endfunction()

# link_without_gemm(): the library once more, from the same objects but those of the layer, for e2e.without_gemm.
function(link_without_gemm)
  set(objects "$<TARGET_OBJECTS:trainer_core>" "$<TARGET_OBJECTS:trainer_loops>")
  list(TRANSFORM objects REPLACE "(.+)" "$<FILTER:\\1,EXCLUDE,src.gemm>")
  add_library(trainer_without_gemm SHARED ${objects} ${without_gemm_source})
  target_include_directories(trainer_without_gemm PRIVATE src include)
  target_link_libraries(trainer_without_gemm PRIVATE trainer::LibTorch trainer_openmp simdjson::simdjson ${core_libraries})
  set_target_properties(trainer_without_gemm PROPERTIES LINKER_LANGUAGE CXX OUTPUT_NAME trainer_core
    LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/without_gemm)
endfunction()
