// A parsed template.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "text/jinja/moment.h"
#include "text/jinja/nodes.h"

namespace trainer::jinja {

class Template {
 public:
  // Messages begin with `where`. Throws FormatError "WHERE:LINE: ...".
  Template(const std::string& source, std::string where);

  // `moment`: the time that strftime_now() tells. Throws DataError if the template or Python would raise, and
  // FormatError for unsupported features and if the Budget is used up. All name the line.
  Text render(const std::vector<std::pair<std::string, Value>>& variables, const Moment& moment) const;

  // Returns whether the template itself marks what a model should learn: {% generation %}.
  bool has_generation() const { return has_generation_; }
  // Returns whether the template names strftime_now(), so that its texts may depend on the date.
  bool asks_clock() const;
  const std::string& where() const { return where_; }
  const std::string& source() const { return source_; }

 private:
  std::string source_, where_;
  Names names_;
  Block body_;
  bool has_generation_ = false;
};

}  // namespace trainer::jinja
