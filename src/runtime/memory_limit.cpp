// SPDX-License-Identifier: Apache-2.0
#include "runtime/memory_limit.h"

#include <fstream>
#include <limits>

namespace planalto {

namespace {

void lower(MemoryLimit& limit, std::int64_t bytes, const std::string& source) {
  if (bytes >= limit.bytes) return;
  limit.bytes = bytes;
  limit.source = source;
}

// A file with one number; "max" and what cannot be read set no limit.
void lower_by_file(MemoryLimit& limit, const std::string& root, const std::string& path) {
  std::ifstream file(root + path);
  std::int64_t bytes = 0;
  if (file >> bytes) lower(limit, bytes, path);
}

// The limits of a control group and of all above it, up to what is mounted. Inside a container the group's path may name
// folders that only the host sees; the mount itself is then the container's group.
void lower_by_group(MemoryLimit& limit, const std::string& root, const std::string& mount,
                    const std::string& group, const std::string& file) {
  std::string folder = group == "/" ? mount : mount + group;
  while (folder.size() > mount.size()) {
    std::string path = folder;
    lower_by_file(limit, root, path.append("/").append(file));
    folder.resize(folder.rfind('/'));
  }
  lower_by_file(limit, root, mount + "/" + file);
}

}  // namespace

MemoryLimit memory_limit(const std::string& root) {
  MemoryLimit limit{std::numeric_limits<std::int64_t>::max(), "nothing"};
  std::ifstream meminfo(root + "/proc/meminfo");
  std::string key;
  std::int64_t kib = 0;
  if (meminfo >> key >> kib && key == "MemTotal:") lower(limit, kib * 1024, "/proc/meminfo");
  // Lines "number:controllers:path"; the second version of control groups is number 0 without controllers.
  std::ifstream groups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const std::string group = line.substr(second + 1);
    if (controllers == ",,") {
      lower_by_group(limit, root, "/sys/fs/cgroup", group, "memory.max");
      lower_by_group(limit, root, "/sys/fs/cgroup/unified", group, "memory.max");
    } else if (controllers.find(",memory,") != std::string::npos) {
      lower_by_group(limit, root, "/sys/fs/cgroup/memory", group, "memory.limit_in_bytes");
    }
  }
  return limit;
}

}  // namespace planalto
