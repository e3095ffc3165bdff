#include "base/terminal.h"

#include <cstdlib>
#include <map>
#include <string>

#include <gtest/gtest.h>

namespace trainer {
namespace {

using Variables = std::map<std::string, std::string>;

// Sets variables, "" removes one; sets them back at the end.
class Environment {
 public:
  explicit Environment(const Variables& variables) {
    for (const auto& [name, value] : variables) {
      const char* before = std::getenv(name.c_str());
      before_[name] = before == nullptr ? "" : before;
      set(name, value);
    }
  }
  ~Environment() {
    for (const auto& [name, value] : before_) set(name, value);
  }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  static void set(const std::string& name, const std::string& value) {
    value.empty() ? ::unsetenv(name.c_str()) : ::setenv(name.c_str(), value.c_str(), 1);
  }
  Variables before_;
};

bool utf8_with(const std::string& all, const std::string& type, const std::string& lang) {
  const Environment environment(Variables{{"LC_ALL", all}, {"LC_CTYPE", type}, {"LANG", lang}});
  return locale_has_utf8();
}

TEST(Terminal, TheLocaleIsThatOfTheFirstVariableThatIsSet) {
  EXPECT_TRUE(utf8_with("", "", "en_US.UTF-8"));
  EXPECT_TRUE(utf8_with("", "C.utf8", "C"));
  EXPECT_FALSE(utf8_with("C", "", "en_US.UTF-8"));
  EXPECT_FALSE(utf8_with("", "", ""));
}

TEST(Terminal, AFileHasColoursOnlyIfTheyAreForced) {
  testing::internal::CaptureStderr();  // a file
  const Environment none(
      Variables{{"NO_COLOR", ""}, {"CLICOLOR", ""}, {"CLICOLOR_FORCE", ""}, {"TRAINER_PLAIN", ""}});
  EXPECT_FALSE(stderr_has_colour());
  EXPECT_FALSE(stderr_terminal());
  const Environment forced(Variables{{"CLICOLOR_FORCE", "1"}});
  EXPECT_TRUE(stderr_has_colour());
  const Environment refused(Variables{{"NO_COLOR", "1"}});
  EXPECT_FALSE(stderr_has_colour());
  testing::internal::GetCapturedStderr();
}

}  // namespace
}  // namespace trainer
