// SPDX-License-Identifier: Apache-2.0
// run_plan.h: the memory and work of a training run before it starts: every buffer, the peak, flops, and whether a budget holds it.
// Invariants  the plan is made from the very programs that run; nothing is allocated for it but the description itself
// Errors      memory: over budget, naming the largest terms and the setting that would make it fit
// Units       bytes, flops of one step at capacity
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "program/placement.h"
#include "train/step_program.h"

namespace planalto {

// What the process needs beside the plan: code, stacks, allocator, tokenizer, one report. Measured in docs/memory.md.
constexpr std::int64_t kProcessOverheadBytes = std::int64_t{96} << 20;

struct PlanTerm {
  std::string name;  // "weights", "gradients", ...
  std::int64_t bytes = 0;
};

struct RunPlan {
  std::unique_ptr<TrainingPrograms> programs;
  MemoryPlan memory;
  std::vector<PlanTerm> terms;  // of the device tier; they add up to arena_bytes
  double step_flops = 0.0, forward_flops = 0.0, backward_flops = 0.0, optimizer_flops = 0.0;

  std::int64_t device_bytes() const { return memory.arena_bytes[0]; }
  std::int64_t total_bytes() const {
    return memory.arena_bytes[0] + memory.arena_bytes[1] + kProcessOverheadBytes;
  }
};

RunPlan make_run_plan(const ModelConfig& model, const StepOptions& options, const Target& target);

// A change of settings that fits the budget, and what it needs.
struct PlanSuggestion {
  std::string setting;
  std::int64_t bytes = 0;
};
struct PlanRequest {
  ModelConfig model;
  StepOptions options;
  std::int64_t seq_len = 0, micro_batch = 0;
  Target target;
};
std::vector<PlanSuggestion> suggest_fits(const PlanRequest& request, std::int64_t budget_bytes);
// Refuses a plan over budget. budget_name: the setting or limit that gives it.
void require_budget(const RunPlan& plan, const PlanRequest& request, std::int64_t budget_bytes,
                    const std::string& budget_name);

std::string format_bytes(std::int64_t bytes);  // "1.50 GiB"

}  // namespace planalto
