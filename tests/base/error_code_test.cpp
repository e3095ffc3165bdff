// Every code of an error has a name of its own and a page.
#include "trainer/base/error_code.h"

#include <filesystem>
#include <set>
#include <sstream>

#include <gtest/gtest.h>

#include "trainer/base/files.h"

namespace trainer {
namespace {

const std::filesystem::path kDocs = std::filesystem::path(SOURCE_DIR) / "docs";

TEST(ErrorCodes, EachHasANameOfItsOwn) {
  std::set<std::string> names;
  for (const ErrorCode code : error_codes()) names.insert(name_of(code));
  // The last one of the enumeration; a code without a name would be missing in the list.
  EXPECT_EQ(names.size(), static_cast<size_t>(ErrorCode::lost_rank) + 1);
  EXPECT_EQ(names.size(), error_codes().size());
  for (const std::string& name : names) {
    EXPECT_EQ(name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-"), std::string::npos) << name;
    EXPECT_FALSE(std::filesystem::exists(kDocs / (name + ".md"))) << name << " is the name of a page, too";
  }
}

TEST(ErrorCodes, PagesAreInTheOrderOfTheCodes) {
  std::istringstream lines(read_file(kDocs / "errors.md"));
  std::vector<std::string> headings, names;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("## ")) headings.push_back(line.substr(3));
  }
  for (const ErrorCode code : error_codes()) names.push_back(name_of(code));
  EXPECT_EQ(headings, names);
}

TEST(ErrorCodes, EachPageSaysWhatItMeansWhyItComesAndWhatToDo) {
  const std::string page = read_file(kDocs / "errors.md");
  for (const ErrorCode code : error_codes()) {
    const std::string heading = "\n## " + name_of(code) + "\n\n";
    const size_t begin = page.find(heading);
    ASSERT_NE(begin, std::string::npos) << name_of(code);
    const std::string text = page.substr(begin + heading.size(), page.find("\n## ", begin + 1) - begin);
    const size_t causes = text.find("\n\n**Causes.** "), remedy = text.find("\n\n**What to do.** ");
    EXPECT_NE(remedy, std::string::npos) << name_of(code);
    EXPECT_LT(causes, remedy) << name_of(code);
    EXPECT_GT(causes, 20u) << name_of(code);
  }
}

}  // namespace
}  // namespace trainer
