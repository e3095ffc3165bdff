# Embeds pages as text in the program: page_files.cpp, written again when one of their files changes. `parts`: what the page
# of `trainer report` and those of `trainer ui` share (src/report/page). Scripts are put one after the other in the order of
# their names.
set(page_files_source ${CMAKE_BINARY_DIR}/generated/page_files.cpp)
set(_files "")

function(embed_page name)
  file(GLOB files CONFIGURE_DEPENDS ${ARGN})
  set(text "")
  foreach(file ${files})
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
    file(READ ${file} content)
    string(APPEND text "${content}")
  endforeach()
  set(_files "${_files}const std::string_view ${name} = R\"page(${text})page\";\n" PARENT_SCOPE)
endfunction()
embed_page(parts_js src/report/page/[0-9]_*.js)
embed_page(parts_css src/report/page/page.css)
embed_page(report_js src/report/page/report.js)
embed_page(report_html src/report/page/page.html)
embed_page(ui_js src/ui/page/*.js)
embed_page(ui_css src/ui/page/ui.css)
embed_page(ui_html src/ui/page/ui.html)
file(WRITE ${page_files_source}.new
"// Made by cmake/Page.cmake.
#include <string_view>
namespace trainer::page_files {
extern const std::string_view parts_js, parts_css, report_js, report_html, ui_js, ui_css, ui_html;
${_files}}  // namespace trainer::page_files
")
configure_file(${page_files_source}.new ${page_files_source} COPYONLY)
