// SPDX-License-Identifier: Apache-2.0
#include "formats/tokenizer/library_versions.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <utf8proc.h>

#include <array>

namespace planalto {

std::vector<std::pair<std::string, std::string>> library_versions() {
  std::array<char, 64> pcre2{};
  pcre2_config(PCRE2_CONFIG_VERSION, pcre2.data());
  return {{"PCRE2", pcre2.data()}, {"utf8proc", utf8proc_version()}, {"Unicode", utf8proc_unicode_version()}};
}

}  // namespace planalto
