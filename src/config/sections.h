// Sections of the schema that have a file of their own.
#pragma once

#include "config/schema.h"

namespace trainer::config {

Section data_section();
Section evaluation_section();
Section gpu_section();
Section memory_section();
Section notify_section();
Section observe_section();
Section parallel_section();
Section recovery_section();
Section save_section();

}  // namespace trainer::config
