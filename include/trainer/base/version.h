#pragma once

namespace trainer {
inline constexpr const char* kVersion = "0.1.0";
}
