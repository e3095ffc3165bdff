// A file of JSON rows: every row that is found is parsed, and its fields are texts.
#include <string>

#include "trainer/config/config.h"

#include "data/fields.h"
#include "data/row_file.h"
#include "data/row_parser.h"
#include "fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace trainer;
  const auto path = fuzz::put("rows.jsonl", fuzz::text_of(data, size));
  fuzz::accept_errors([&] {
    const RowFile file = RowFile::open(path);
    RowParser parser;
    for (int64_t i = 0; i < file.size(); i++) {
      file.origin(i);
      fuzz::accept_errors([&] {
        parser.parse(file.row(i), file.readable_after(i));
        const std::vector<std::string> names = parser.fields();
        for (const std::string& name : names) fuzz::accept_errors([&] { parser.text(name); });
        const Fields fields = choose_fields(DataConfig(), names, i % 2 == 0);
        TextTemplate::parse(fields.input, "data.input").apply(parser);
      });
    }
  });
  return 0;
}
