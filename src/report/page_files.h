// The files in src/report/page, embedded by cmake/Page.cmake.
#pragma once

#include <string_view>

namespace trainer::page_files {

extern const std::string_view html, css, js;

}  // namespace trainer::page_files
