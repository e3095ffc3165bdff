// tokenizer.json: an accepted one turns text into ids of its vocabulary, and these back into text.
#include <cstdlib>

#include "trainer/text/tokenizer.h"

#include "fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace trainer;
  fuzz::put("tokenizer.json", fuzz::text_of(data, size));
  fuzz::accept_errors(fuzz::text_of(data, size), [&] {
    const auto tokenizer = load_tokenizer(fuzz::scratch());
    for (const char* text :
         {"", "Hello, world 2024!\n", "gr\u00fcn \u4f60\u597d \U0001f600", "<pad></s><|im_start|> a  b"}) {
      fuzz::accept_errors(fuzz::text_of(data, size), [&] {
        const auto ids = tokenizer->encode(text, true);
        for (int32_t id : ids) {
          if (id < 0 || id >= tokenizer->vocab_size()) std::abort();
        }
        tokenizer->decode(ids, false);
        tokenizer->decode(ids, true);
      });
    }
  });
  return 0;
}
