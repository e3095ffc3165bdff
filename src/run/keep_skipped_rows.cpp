#include "run/keep_skipped_rows.h"

#include <nlohmann/json.hpp>

#include "trainer/base/error.h"
#include "trainer/base/files.h"
#include "trainer/base/log.h"
#include "trainer/base/strings.h"

namespace trainer {
namespace {

void write_rows(const Dataset& data, std::ostream& out) {
  using Json = nlohmann::ordered_json;
  data.for_each_skipped_row([&](const SkippedRow& row) {
    const Json json{{"file", row.file}, {"line", row.line}, {"problem", row.problem}, {"row", row.beginning}};
    out << json.dump(-1, ' ', false, Json::error_handler_t::replace) << '\n';
  });
}

}  // namespace

void keep_skipped_rows(const Dataset& train, const Dataset* eval, const std::filesystem::path& output_dir) {
  const std::filesystem::path file = output_dir / "skipped_rows.jsonl";
  const int64_t rows =
      train.report().malformed.count + (eval != nullptr ? eval->report().malformed.count : 0);
  try {
    if (rows == 0) {
      delete_entry(file);
      return;
    }
    write_atomically(file, [&](std::ostream& out) {
      write_rows(train, out);
      if (eval != nullptr) write_rows(*eval, out);
    });
    log::warning(
        concat(grouped(rows),
               rows == 1 ? " row cannot be used and is skipped: " : " rows cannot be used and are skipped: ",
               file.string()));
  } catch (const FormatError& e) {
    log::warning(concat("the rows that are skipped are not listed: ", e.what()));
  }
}

}  // namespace trainer
