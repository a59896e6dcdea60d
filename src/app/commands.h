// SPDX-License-Identifier: Apache-2.0
// commands.h: the subcommands of `planalto`, one file each; they parse and print, the work is done below.
// Errors      what a command throws is printed by main and becomes the exit status (docs/cli.md)
#pragma once

#include "base/target.h"

namespace CLI {
class App;
}

namespace planalto {

// Each adds one subcommand; its callback sets *status.
void add_train_command(CLI::App& app, int* status);
void add_plan_command(CLI::App& app, int* status);
void add_generate_command(CLI::App& app, int* status);
void add_eval_command(CLI::App& app, int* status);
void add_export_command(CLI::App& app, int* status);
void add_verify_command(CLI::App& app, int* status);
void add_tokenizer_command(CLI::App& app, int* status);
void add_inspect_command(CLI::App& app, int* status);
void add_doctor_command(CLI::App& app, int* status);
void add_bench_command(CLI::App& app, int* status);

// Exit statuses beside those of errors (base/error.h).
constexpr int kExitFailed = 1;        // a check that was asked for did not pass
constexpr int kExitUsage = 64;        // the command line itself is wrong
constexpr int kExitInterrupted = 75;  // stopped by a signal after a save: run again with --resume latest

// This machine: the best ISA, and `threads` workers (0: as many as cores that the process may use).
Target this_target(int threads);

}  // namespace planalto
