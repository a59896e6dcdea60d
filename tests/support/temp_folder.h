// SPDX-License-Identifier: Apache-2.0
// temp_folder.h: a folder for one test, removed at its end.
#pragma once

#include <string>
#include <string_view>

namespace planalto::testing {

class TempFolder {
 public:
  TempFolder();
  ~TempFolder();
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string file(std::string_view name) const;
  // Writes the text under the name and returns its path.
  std::string write(std::string_view name, std::string_view text) const;

 private:
  std::string path_;
};

}  // namespace planalto::testing
