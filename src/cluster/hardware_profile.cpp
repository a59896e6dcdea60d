// SPDX-License-Identifier: Apache-2.0
#include "cluster/hardware_profile.h"

#include <sched.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "base/error.h"
#include "base/file.h"
#include "runtime/memory_limit.h"

namespace planalto {

namespace {

// By stream: files of /proc say that they are empty.
std::string read_if_there(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  if (file) text << file.rdbuf();
  return text.str();
}

// cpu.max of this process's cgroup and of those above it (v2), or the v1 quota; 0 when nothing bounds.
double cpu_quota(const std::string& root, std::string& source) {
  double quota = 0.0;
  auto consider = [&](double cores, const std::string& path) {
    if (cores > 0.0 && (quota == 0.0 || cores < quota)) {
      quota = cores;
      source = path;
    }
  };
  std::string group;
  std::istringstream lines(read_if_there(root + "/proc/self/cgroup"));
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("0::")) group = line.substr(3);
  }
  for (std::string at = group;; at = at.substr(0, at.rfind('/'))) {
    const std::string path = root + "/sys/fs/cgroup" + (at == "/" ? "" : at) + "/cpu.max";
    std::istringstream text(read_if_there(path));
    std::string max;
    double period = 0.0;
    if (text >> max >> period && max != "max" && period > 0.0)
      consider(std::atof(max.c_str()) / period, path);
    if (at.empty() || at == "/") break;
  }
  const std::string v1 = root + "/sys/fs/cgroup/cpu/cpu.cfs_quota_us";
  const double v1_quota = std::atof(read_if_there(v1).c_str());
  const double v1_period = std::atof(read_if_there(root + "/sys/fs/cgroup/cpu/cpu.cfs_period_us").c_str());
  if (v1_quota > 0.0 && v1_period > 0.0) consider(v1_quota / v1_period, v1);
  return quota;
}

std::string cpu_name() {
  std::istringstream lines(read_if_there("/proc/cpuinfo"));
  for (std::string line; std::getline(lines, line);) {
    const std::size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown CPU";
}

}  // namespace

CoreLimit usable_cores(const std::string& root) {
  CoreLimit limit;
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) limit.cores = std::max(1, CPU_COUNT(&set));
  limit.source = "affinity of this process";
  std::string source;
  const double quota = cpu_quota(root, source);
  if (quota > 0.0 && quota < limit.cores) {
    limit.cores = std::max(1, static_cast<int>(quota));  // a part of a core more would only be throttled
    limit.source = fmt::format("quota of {:.2f} CPUs in {}", quota, source);
  }
  return limit;
}

HardwareProfile detect_hardware() {
  HardwareProfile p;
  p.name = cpu_name();
  const kernels::IsaChoice isa = kernels::choose_isa();
  p.isa = isa.isa;
  p.isa_reason = isa.reason;
  const CoreLimit cores = usable_cores();
  p.cores = cores.cores;
  p.cores_source = cores.source;
  const MemoryLimit memory = memory_limit();
  p.memory_bytes = memory.bytes;
  p.memory_source = memory.source;
  return p;
}

HardwareProfile load_hardware_profile(const std::string& path) {
  const JsonValue json = read_json_file(path);
  HardwareProfile p;
  std::string unknown;
  for (const JsonMember& m : json.as_object(path)) {
    if (m.key != "name" && m.key != "isa" && m.key != "cores" && m.key != "memory_bytes")
      unknown += " " + m.key;
  }
  if (!unknown.empty())
    fail(ErrorKind::config, "{}: unknown keys{}; legal: name, isa, cores, memory_bytes", path, unknown);
  p.name = json.at("name", path).as_string(path + ": name");
  p.isa = kernels::isa_from_name(json.at("isa", path).as_string(path + ": isa"));
  p.isa_reason = p.cores_source = p.memory_source = path;
  const std::int64_t cores = json.at("cores", path).as_int64(path + ": cores");
  p.memory_bytes = json.at("memory_bytes", path).as_int64(path + ": memory_bytes");
  if (cores < 1 || cores > 4096) fail(ErrorKind::config, "{}: cores is {}; legal: 1 to 4096", path, cores);
  if (p.memory_bytes < 1)
    fail(ErrorKind::config, "{}: memory_bytes is {}; legal: 1 and above", path, p.memory_bytes);
  p.cores = static_cast<int>(cores);
  return p;
}

JsonValue to_json(const HardwareProfile& p) {
  JsonObject o;
  o.set("name", p.name);
  o.set("isa", kernels::to_string(p.isa));
  o.set("cores", p.cores);
  o.set("memory_bytes", p.memory_bytes);
  return o;
}

}  // namespace planalto
