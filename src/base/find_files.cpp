#include "trainer/base/find_files.h"

#include <algorithm>
#include <glob.h>

namespace trainer {
namespace fs = std::filesystem;
namespace {

std::vector<fs::path> files_in(const fs::path& folder, std::span<const std::string_view> endings) {
  std::vector<fs::path> found;
  std::error_code error;
  constexpr auto kOptions =
      fs::directory_options::follow_directory_symlink | fs::directory_options::skip_permission_denied;
  fs::recursive_directory_iterator at(folder, kOptions, error);
  for (; !error && at != fs::recursive_directory_iterator(); at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (name.starts_with('.')) {
      at.disable_recursion_pending();
    } else if (at->is_regular_file(error) && std::ranges::any_of(endings, [&](std::string_view ending) {
                 return name.ends_with(ending);
               })) {
      found.push_back(at->path());
    }
  }
  return found;
}

std::vector<fs::path> matches(const std::string& pattern) {
  glob_t result{};
  std::vector<fs::path> found;
  if (::glob(pattern.c_str(), 0, nullptr, &result) == 0) {
    for (size_t i = 0; i < result.gl_pathc; i++) {
      std::error_code ignored;
      if (!fs::is_directory(result.gl_pathv[i], ignored)) found.emplace_back(result.gl_pathv[i]);
    }
  }
  ::globfree(&result);
  return found;
}

}  // namespace

std::vector<fs::path> find_files(const std::string& path, std::span<const std::string_view> endings) {
  std::error_code ignored;
  std::vector<fs::path> found;
  if (fs::is_directory(path, ignored)) {
    found = files_in(path, endings);
  } else if (fs::exists(path, ignored)) {
    found.emplace_back(path);
  } else if (path.find_first_of("*?[") != std::string::npos) {
    found = matches(path);
  }
  std::ranges::sort(found);  // by bytes, whatever the user's language
  return found;
}

}  // namespace trainer
