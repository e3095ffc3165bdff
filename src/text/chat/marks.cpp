#include "text/chat/marks.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"
#include "trainer/text/chat_template.h"
#include "trainer/text/conversation.h"

#include "text/chat/row_json.h"

namespace trainer {
namespace {

using Json = nlohmann::ordered_json;

// Marks that are true or false, or 1 or 0.
struct Flag {
  const char* key;
  bool learned;  // what `true` means
};
constexpr std::array<Flag, 6> kFlags{{{"loss", true},       // ms-swift, LLaMA-Factory, XTuner
                                      {"train", true},      // axolotl
                                      {"training", true},   // axolotl
                                      {"trainable", true},  // verl
                                      {"loss_mask", true},
                                      {"masked", false}}};  // torchtune
// Marks that are numbers: that of OpenAI and Mistral, and that of LLaMA-Factory.
constexpr std::array<const char*, 2> kWeights{"weight", "loss_weight"};

// Words in the name of a key that tell of the loss: train_detail, label_mask.
constexpr std::array<std::string_view, 12> kWordsOfMarks{"loss",    "mask",      "masked",   "train",
                                                         "trained", "trainable", "training", "learn",
                                                         "learned", "weight",    "weights",  "supervised"};

std::optional<bool> flag_in(const Json& value) {
  if (value.is_boolean()) return value.get<bool>();
  if (value.is_number() && (value == 0 || value == 1)) return value == 1;
  return std::nullopt;
}

// The words of names like train_detail, train-detail and trainDetail, in lower case.
std::vector<std::string> words_of(std::string_view name) {
  std::vector<std::string> words{""};
  bool after_small = false;
  for (const char c : name) {
    const auto letter = static_cast<unsigned char>(c);
    const bool ends = std::isalpha(letter) == 0, begins = after_small && std::isupper(letter) != 0;
    if (ends || begins) words.emplace_back();
    if (!ends) words.back() += static_cast<char>(std::tolower(letter));
    after_small = std::islower(letter) != 0;
  }
  return words;
}

bool may_be_a_mark(const std::string& key, const Json& value) {
  if (value.is_boolean()) return true;
  if (!value.is_number() && !value.is_structured()) return false;
  return std::ranges::any_of(words_of(key), [](const std::string& word) {
    return std::ranges::find(kWordsOfMarks, word) != kWordsOfMarks.end();
  });
}

// What one mark says.
struct Said {
  const char* key;
  float weight;
};

// The weight in the marks of a message that are numbers.
std::optional<Said> weight_in(const Json& message, const std::string& where) {
  std::optional<Said> said;
  for (const char* key : kWeights) {
    const Json* value = value_of(message, key);
    if (!value) continue;
    if (!value->is_number() || *value < 0 || *value > 1e6)
      throw DataError(concat(where, ": \"", key, "\" is ", one_line(value->dump(), 60),
                             "; it must be a number from 0 (not learned) to 1,000,000"));
    const Said other{key, value->get<float>()};
    if (said && said->weight != other.weight)
      throw DataError(concat(where, ": \"", said->key, "\" and \"", key, "\" contradict each other"));
    said = other;
  }
  return said;
}

constexpr const char* kMaySay = ", which may say what is learned, and is not known";

std::string problem_of(const std::string& where, const std::string& key, const Json& value,
                       const char* problem) {
  return concat(where, ": \"", key, "\" is ", one_line(value.dump(), 60), problem);
}

void erase_marks(Json& object) {
  for (const Flag& flag : kFlags) object.erase(flag.key);
  for (const char* key : kWeights) object.erase(key);
}

}  // namespace

bool is_mark(std::string_view key) {
  return std::ranges::find(kFlags, key, &Flag::key) != kFlags.end() ||
         std::ranges::find(kWeights, key) != kWeights.end();
}

std::vector<std::string> names_of_marks() {
  std::vector<std::string> names(kWeights.begin(), kWeights.end());
  for (const Flag& flag : kFlags) names.emplace_back(flag.key);
  return names;
}

namespace {

// The weight that the marks of a message or a part give, which are removed.
float take_marks_of(Json& message, bool is_question, const std::string& where,
                    std::vector<Conversation::UnknownMark>& unknown) {
  const auto refuse = [&](const std::string& key, const Json& value, const char* problem, bool of_question) {
    unknown.push_back({key, problem_of(where, key, value, problem), of_question});
  };
  std::optional<Said> said = weight_in(message, where);
  const float weight = said ? said->weight : 1;
  bool learned = weight > 0;
  for (const Flag& flag : kFlags) {
    const Json* value = value_of(message, flag.key);
    if (!value) continue;
    const std::optional<bool> is_set = flag_in(*value);
    if (!is_set) {
      refuse(flag.key, *value, "; known are true and false", false);
      continue;
    }
    const bool learns = *is_set == flag.learned;
    if (said && learned != learns)
      throw DataError(concat(where, ": \"", said->key, "\" and \"", flag.key, "\" contradict each other"));
    said = Said{flag.key, 0};
    learned = learns;
    if (learned && is_question)
      refuse(flag.key, *value, ", and only answers of the assistant are learned", true);
  }
  for (const auto& [key, value] : message.items()) {
    if (!is_mark(key) && may_be_a_mark(key, value)) refuse(key, value, kMaySay, false);
  }
  erase_marks(message);
  return learned ? weight : 0;
}

}  // namespace

float take_marks(Json& message, const std::string& where, std::vector<Conversation::UnknownMark>& unknown) {
  return take_marks_of(message, message["role"] != "assistant", where, unknown);
}

std::vector<Conversation::PartWeight> take_marks_of_parts(Json& message, const std::string& where,
                                                          std::vector<Conversation::UnknownMark>& unknown) {
  std::vector<Conversation::PartWeight> weights;
  const auto content = message.find("content");
  if (content == message.end() || !content->is_array()) return weights;
  size_t end = 0;
  for (size_t i = 0; i < content->size(); i++) {
    Json& part = (*content)[i];
    if (!part.is_object()) continue;
    const float weight = take_marks_of(part, /*is_question=*/false,
                                       concat(where, ": part ", i + 1, " of \"content\""), unknown);
    if (part.contains("text") && part["text"].is_string())
      end += part["text"].get_ref<const std::string&>().size();
    weights.push_back({end, weight});
  }
  const bool all_one = std::ranges::all_of(weights, [](const auto& part) { return part.weight == 1; });
  return all_one ? std::vector<Conversation::PartWeight>() : weights;
}

void refuse_unknown_marks(const Conversation& conversation, const ChatTemplate* chat_template,
                          LossOn loss_on) {
  for (const auto& [key, problem, of_question] : conversation.unknown_marks) {
    if (of_question && loss_on == LossOn::everything) continue;
    if (chat_template != nullptr && chat_template->reads(key)) continue;
    throw DataError(concat(problem,
                           "; write \"train\": true or false for what is learned, or pass over such marks: "
                           "data.unknown_marks=ignore"));
  }
}

}  // namespace trainer
