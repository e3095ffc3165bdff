// The keys of other trainers, what they are here, and what is said of a key that does not exist.
#pragma once

#include <ostream>
#include <span>
#include <string>
#include <vector>

namespace trainer::config {

class GivenKeys;
class ImportedSettings;

enum class Program { hugging_face, llama_factory, axolotl, torchtune };  // Hugging Face with PEFT and TRL

struct ForeignKey {
  Program program;
  // Names that mean the same, in lower case: "lora_r, rank". With their section ("optimizer.lr") where it is
  // a part of the name there.
  const char* theirs;
  const char* ours;  // "lora.r"; "data.loss_on: everything" for a switch; "" if there is nothing of the kind
  const char* note = "";  // replaces the standard sentence to someone who has written the key here
  // How import-config takes the key from a file of theirs; nullptr: the value as it stands, or as in `ours`;
  // left out if there is a note, or nothing of the kind.
  void (*convert)(GivenKeys& keys, const std::string& name, const std::string& ours,
                  ImportedSettings& settings) = nullptr;

  std::vector<std::string> names() const;
  bool is_value() const { return std::string(ours).find(": ") != std::string::npos; }
  std::string key() const { return std::string(ours).substr(0, std::string(ours).find(": ")); }
  std::string value() const { return is_value() ? std::string(ours).substr(key().size() + 2) : ""; }
};

std::span<const ForeignKey> foreign_keys();
// Returns the row of a name in lower case; nullptr if it is not known.
const ForeignKey* find_foreign_key(const std::string& name);

// "unknown key; here it is called lora.r", to someone who has written the key here.
std::string answer_to(const ForeignKey& key);
// The same for someone who has written it there.
std::string reason_of(const ForeignKey& key);

// "unknown key; did you mean training.batch_size?", or what a foreign or later name is here.
std::string unknown_key(const std::string& section, const std::string& name);

// What a value that other trainers have for a section or a key means here; empty: nothing is known of it.
std::string advice_for_value(const std::string& name, const std::string& value);

// Writes the tables of docs/coming-from.md.
void write_foreign_keys(std::ostream& out);

}  // namespace trainer::config
