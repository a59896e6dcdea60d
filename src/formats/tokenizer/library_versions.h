// SPDX-License-Identifier: Apache-2.0
// library_versions.h: versions of the libraries behind the formats, as linked.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace planalto {

std::vector<std::pair<std::string, std::string>> library_versions();

}  // namespace planalto
