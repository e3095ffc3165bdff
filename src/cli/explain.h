// What a configuration key, an error or an exit code means.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "trainer/config/config.h"

#include "config/schema.h"

namespace trainer::cli {

// Returns what there is to say of a key: type, default, unit, when it has an effect, what it is called
// elsewhere, and how it is set; with a configuration also its value there, and where that is set.
std::string explained_key(const config::Key& key, const Config* here);

// Returns what a section is for, and its keys, one a line.
std::string explained_section(const config::Section& section);

// Returns the key of a full name, or of a name that one section alone has; nullptr: there is none.
const config::Key* key_called(const std::string& name);

// Returns what is called so: a key, a section, the code of an error, an exit code (5, exit-5), or the name
// that another trainer has for a key. Nothing if it is none of them.
std::optional<std::string> explanation(const std::string& name, const Config* here = nullptr);

// Returns the names that explanation() knows, but for those of other trainers and bare names.
std::vector<std::string> explained_names();

}  // namespace trainer::cli
