// A file of rows, as JSON and as a table: every row that is found is parsed, and its fields are read as text.
#include <string>

#include <nlohmann/json.hpp>

#include "trainer/config/config.h"

#include "data/fields.h"
#include "data/row_file.h"
#include "data/row_parser.h"
#include "fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace trainer;
  const std::string_view text = fuzz::text_of(data, size);
  for (const char* file_name : {"rows.jsonl", "rows.csv"}) {
    const auto path = fuzz::put(file_name, text);
    fuzz::accept_errors(text, [&] {
      const RowFile file = RowFile::open(path, path);
      RowParser parser;
      RowScanner scanner(file);
      for (RowSpan row{}; scanner.next(row);) {
        file.place(row.offset);
        fuzz::accept_errors(text, [&] {
          file.parse(parser, row);
          const std::vector<std::string> names = parser.fields();
          for (const std::string& name : names) fuzz::accept_errors(text, [&] { parser.text(name); });
          parser.json();
          const Fields fields = choose_fields(DataConfig(), names, row.offset % 2 == 0);
          TextTemplate::parse(fields.input, "data.input").apply(parser);
        });
      }
    });
  }
  return 0;
}
