#include "commands/warn_of_length.h"

#include "trainer/base/log.h"
#include "trainer/base/strings.h"
#include "trainer/formats/model_directory.h"

namespace trainer {

void warn_of_length(const Model& model, const std::vector<int32_t>& prompt, const std::string& what) {
  const int64_t positions =
      model.encoder_decoder() ? 0 : config_int(model.config(), "max_position_embeddings", 0);
  if (positions == 0 || static_cast<int64_t>(prompt.size()) < positions) return;
  log::warning(concat(what, " has ", prompt.size(), " tokens; the model was made for ", positions,
                      " positions (max_position_embeddings), so do not expect a sensible answer"));
}

}  // namespace trainer
