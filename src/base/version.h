// SPDX-License-Identifier: Apache-2.0
// version.h: the version of this build.
#pragma once

namespace planalto {

inline constexpr const char* kVersion = "0.1.0";

}  // namespace planalto
