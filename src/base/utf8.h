// SPDX-License-Identifier: Apache-2.0
// utf8.h: is this text UTF-8, and if not, where is the first byte that is not.
// Numerics    Unicode 15, table 3-7: no overlong forms, no surrogates, nothing above U+10FFFF
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace planalto {

// Offset of the first byte of the first sequence that is not UTF-8 (a cut one at the end counts), or -1.
std::int64_t find_invalid_utf8(std::string_view text);

// At most `max_bytes` of text made safe for a message: control and non-ASCII bytes as \xNN, "..." where cut.
std::string printable(std::string_view text, std::int64_t max_bytes = 80);

}  // namespace planalto
