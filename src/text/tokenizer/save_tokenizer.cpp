#include <nlohmann/json.hpp>

#include "trainer/base/files.h"
#include "trainer/formats/model_directory.h"

#include "formats/json_file.h"
#include "text/tokenizer/file_tokenizer.h"

namespace trainer {
namespace {

// Keeps the order of the members, so that a file changes only where tokens are added.
using Json = nlohmann::ordered_json;

Json flags_of(const AddedToken& token) {
  return {{"content", token.content}, {"single_word", token.single_word}, {"lstrip", token.lstrip},
          {"rstrip", token.rstrip},   {"normalized", token.normalized},   {"special", token.special}};
}

Json token_list(const AddedTokens& added) {
  Json list = Json::array();
  for (const auto& [id, token] : added.all()) {
    Json item{{"id", id}};
    item.update(flags_of(token));
    list.push_back(std::move(item));
  }
  return list;
}

Json tokens_by_id(const AddedTokens& added) {
  Json tokens = Json::object();
  for (const auto& [id, token] : added.all()) tokens[std::to_string(id)] = flags_of(token);
  return tokens;
}

void set_member(const std::filesystem::path& path, const char* key, Json value) {
  Json file = std::filesystem::exists(path) ? parse_ordered_json(read_file(path)) : Json::object();
  file[key] = std::move(value);
  write_atomically(path, file.dump(2) + "\n");
}

}  // namespace

void save_tokenizer(const std::filesystem::path& from, const std::vector<std::string>& added,
                    const std::filesystem::path& to) {
  const std::filesystem::path source = tokenizer_directory(from);
  const auto tokenizer = load_file_tokenizer(source);
  tokenizer->add_tokens(added);
  copy_tokenizer_files(source, to);
  if (added.empty()) return;
  if (std::filesystem::exists(to / "tokenizer.json"))
    set_member(to / "tokenizer.json", "added_tokens", token_list(tokenizer->added_tokens()));
  set_member(to / "tokenizer_config.json", "added_tokens_decoder", tokens_by_id(tokenizer->added_tokens()));
}

}  // namespace trainer
