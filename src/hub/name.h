// Names of models and data sets as the Hugging Face Hub has them: "google/flan-t5-xl",
// "google/flan-t5-xl@v1", "tatsu-lab/alpaca/data/train.jsonl".
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace trainer::hub {

enum class Kind { model, dataset };

struct Name {
  Kind kind = Kind::model;
  std::string id;        // "google/flan-t5-xl"
  std::string revision;  // a branch, a tag or a commit; empty: main
  std::string path;      // in a data set: a file, a folder or a pattern in the repository; empty: all of it

  // "google/flan-t5-xl@v1"; parse_name() reads it back.
  std::string text() const;
};

// Reads "org/name", "org/name@revision" and, of a data set, "org/name[@revision]/path"; "hf://" may stand
// before it. Revisions with a slash are refs/convert/X and refs/pr/N. Returns nullopt for anything else.
std::optional<Name> parse_name(Kind kind, const std::string& text);

// Returns what the text names on the hub. nullopt when it is a path: something is there, its first folder is
// there, or it has another form. "hf://..." and "org/name@<commit>" are always names.
std::optional<Name> find_name(Kind kind, const std::string& text);

// Returns whether a text can be a branch, a tag or a commit.
bool is_revision(const std::string& text);

// Returns whether a revision is a full commit (40 hexadecimal digits), which never changes.
bool is_commit(const std::string& revision);

// Returns the name, with its commit, of a path in the cache of the hub; nullopt for other paths.
std::optional<Name> name_of(const std::filesystem::path& path);

// A path as people know it: "google/flan-t5-xl@7d6315d" of one in the cache of the hub; other paths as they
// are.
std::string shown(const std::string& path);

}  // namespace trainer::hub
