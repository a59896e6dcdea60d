// SPDX-License-Identifier: Apache-2.0
#include "ops/collective.h"

namespace planalto::ops {

void all_reduce(Builder& b, const std::string& name, const CommGroup& group, Buffer values,
                Reduction reduction) {
  const int index = b.group(group);
  const BufferInfo info = b.info(values);
  const auto ranks = static_cast<double>(group.ranks.size());
  const double wire = 2 * (ranks - 1) / ranks * static_cast<double>(info.bytes());
  b.emit({.name = name,
          .kind = "all_reduce",
          .accesses = {updates(values)},
          .cost =
              [=](const RunCounts&) {
                return Cost{0, 0, wire};
              },
          .run =
              [=, dtype = info.dtype, count = info.elements()](const RunContext& ctx) {
                ctx.communicators[index]->all_reduce({ctx.data<void>(values), dtype, count}, reduction);
              },
          .group = index});
}

}  // namespace planalto::ops
