// SPDX-License-Identifier: Apache-2.0
// left_behind.h: folders that disappear whole, and what killed processes left under temporary names.
// Errors      io: the system refused
#pragma once

#include <string>

namespace planalto {

// Removes a folder whose name is gone at once: it is renamed to a temporary name first.
void remove_folder(const std::string& path);
// Removes what processes that are gone left in a folder under temporary names. The caller writes nothing there at this moment.
void remove_left_behind(const std::string& folder);

}  // namespace planalto
