// SPDX-License-Identifier: Apache-2.0
// unicode_newer.h: characters that PCRE2's tables do not know yet, replaced for matching only.
// Debian 12's PCRE2 10.42 has Unicode 14, the regular expressions of the reference (Oniguruma) have Unicode 16. A
// character assigned in between is shown to PCRE2 as an old one of the same general category and the same length in
// UTF-8, so that all offsets stay. U+180E, white space only for PCRE2, is treated in the same way.
// Numerics    right for patterns made of categories, white space and literals; a range of a set that has a newer
//             character or its stand-in inside, but not both, would see the difference
#pragma once

#include <string>
#include <string_view>

namespace planalto::tokenizer {

bool is_newer_character(char32_t code_point);

// `text` itself when it has no such character, else the replaced copy in `buffer`. Valid UTF-8 in.
std::string_view with_stand_ins(std::string_view text, std::string* buffer);

}  // namespace planalto::tokenizer
