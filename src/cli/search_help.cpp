#include "cli/search_help.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstddef>
#include <map>
#include <string_view>
#include <utility>

namespace trainer::cli {
namespace {

using Words = std::vector<std::string>;

// What people call a thing, and the words that the pages have for it; the first are the likeliest.
const std::multimap<std::string, std::string> kSynonyms{
    {"4bit", "nf4"},
    {"4bit", "quantize"},
    {"8bit", "8 bits"},
    {"8bit", "fp8"},
    {"abort", "signals"},
    {"accelerate", "several gpus"},
    {"accumulation", "effective batch"},
    {"adam", "adamw"},
    {"amp", "bf16"},
    {"batch", "batch size"},
    {"beam", "num beams"},
    {"bitsandbytes", "nf4"},
    {"bnb", "nf4"},
    {"cancel", "signals"},
    {"ckpt", "checkpoint"},
    {"colab", "notebook"},
    {"container", "docker"},
    {"converge", "loss"},
    {"crash", "out of memory"},
    {"crash", "device fault"},
    {"csv", "sources"},
    {"ctrl", "signals"},
    {"cuda", "gpu"},
    {"curve", "tensorboard"},
    {"dashboard", "the page"},
    {"dataset", "data"},
    {"ddp", "several gpus"},
    {"deepspeed", "several gpus"},
    {"determinism", "repeatable"},
    {"deterministic", "repeatable"},
    {"diverge", "nan"},
    {"download", "downloads"},
    {"dpo", "preferences"},
    {"early", "early stopping"},
    {"epoch", "num train epochs"},
    {"epochs", "num train epochs"},
    {"eval", "evaluation"},
    {"exploding", "nan"},
    {"fast", "speed"},
    {"finetune", "from rows to a chat"},
    {"forget", "base model"},
    {"fsdp", "several gpus"},
    {"gguf", "gguf"},
    {"gibberish", "base model"},
    {"gpus", "several gpus"},
    {"gradients", "gradient"},
    {"grpo", "what is not here"},
    {"hf", "hugging face"},
    {"huggingface", "hugging face"},
    {"inf", "nan"},
    {"inference", "generate"},
    {"infinite", "nan"},
    {"install", "installing"},
    {"interrupt", "signals"},
    {"jsonl", "sources"},
    {"jupyter", "notebook"},
    {"kill", "signals"},
    {"killed", "signals"},
    {"llama.cpp", "gguf"},
    {"linux", "installing"},
    {"lm", "benchmark"},
    {"lr", "learning rate"},
    {"macos", "mac"},
    {"mlflow", "mlflow"},
    {"multi", "several"},
    {"multigpu", "several gpus"},
    {"nohup", "ssh"},
    {"ollama", "gguf"},
    {"ollama", "export"},
    {"oom", "out of memory"},
    {"overfit", "early stopping"},
    {"overfitting", "early stopping"},
    {"parquet", "parquet"},
    {"pause", "signals"},
    {"peft", "adapters"},
    {"perplexity", "scores"},
    {"pip", "with pip"},
    {"ppo", "what is not here"},
    {"precision", "bf16"},
    {"python", "notebook"},
    {"qlora", "quantize"},
    {"quantization", "4 bits"},
    {"quantisation", "4 bits"},
    {"ram", "memory"},
    {"reproducible", "repeatable"},
    {"requirements", "needs"},
    {"restart", "resume"},
    {"rlhf", "what is not here"},
    {"sampling", "how tokens are chosen"},
    {"save", "checkpoint"},
    {"schedule", "lr scheduler type"},
    {"scheduler", "lr scheduler type"},
    {"screen", "ssh"},
    {"segfault", "internal error"},
    {"sft", "conversations"},
    {"sigterm", "signals"},
    {"slow", "speed"},
    {"stopping", "stop"},
    {"sweep", "learning rate"},
    {"temperature", "how tokens are chosen"},
    {"template", "chat template"},
    {"token", "tokens"},
    {"tmux", "ssh"},
    {"trl", "hugging face trainer"},
    {"truncated", "lengths"},
    {"truncation", "lengths"},
    {"unsloth", "coming from another trainer"},
    {"validation", "evaluation"},
    {"vllm", "exports"},
    {"vocab", "tokens"},
    {"vram", "fit my gpu"},
    {"vram", "memory"},
    {"wandb", "weights biases"},
    {"wsl", "windows"},
    {"zero", "several gpus"},
};

// What a question has besides what it asks for.
bool is_filler(const std::string& word) {
  static const Words kFillers{"a",     "an",   "the", "is",   "are",  "do",  "does", "how",  "what", "why",
                              "which", "my",   "i",   "it",   "to",   "in",  "of",   "for",  "and",  "or",
                              "on",    "with", "me",  "much", "many", "can", "did",  "when", "where"};
  return std::ranges::find(kFillers, word) != kFillers.end();
}

// Lower-case words; those of a key are separate words: lora_alpha is lora and alpha.
Words words_of_text(std::string_view text) {
  Words words(1);
  for (const unsigned char c : text) {
    // The bytes of a letter that is not ASCII do not end a word.
    if (std::isalnum(c) != 0 || c >= 0x80) {
      words.back() += static_cast<char>(std::tolower(c));
    } else if (!words.back().empty()) {
      words.emplace_back();
    }
  }
  if (words.back().empty()) words.pop_back();
  return words;
}

// "checkpoint" and "checkpoints", "resume" and "resuming".
bool is_same_word(const std::string& a, const std::string& b) {
  constexpr size_t kShortest = 4, kEnding = 3;
  const std::string &shorter = a.size() < b.size() ? a : b, &longer = a.size() < b.size() ? b : a;
  if (longer == shorter || longer == shorter + "s") return true;
  const auto starts = [&](const std::string& root) {
    return root.size() >= kShortest && longer.starts_with(root) && longer.size() - root.size() <= kEnding;
  };
  return starts(shorter) || (shorter.ends_with('e') && starts(shorter.substr(0, shorter.size() - 1)));
}

size_t count_of(const Words& phrase, const Words& text) {
  size_t count = 0;
  for (size_t at = 0; at + phrase.size() <= text.size(); at++) {
    size_t same = 0;
    while (same < phrase.size() && is_same_word(phrase[same], text[at + same])) same++;
    if (same == phrase.size()) count++;
  }
  return count;
}

struct Searched {
  const HelpEntry* entry;
  Words name, title, text;
};

// 0 to 1: a title that says nothing else is worth the most.
double share_of(const Words& phrase, const Words& title) {
  if (count_of(phrase, title) == 0) return 0;
  return 0.5 + 0.5 * static_cast<double>(phrase.size()) / static_cast<double>(title.size());
}

double value_in(const Searched& searched, const Words& phrase) {
  constexpr double kTitle = 6, kName = 6, kText = 2, kUsualLength = 120;
  const auto count = static_cast<double>(count_of(phrase, searched.text));
  const double length = static_cast<double>(searched.text.size()) / kUsualLength;
  return kTitle * share_of(phrase, searched.title) + kName * share_of(phrase, searched.name) +
         kText * count / (count + 0.5 + 0.5 * length);
}

// One word of the question: itself, and what stands for it.
class Term {
 public:
  explicit Term(const std::string& word) {
    phrases_.emplace_back(words_of_text(word), 1.0);
    double weight = 1;
    const auto [first, last] = kSynonyms.equal_range(word);
    for (auto synonym = first; synonym != last; ++synonym)
      phrases_.emplace_back(words_of_text(synonym->second), weight *= 0.8);
  }

  // Several words that belong together.
  explicit Term(const Words& phrase) { phrases_.emplace_back(phrase, 1.0); }

  bool is_named_by(const Searched& searched) const {
    return std::ranges::any_of(phrases_, [&](const auto& phrase) {
      return count_of(phrase.first, searched.title) + count_of(phrase.first, searched.name) > 0;
    });
  }

  double value(const Searched& searched) const {
    double best = 0;
    for (const auto& [phrase, weight] : phrases_) best = std::max(best, weight * value_in(searched, phrase));
    return best;
  }

 private:
  std::vector<std::pair<Words, double>> phrases_;
};

Searched searched_of(const HelpEntry& entry) {
  return {&entry, words_of_text(entry.name), words_of_text(entry.title), words_of_text(entry.text)};
}

// Each word, and all of them as one phrase.
std::vector<Term> terms_of(const std::string& question) {
  Words words = words_of_text(question);
  std::erase_if(words, is_filler);
  std::vector<Term> terms(words.begin(), words.end());
  if (words.size() > 1) terms.emplace_back(words);
  return terms;
}

}  // namespace

bool is_named_by(const HelpEntry& entry, const std::string& question) {
  const std::vector<Term> terms = terms_of(question);
  return !terms.empty() && terms.back().is_named_by(searched_of(entry));
}

std::vector<const HelpEntry*> best_answers(const std::vector<HelpEntry>& entries,
                                           const std::string& question) {
  std::vector<Searched> searched;
  for (const HelpEntry& entry : entries) searched.push_back(searched_of(entry));
  std::vector<double> values(entries.size());
  for (const Term& term : terms_of(question)) {
    std::vector<double> here;
    for (const Searched& one : searched) here.push_back(term.value(one));
    const auto having =
        static_cast<double>(std::ranges::count_if(here, [](double value) { return value > 0; }));
    const double rarity = std::log(1 + static_cast<double>(entries.size()) / (1 + having));
    for (size_t i = 0; i < here.size(); i++) values[i] += rarity * here[i];
  }
  std::vector<std::pair<double, const HelpEntry*>> found;
  for (size_t i = 0; i < entries.size(); i++) {
    if (values[i] > 0) found.emplace_back(values[i] * entries[i].weight, &entries[i]);
  }
  std::ranges::stable_sort(found, std::ranges::greater(), &std::pair<double, const HelpEntry*>::first);
  std::vector<const HelpEntry*> answers;
  for (const auto& [value, entry] : found) answers.push_back(entry);
  return answers;
}

}  // namespace trainer::cli
