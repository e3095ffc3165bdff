#include "run/reference_file.h"

#include <cstring>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include "trainer/base/error.h"
#include "trainer/base/files.h"
#include "trainer/base/log.h"
#include "trainer/base/strings.h"

#include "base/checksum.h"
#include "data/cache_folder.h"

namespace trainer {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

std::string_view as_bytes(const std::vector<double>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(double)};
}

// The names of the facts in which two sets differ.
std::vector<std::string> different_facts(const ReferenceFile::Facts& kept, const ReferenceFile::Facts& now) {
  std::vector<std::string> names;
  for (const auto& [name, value] : now) {
    const auto found = kept.find(name);
    if (found == kept.end() || found->second != value) names.push_back(name);
  }
  for (const auto& [name, value] : kept)
    if (!now.contains(name)) names.push_back(name);
  return names;
}

}  // namespace

ReferenceFile::ReferenceFile(fs::path path, Facts made_of, std::string what)
    : path_(std::move(path)), made_of_(std::move(made_of)), what_(std::move(what)) {}

// A line of JSON, then the numbers.
std::vector<double> ReferenceFile::read() const {
  std::error_code ignored;
  if (!fs::exists(path_, ignored)) return {};
  try {
    const std::shared_ptr<const MappedFile> file = MappedFile::open(path_);
    const std::string_view all = file->text();
    const size_t end = std::min(all.find('\n'), all.size());
    const Json head = Json::parse(all.substr(0, end), nullptr, /*allow_exceptions=*/false);
    const std::string_view bytes = all.substr(std::min(end + 1, all.size()));
    if (!head.is_object() || !head.contains("made_of") || bytes.size() % sizeof(double) != 0 ||
        head.value("xxh3", "") != checksum(bytes)) {
      log::warning(concat(path_.string(), ": is damaged; ", what_, " are computed again"));
      return {};
    }
    const std::vector<std::string> other = different_facts(head["made_of"].get<Facts>(), made_of_);
    if (!other.empty()) {
      log::warning(concat(path_.string(), ": no longer fits, because these have changed: ", join(other), "; ",
                          what_, " are computed again"));
      return {};
    }
    std::vector<double> values(bytes.size() / sizeof(double));
    if (!values.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
    mark_used(path_);
    return values;
  } catch (const FormatError& error) {
    log::warning(concat(error.what(), "; ", what_, " are computed again"));
  } catch (const Json::exception&) {
    log::warning(concat(path_.string(), ": is damaged; ", what_, " are computed again"));
  }
  return {};
}

void ReferenceFile::write(const std::vector<double>& values) {
  if (cannot_be_written_) return;
  const Json head{{"made_of", made_of_}, {"xxh3", checksum(as_bytes(values))}};
  try {
    write_to_cache(path_, [&](std::ostream& out) {
      out << head.dump(-1, ' ', false, Json::error_handler_t::replace) << '\n' << as_bytes(values);
    });
  } catch (const FormatError& error) {
    cannot_be_written_ = true;
    log::warning(concat(what_, " are not kept, so a run that resumes computes them again: ", error.what(),
                        "; set data.cache to another folder"));
  }
}

}  // namespace trainer
