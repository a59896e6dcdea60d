// SPDX-License-Identifier: Apache-2.0
// expert_ids.h: the check of expert ids [T, K] that a kernel is about to use as an index.
// Threads     runs on the pool of ctx; which id is named does not depend on the number of threads
// Errors      data, with op, token, slot and value of the first offending id
#pragma once

#include <cstdint>

namespace planalto {
struct ExecContext;
}

namespace planalto::kernels {

enum class IdOrder { any, ascending };
void check_expert_ids(const ExecContext& ctx, const char* op, const std::int32_t* ids, std::int64_t tokens,
                      std::int64_t top_k, std::int64_t num_experts, IdOrder order);

}  // namespace planalto::kernels
