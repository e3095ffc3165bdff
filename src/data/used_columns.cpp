#include "data/used_columns.h"

#include "data/fields.h"

namespace trainer {

namespace {

UsedColumns columns_of_texts(const DataConfig& config) {
  UsedColumns used;
  const bool named = !config.input.empty() || !config.target.empty();
  const bool text = config.kind == DataKind::text;
  if (!named && !text && (config.kind == DataKind::chat || config.kind == DataKind::automatic))
    return {{"messages"}, {"tools", "functions", "chat_template_kwargs", "label", "kto_tag"}};
  if (config.input.empty() || (config.target.empty() && !text)) return used;
  used.columns = TextTemplate::parse(config.input, "data.input").fields();
  if (!config.target.empty()) {
    const std::vector<std::string> more = TextTemplate::parse(config.target, "data.target").fields();
    used.columns.insert(used.columns.end(), more.begin(), more.end());
  }
  return used;
}

}  // namespace

UsedColumns used_columns(const DataConfig& config) {
  UsedColumns used = columns_of_texts(config);
  if (!config.loss_weight.empty() && !used.columns.empty()) used.columns.push_back(config.loss_weight);
  return used;
}

}  // namespace trainer
