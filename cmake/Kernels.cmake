# Embeds the GPU kernels (src/*/*.cu) as text in the library: kernel_files.cpp, written again when one of them
# changes. kernel_file("rms_norm") finds rms_norm.cu.
set(kernel_files_source ${CMAKE_BINARY_DIR}/generated/kernel_files.cpp)
file(GLOB kernel_files CONFIGURE_DEPENDS src/*/*.cu src/*/*.cuh)
set(_files "")
set(_headers "")
foreach(file ${kernel_files})
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
  file(READ ${file} text)
  file(RELATIVE_PATH path ${CMAKE_SOURCE_DIR}/src ${file})
  get_filename_component(name ${file} NAME)
  if(file MATCHES "cuh$")
    string(APPEND _headers "    {\"${path}\", R\"kernel(${text})kernel\"},\n")
  else()
    string(APPEND _files "    {\"${name}\", R\"kernel(${text})kernel\"},\n")
  endif()
endforeach()
file(WRITE ${kernel_files_source}.new
"// Made by cmake/Kernels.cmake.
#include \"device/kernels.h\"
namespace trainer {
static const KernelFile files[] = {
${_files}};
static const KernelFile headers[] = {
${_headers}};
std::span<const KernelFile> kernel_files() { return files; }
std::span<const KernelFile> kernel_headers() { return headers; }
}  // namespace trainer
")
configure_file(${kernel_files_source}.new ${kernel_files_source} COPYONLY)
