# Embeds the GPU kernels (src/*/*.cu) as text in the library: kernel_files.cpp, written again when one of them
# changes. rms_norm.cu becomes trainer::kernel_files::rms_norm.
set(kernel_files_source ${CMAKE_BINARY_DIR}/generated/kernel_files.cpp)
file(GLOB kernel_files CONFIGURE_DEPENDS src/*/*.cu src/*/*.cuh)
set(_files "")
set(_headers "")
foreach(file ${kernel_files})
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
  file(READ ${file} text)
  file(RELATIVE_PATH path ${CMAKE_SOURCE_DIR}/src ${file})
  get_filename_component(stem ${file} NAME_WE)
  if(file MATCHES "cuh$")
    string(APPEND _headers "    {\"${path}\", R\"kernel(${text})kernel\"},\n")
  else()
    string(APPEND _files "extern const KernelFile ${stem};\nconst KernelFile ${stem}{\"${stem}.cu\", R\"kernel(${text})kernel\"};\n")
  endif()
endforeach()
file(WRITE ${kernel_files_source}.new
"// Made by cmake/Kernels.cmake.
#include \"device/kernels.h\"
namespace trainer {
namespace kernel_files {
${_files}}  // namespace kernel_files
static const KernelFile headers[] = {
${_headers}};
std::span<const KernelFile> kernel_headers() { return headers; }
}  // namespace trainer
")
configure_file(${kernel_files_source}.new ${kernel_files_source} COPYONLY)
