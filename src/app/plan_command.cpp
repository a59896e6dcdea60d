// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>

#include "app/commands.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "cluster/hardware_profile.h"
#include "model/counts.h"
#include "train/setup.h"

namespace planalto {

namespace {

struct PlanArguments {
  std::string config, model, profile, precision = "bf16";
  std::vector<std::string> set;
  bool json = false, all = false;
};

JsonObject counts_to_json(const ModelConfig& model) {
  const ParameterCounts c = count_parameters(model);
  JsonObject o;
  o.set("total", c.total);
  o.set("routed", c.routed);
  o.set("embedding", c.embedding);
  o.set("head", c.head);
  o.set("active_with_embedding", c.active_with_embedding);
  o.set("active_without_embedding", c.active_without_embedding);
  o.set("layers", c.layers);
  o.set("moe_layers", c.moe_layers);
  o.set("router_bias", c.router_bias);
  o.set("mtp", c.mtp);
  return o;
}

std::string model_config_path(const std::string& path) {
  return is_folder(path) ? join_path(path, "config.json") : path;
}

// Parameter counts and persistent bytes of a model, without a run: no program is built, so any size will do.
int plan_model(const PlanArguments& a) {
  const std::string path = model_config_path(a.model);
  const ModelConfig model = read_model_config(read_json_file(path), path);
  const bool bf16 = a.precision != "fp32";
  if (bf16 && a.precision != "bf16")
    fail(ErrorKind::config, "--precision {} is unknown; legal: fp32, bf16", a.precision);
  BufferTable table;
  const ParameterSet parameters(table, model,
                                {.precision = bf16 ? Precision::bf16 : Precision::fp32, .training = true});
  std::int64_t weights = 0, gradients = 0, states = 0;
  for (const BufferInfo& info : table.infos()) {
    (info.role == Role::parameter  ? weights
     : info.role == Role::gradient ? gradients
                                   : states) += info.bytes();
  }
  JsonObject o = counts_to_json(model);
  o.set("weights_bytes", weights);
  o.set("gradients_bytes", gradients);
  o.set("optimizer_bytes", states);
  if (a.json) {
    std::printf("%s\n", write_json(o, JsonStyle::pretty).c_str());
    return 0;
  }
  std::printf("%s\n", path.c_str());
  for (const JsonMember& m : o) {
    const std::int64_t n = m.value.as_int64(m.key);
    std::printf("  %-26s %20lld", m.key.c_str(), static_cast<long long>(n));
    if (m.key.ends_with("_bytes")) std::printf("  %s", format_bytes(n).c_str());
    std::printf("\n");
  }
  std::printf("  experts %lld, top-%lld, width %lld, shared width %lld, dense layers %lld of width %lld\n",
              static_cast<long long>(model.moe.num_experts), static_cast<long long>(model.moe.top_k),
              static_cast<long long>(model.moe.width), static_cast<long long>(model.moe.shared_width),
              static_cast<long long>(model.num_layers - model.num_moe_layers()),
              static_cast<long long>(model.dense_width));
  return 0;
}

std::string lives(const BufferInfo& info, const RunPlan& plan) {
  if (info.persistent) return "run";
  for (const Program* p : plan.programs->all()) {
    if (info.program == p->index) return p->name;
  }
  return "";
}

std::vector<std::int64_t> buffers_by_size(const RunPlan& plan) {
  std::vector<std::int64_t> ids;
  for (std::int64_t i = 0; i < plan.programs->table.size(); ++i) {
    if (plan.memory.offsets[static_cast<std::size_t>(i)] >= 0) ids.push_back(i);
  }
  const auto& infos = plan.programs->table.infos();
  std::stable_sort(ids.begin(), ids.end(), [&](std::int64_t x, std::int64_t y) {
    return infos[static_cast<std::size_t>(x)].bytes() > infos[static_cast<std::size_t>(y)].bytes();
  });
  return ids;
}

std::string peak_op_name(const RunPlan& plan) {
  const int op = plan.memory.programs.front().peak_op;
  return op < 0 ? "none" : plan.programs->step.ops[static_cast<std::size_t>(op)].name;
}

// Parameters that decay and those that do not, as numbers of tensors and elements.
struct DecayGroups {
  std::int64_t tensors[2] = {0, 0}, elements[2] = {0, 0};
};
DecayGroups decay_groups(const RunPlan& plan, const StepOptions& options) {
  DecayGroups g;
  for (const Parameter& p : plan.programs->parameters.all()) {
    if (!p.spec.trainable) continue;
    const bool decays = options.decays ? options.decays(p.spec) : p.spec.decay_by_default;
    ++g.tensors[decays ? 0 : 1];
    g.elements[decays ? 0 : 1] += p.spec.elements();
  }
  return g;
}

// The dtype in which gradients are summed, over microbatches too: that of all gradient buffers.
DType gradient_dtype(const RunPlan& plan) {
  std::optional<DType> dtype;
  for (const Parameter& p : plan.programs->parameters.all()) {
    if (!p.gradient.valid()) continue;
    const DType own = plan.programs->table[p.gradient].dtype;
    PLANALTO_CHECK(dtype.value_or(own) == own, "gradients of {} and {}", to_string(*dtype), to_string(own));
    dtype = own;
  }
  return dtype.value_or(DType::f32);
}

JsonValue plan_to_json(const RunPlan& plan, const RunSetup& setup, const HardwareProfile& machine,
                       std::int64_t budget) {
  JsonObject o;
  o.set("model", counts_to_json(setup.model));
  o.set("profile", to_json(machine));
  o.set("device_bytes", plan.memory.arena_bytes[0]);
  o.set("host_bytes", plan.memory.arena_bytes[1]);
  o.set("disk_bytes", plan.memory.arena_bytes[2]);
  o.set("persistent_bytes", plan.memory.persistent_bytes[0]);
  o.set("transient_bytes", plan.memory.programs.front().transient_bytes[0]);
  o.set("transient_lower_bound_bytes", plan.memory.programs.front().largest_live_bytes[0]);
  o.set("process_bytes", kProcessOverheadBytes);
  o.set("total_bytes", plan.total_bytes());
  o.set("budget_bytes", budget);
  o.set("fits", plan.total_bytes() <= budget);
  o.set("peak_op", peak_op_name(plan));
  o.set("step_flops", plan.step_flops);
  o.set("gradient_dtype", to_string(gradient_dtype(plan)));
  JsonObject terms;
  for (const PlanTerm& t : plan.terms) terms.set(t.name, t.bytes);
  o.set("terms", std::move(terms));
  JsonArray buffers;
  for (const std::int64_t i : buffers_by_size(plan)) {
    const BufferInfo& info = plan.programs->table.infos()[static_cast<std::size_t>(i)];
    JsonObject b;
    b.set("name", info.name);
    b.set("purpose", to_string(info.role));
    b.set("tier", to_string(info.tier));
    b.set("lives", lives(info, plan));
    b.set("dtype", to_string(info.dtype));
    b.set("rows", info.rows);
    b.set("cols", info.cols);
    b.set("bytes", info.bytes() * info.slots);
    b.set("offset", plan.memory.offsets[static_cast<std::size_t>(i)]);
    buffers.push_back(std::move(b));
  }
  o.set("buffers", std::move(buffers));
  return o;
}

void print_buffers(const RunPlan& plan, bool all) {
  const std::vector<std::int64_t> ids = buffers_by_size(plan);
  const std::size_t shown = all ? ids.size() : std::min<std::size_t>(ids.size(), 20);
  std::printf("\n%-58s %-16s %-7s %-5s %-5s %14s\n", "buffer", "purpose", "tier", "lives", "dtype", "bytes");
  for (std::size_t k = 0; k < shown; ++k) {
    const BufferInfo& info = plan.programs->table.infos()[static_cast<std::size_t>(ids[k])];
    std::printf("%-58s %-16s %-7s %-5s %-5s %14lld\n", info.name.c_str(), to_string(info.role),
                to_string(info.tier), lives(info, plan).c_str(), to_string(info.dtype),
                static_cast<long long>(info.bytes()) * info.slots);
  }
  if (shown < ids.size()) std::printf("... and %zu smaller ones (--all prints them)\n", ids.size() - shown);
}

void print_plan(const RunPlan& plan, const RunSetup& setup, const HardwareProfile& machine,
                std::int64_t budget, const std::string& source, bool all) {
  const ParameterCounts c = count_parameters(setup.model);
  std::printf(
      "model: %lld parameters (+ %lld in MTP modules), %lld active a token; %lld layers, %lld of them MoE "
      "with %lld experts top-%lld\n",
      static_cast<long long>(c.total), static_cast<long long>(c.mtp),
      static_cast<long long>(c.active_with_embedding), static_cast<long long>(c.layers),
      static_cast<long long>(c.moe_layers), static_cast<long long>(setup.model.moe.num_experts),
      static_cast<long long>(setup.model.moe.top_k));
  const DecayGroups g = decay_groups(plan, setup.options.step);
  std::printf(
      "weight decay: %lld tensors (%lld elements) decay, %lld (%lld) do not; gradients are summed in %s\n",
      static_cast<long long>(g.tensors[0]), static_cast<long long>(g.elements[0]),
      static_cast<long long>(g.tensors[1]), static_cast<long long>(g.elements[1]),
      to_string(gradient_dtype(plan)));
  std::printf("machine: %s, %s, %d threads (%s)\n", machine.name.c_str(), kernels::to_string(machine.isa),
              setup.options.target.num_threads, machine.cores_source.c_str());
  std::printf(
      "step: %lld microbatches of %lld tokens, %.4g flops (forward %.4g, backward %.4g, optimizer %.4g)\n",
      static_cast<long long>(setup.options.step.num_microbatches),
      static_cast<long long>(setup.options.step.max_tokens), plan.step_flops, plan.forward_flops,
      plan.backward_flops, plan.optimizer_flops);
  print_buffers(plan, all);
  std::printf("\n%-44s %14s\n", "term (device)", "bytes");
  for (const PlanTerm& t : plan.terms)
    std::printf("%-44s %14lld  %s\n", t.name.c_str(), static_cast<long long>(t.bytes),
                format_bytes(t.bytes).c_str());
  const ProgramPlan& step = plan.memory.programs.front();
  std::printf("\ntransient buffers of a step: %s placed, %s is the largest sum live at once; peak at op %s\n",
              format_bytes(step.transient_bytes[0]).c_str(), format_bytes(step.largest_live_bytes[0]).c_str(),
              peak_op_name(plan).c_str());
  std::printf(
      "device %s, host %s, disk %s, process %s: total %s\n", format_bytes(plan.memory.arena_bytes[0]).c_str(),
      format_bytes(plan.memory.arena_bytes[1]).c_str(), format_bytes(plan.memory.arena_bytes[2]).c_str(),
      format_bytes(kProcessOverheadBytes).c_str(), format_bytes(plan.total_bytes()).c_str());
  std::printf("budget %s (%s): %s\n", format_bytes(budget).c_str(), source.c_str(),
              plan.total_bytes() <= budget ? "it fits" : "it does not fit");
}

int plan_run(const PlanArguments& a) {
  const RunConfig config = load_run_config(a.config, a.set, {.data = false});
  const HardwareProfile machine = a.profile.empty() ? detect_hardware() : load_hardware_profile(a.profile);
  const RunSetup setup = setup_model(config, machine.target(static_cast<int>(config.train.threads)));
  const RunPlan plan = make_run_plan(setup.model, setup.options.step, setup.options.target);
  const bool automatic = config.memory.device_budget.automatic();
  const std::int64_t budget = automatic ? machine.memory_bytes : config.memory.device_budget.bytes;
  const std::string source = automatic ? machine.memory_source : "memory.device_budget";
  if (a.json) {
    std::printf("%s\n", write_json(plan_to_json(plan, setup, machine, budget), JsonStyle::pretty).c_str());
  } else {
    print_plan(plan, setup, machine, budget, source, a.all);
    for (const std::string& n : setup.notices) std::printf("notice: %s\n", n.c_str());
  }
  std::fflush(stdout);
  require_budget(plan, plan_request(setup), budget, source);
  return 0;
}

}  // namespace

void add_plan_command(CLI::App& app, int* status) {
  auto a = std::make_shared<PlanArguments>();
  CLI::App* c = app.add_subcommand("plan", "print every byte that a run will use, before it starts");
  CLI::Option* config = c->add_option("config", a->config, "run config (docs/config.md)");
  c->add_option("--model", a->model, "only count the parameters of this model folder or config.json")
      ->excludes(config);
  c->add_option("--precision", a->precision, "with --model: fp32 or bf16")->capture_default_str();
  c->add_option("--set", a->set, "section.key=value, over what the file says; may be repeated")
      ->allow_extra_args(false);
  c->add_option("--profile", a->profile,
                "plan for the machine of this profile file (planalto doctor --json prints one)");
  c->add_flag("--all", a->all, "print every buffer, not the largest only");
  c->add_flag("--json", a->json, "print JSON");
  c->footer("Example: planalto plan examples/quickstart.toml --set train.recompute=true");
  c->callback([a, status] {
    if (a->config.empty() && a->model.empty())
      throw CLI::ValidationError("plan", "needs a run config, or --model");
    *status = a->model.empty() ? plan_run(*a) : plan_model(*a);
  });
}

}  // namespace planalto
