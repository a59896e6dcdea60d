// SPDX-License-Identifier: Apache-2.0
// pattern_syntax.h: the regular expressions of tokenizer.json (Oniguruma's syntax) rewritten for PCRE2.
// Only what means the same in both, or can be rewritten so that it does, is let through: literals, sets without nesting,
// general categories, \s \d, groups, (?i:...) over ASCII, look-around, greedy, lazy and possessive repetition.
// Errors      data: anything else (anchors, \w, \b, scripts, back-references, nested sets, ...), with its place
#pragma once

#include <string>
#include <string_view>

namespace planalto::tokenizer {

std::string rewrite_pattern(std::string_view oniguruma, std::string_view where);

// A PCRE2 pattern that matches exactly this text.
std::string quote_pattern(std::string_view text);

}  // namespace planalto::tokenizer
