// SPDX-License-Identifier: Apache-2.0
#include "base/left_behind.h"

#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstring>

#include "base/error.h"
#include "base/file.h"

namespace planalto {

void remove_folder(const std::string& path) {
  std::string aside;
  {
    // Gives a name that nobody else has; the empty folder under it is replaced by the rename.
    const AtomicFolder name(path, AtomicFolder::Existing::replace);
    aside = name.folder();
    if (std::rename(path.c_str(), aside.c_str()) != 0)
      fail(ErrorKind::io, "cannot remove the folder {}: {}", path, std::strerror(errno));
  }
  remove_all(aside);
}

void remove_left_behind(const std::string& folder) {
  for (const std::string& name : list_folder(folder)) {
    // prefix, name, pid, counter
    if (!is_temporary_name(name)) continue;
    const std::size_t last = name.rfind('.');
    const std::size_t before = last == 0 ? name.npos : name.rfind('.', last - 1);
    if (before == name.npos) continue;
    int pid = 0;
    const char* end = name.data() + last;
    const auto [stop, error] = std::from_chars(name.data() + before + 1, end, pid);
    if (error != std::errc() || stop != end || pid <= 0) continue;
    if (pid != getpid() && (kill(pid, 0) == 0 || errno != ESRCH)) continue;
    remove_all(join_path(folder, name));
  }
}

}  // namespace planalto
