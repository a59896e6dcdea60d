// SPDX-License-Identifier: Apache-2.0
#include "runtime/launch.h"

#include <algorithm>

#include "base/error.h"
#include "kernels/table.h"
#include "program/verify.h"

namespace planalto {

namespace {

MemoryPlan checked_plan(const BufferTable& table, const std::vector<const Program*>& programs) {
  MemoryPlan plan = place(table, programs);
  for (const Program* p : programs) verify(table, *p, plan);
  return plan;
}

}  // namespace

Launch::Launch(const BufferTable& table, std::vector<const Program*> programs, const LaunchOptions& options)
    : programs_(std::move(programs)),
      plan_(checked_plan(table, programs_)),
      pool_(options.target.num_threads),
      context_{&pool_, options.executor.kernels != nullptr ? options.executor.kernels
                                                           : &kernels::kernel_table(options.target.isa)},
      executor_(table, plan_, programs_, context_, options.executor) {}

int Launch::index_of(const Program& program) const {
  const auto it = std::find(programs_.begin(), programs_.end(), &program);
  PLANALTO_CHECK(it != programs_.end(), "program {} was not launched", program.name);
  return static_cast<int>(it - programs_.begin());
}

void Launch::run(const Program& program) {
  executor_.run(index_of(program));
}

std::string Launch::first_nonfinite(const Program& program) {
  return executor_.first_nonfinite(index_of(program));
}

}  // namespace planalto
