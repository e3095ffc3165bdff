// Names that come from outside and become paths: what a hub, an index, a manifest or an adapter calls its
// files. Only as a CheckedName such a name is appended to a folder.
#pragma once

#include <compare>
#include <filesystem>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>

namespace trainer {

// A name that, appended to a folder, lies below that folder. It has no control characters, so that it may be
// shown, and no part is longer than file systems allow.
class CheckedName {
 public:
  CheckedName() = default;  // none: empty()

  // They return nullopt for any other text.
  static std::optional<CheckedName> path(std::string_view text);  // "data/a.json": no part is "", "." or ".."
  static std::optional<CheckedName> file(std::string_view text);  // one part of a path
  static std::optional<CheckedName> hash(std::string_view text);  // 40 or 64 hexadecimal digits, lower case
  static std::optional<CheckedName> commit(std::string_view text);  // 40 of them

  bool empty() const { return text_.empty(); }
  const std::string& text() const { return text_; }

  bool operator==(const CheckedName&) const = default;
  auto operator<=>(const CheckedName&) const = default;
  friend bool operator==(const CheckedName& name, std::string_view text) { return name.text_ == text; }
  friend std::ostream& operator<<(std::ostream& out, const CheckedName& name) { return out << name.text_; }
  friend std::filesystem::path operator/(const std::filesystem::path& folder, const CheckedName& name) {
    return folder / name.text_;
  }

 private:
  explicit CheckedName(std::string_view text) : text_(text) {}
  std::string text_;
};

}  // namespace trainer
