// SPDX-License-Identifier: Apache-2.0
#include "train/run_plan.h"

#include <algorithm>
#include <map>

#include "base/error.h"

namespace planalto {

namespace {

const char* term_of(Role role) {
  switch (role) {
    case Role::parameter:
      return "weights";
    case Role::gradient:
      return "gradients";
    case Role::optimizer_state:
      return "optimizer states";
    case Role::activation:
    case Role::boundary:
      return "activations";
    case Role::exchange:
      return "exchange buffers";
    case Role::workspace:
      return "workspaces";
    case Role::input:
      return "inputs and tables";
    case Role::statistic:
      return "statistics";
  }
  return "other";
}

RunCounts counts_at_capacity(const StepOptions& o) {
  const auto tokens = static_cast<double>(o.max_tokens), length = static_cast<double>(o.max_positions);
  RunCounts c;
  c.tokens = tokens;
  c.documents = tokens / length;
  c.attention_pairs = tokens * (length + 1) / 2;
  return c;
}

void count_flops(RunPlan& plan, const StepOptions& options) {
  const Program& step = plan.programs->step;
  const RunCounts counts = counts_at_capacity(options);
  for (const Op& op : step.ops) {
    if (!op.cost) continue;
    const double trips =
        op.repeat >= 0 ? static_cast<double>(step.repeats[static_cast<std::size_t>(op.repeat)].max_trips)
                       : 1.0;
    const double flops = trips * op.cost(counts).flops;
    plan.step_flops += flops;
    if (op.phase == Phase::forward) plan.forward_flops += flops;
    if (op.phase == Phase::backward) plan.backward_flops += flops;
    if (op.phase == Phase::optimizer) plan.optimizer_flops += flops;
  }
}

// Persistent buffers by role, and what the transients of the largest program share, as one term each.
std::vector<PlanTerm> make_terms(const RunPlan& plan) {
  std::map<std::string, std::int64_t> by_name;
  std::int64_t named = 0;
  for (const BufferInfo& info : plan.programs->table.infos()) {
    if (!info.persistent || info.tier != Tier::device) continue;
    by_name[term_of(info.role)] += info.bytes();
    named += info.bytes();
  }
  by_name["activations and workspaces (transient)"] =
      plan.memory.arena_bytes[0] - plan.memory.persistent_bytes[0];
  by_name["alignment"] = plan.memory.persistent_bytes[0] - named;
  std::vector<PlanTerm> terms;
  terms.reserve(by_name.size());
  for (const auto& [name, bytes] : by_name) terms.push_back({name, bytes});
  std::stable_sort(terms.begin(), terms.end(),
                   [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
  return terms;
}

}  // namespace

std::string format_bytes(std::int64_t bytes) {
  const auto b = static_cast<double>(bytes);
  if (b >= 0x1p30) return fmt::format("{:.2f} GiB", b * 0x1p-30);
  if (b >= 0x1p20) return fmt::format("{:.2f} MiB", b * 0x1p-20);
  if (b >= 0x1p10) return fmt::format("{:.2f} KiB", b * 0x1p-10);
  return fmt::format("{} B", bytes);
}

RunPlan make_run_plan(const ModelConfig& model, const StepOptions& options, const Target& target) {
  RunPlan plan;
  plan.programs = std::make_unique<TrainingPrograms>(model, options, target);
  plan.memory = place(plan.programs->table, plan.programs->all());
  plan.terms = make_terms(plan);
  count_flops(plan, options);
  return plan;
}

std::vector<PlanSuggestion> suggest_fits(const PlanRequest& request, std::int64_t budget) {
  std::vector<PlanSuggestion> found;
  auto consider = [&](const std::string& setting, const StepOptions& options) {
    const std::int64_t bytes = make_run_plan(request.model, options, request.target).total_bytes();
    if (bytes <= budget) found.push_back({setting, bytes});
    return bytes <= budget;
  };
  StepOptions recompute = request.options;
  if (request.options.precision == Precision::bf16 && request.options.packed_weights) {
    recompute.packed_weights = false;
    if (consider("memory.packed_weights = false", recompute)) return found;
    recompute.packed_weights = true;
  }
  recompute.recompute = true;
  if (!request.options.recompute && consider("train.recompute = true", recompute)) return found;
  for (std::int64_t rows = request.micro_batch / 2; rows >= 1; rows /= 2) {
    StepOptions smaller = recompute;
    smaller.max_tokens = rows * request.seq_len;
    smaller.num_microbatches = request.options.num_microbatches * request.micro_batch / rows;
    if (consider(fmt::format("train.micro_batch = {} with train.recompute = true", rows), smaller))
      return found;
  }
  for (std::int64_t length = request.seq_len / 2; length >= 16; length /= 2) {
    StepOptions shorter = recompute;
    shorter.max_tokens = shorter.max_positions = length;
    if (consider(fmt::format("train.seq_len = {}, train.micro_batch = 1 and train.recompute = true", length),
                 shorter))
      return found;
  }
  return found;
}

void require_budget(const RunPlan& plan, const PlanRequest& request, std::int64_t budget,
                    const std::string& budget_name) {
  if (plan.total_bytes() <= budget) return;
  std::string text =
      fmt::format("the plan needs {} ({} of buffers and {} for the process), {} allows {}. Largest terms:",
                  format_bytes(plan.total_bytes()), format_bytes(plan.total_bytes() - kProcessOverheadBytes),
                  format_bytes(kProcessOverheadBytes), budget_name, format_bytes(budget));
  for (std::size_t i = 0; i < std::min<std::size_t>(3, plan.terms.size()); ++i) {
    text += fmt::format("{} {} {}", i == 0 ? "" : ",", plan.terms[i].name, format_bytes(plan.terms[i].bytes));
  }
  const std::vector<PlanSuggestion> fits = suggest_fits(request, budget);
  text += fits.empty() ? fmt::format(". No smaller batch fits: weights, gradients and states alone need {}",
                                     format_bytes(plan.memory.persistent_bytes[0] + kProcessOverheadBytes))
                       : fmt::format(". It would fit with {} ({})", fits.front().setting,
                                     format_bytes(fits.front().bytes));
  fail(ErrorKind::memory, "{}", text);
}

}  // namespace planalto
