// Sections of the schema that have a file of their own.
#pragma once

#include "config/schema.h"

namespace trainer::config {

Section memory_section();

}  // namespace trainer::config
