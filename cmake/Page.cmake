# Embeds the page of `trainer report` (src/report/page) as text in the program: page_files.cpp, written again when one of
# the files changes. The scripts are put one after the other in the order of their names.
set(page_files_source ${CMAKE_BINARY_DIR}/generated/page_files.cpp)
set(_files "")
foreach(kind html css js)
  file(GLOB parts CONFIGURE_DEPENDS src/report/page/*.${kind})
  set(text "")
  foreach(part ${parts})
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${part})
    file(READ ${part} content)
    string(APPEND text "${content}")
  endforeach()
  string(APPEND _files "const std::string_view ${kind} = R\"page(${text})page\";\n")
endforeach()
file(WRITE ${page_files_source}.new
"// Made by cmake/Page.cmake.
#include <string_view>
namespace trainer::page_files {
extern const std::string_view html, css, js;  // as report.cpp declares them
${_files}}  // namespace trainer::page_files
")
configure_file(${page_files_source}.new ${page_files_source} COPYONLY)
