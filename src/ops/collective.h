// SPDX-License-Identifier: Apache-2.0
// collective.h: emits collectives of a group of ranks on buffers; in a group of one they are there and cost nothing.
// Units       wire bytes are what one rank sends: 2 (P - 1) / P of the buffer for an all-reduce (reduce-scatter, then all-gather)
#pragma once

#include <string>

#include "comm/communicator.h"
#include "ops/operand.h"

namespace planalto::ops {

// values := the values of all ranks of the group, combined.
void all_reduce(Builder& b, const std::string& name, const CommGroup& group, Buffer values,
                Reduction reduction);

}  // namespace planalto::ops
