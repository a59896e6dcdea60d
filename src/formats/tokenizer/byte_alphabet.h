// SPDX-License-Identifier: Apache-2.0
// byte_alphabet.h: the 256 printable characters that stand for bytes in a byte-level vocabulary.
// Source      GPT-2's published encoder: printable Latin-1 bytes stand for themselves, the 68 others for U+0100 and up
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace planalto::tokenizer {

char32_t alphabet_character(std::uint8_t byte);

// "Ġthe" for " the".
std::string spell_bytes(std::string_view bytes);

// The bytes behind a token of the vocabulary; nothing when a character is outside the alphabet. Valid UTF-8 in.
std::optional<std::string> read_spelling(std::string_view token);

}  // namespace planalto::tokenizer
