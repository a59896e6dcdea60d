// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <new>

#include "app/commands.h"
#include "base/error.h"
#include "base/toml.h"
#include "base/version.h"

namespace planalto {

namespace {

// What is wrong with the command line, the nearest name that exists, and where to read on.
std::string usage_message(const CLI::App* app, const CLI::Error& error) {
  const CLI::App* command = app;
  while (!command->get_subcommands().empty()) command = command->get_subcommands().front();
  std::vector<std::string> commands, names;
  for (const CLI::App* c : command->get_subcommands(nullptr)) commands.push_back(c->get_name());
  for (const CLI::Option* o : command->get_options()) {
    for (const std::string& name : o->get_lnames()) names.push_back("--" + name);
  }
  std::string text = error.what(), hint;
  for (const std::string& word : command->remaining()) {
    const bool is_option = word.starts_with("-");
    if (!is_option && commands.empty()) continue;
    if (!is_option) text = "there is no command \"" + word + "\"";
    const std::vector<std::string>& legal = is_option ? names : commands;
    const std::string_view near = nearest_name(word, {legal.begin(), legal.end()});
    if (!near.empty()) hint = "; did you mean " + std::string(near) + "?";
    break;
  }
  std::string path;
  for (const CLI::App* c = command; c != nullptr; c = c->get_parent())
    path.insert(0, c->get_name() + (path.empty() ? "" : " "));
  return "planalto: usage error: " + text + hint + "\n\"" + path + " --help\" says what is legal\n";
}

}  // namespace

}  // namespace planalto

int main(int argc, char** argv) {
  using planalto::ErrorKind;
  CLI::App app{"Planalto trains Mixture-of-Experts language models inside a memory plan fixed at launch."};
  app.name("planalto");
  app.set_version_flag("--version", std::string("planalto ") + planalto::kVersion);
  app.require_subcommand(1);
  app.failure_message(planalto::usage_message);
  int status = 0;
  try {
    planalto::add_train_command(app, &status);
    planalto::add_plan_command(app, &status);
    planalto::add_generate_command(app, &status);
    planalto::add_eval_command(app, &status);
    planalto::add_export_command(app, &status);
    planalto::add_verify_command(app, &status);
    planalto::add_tokenizer_command(app, &status);
    planalto::add_inspect_command(app, &status);
    planalto::add_doctor_command(app, &status);
    planalto::add_bench_command(app, &status);
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    const int code = app.exit(e);
    return code == 0 ? 0 : planalto::kExitUsage;
  } catch (const planalto::Error& e) {
    std::fflush(stdout);
    std::fprintf(stderr, "planalto: %s error: %s\n", planalto::to_string(e.kind()), e.what());
    return planalto::exit_code(e.kind());
  } catch (const std::bad_alloc&) {
    std::fprintf(stderr,
                 "planalto: memory error: the system gave no memory for what stands outside the plan\n");
    return planalto::exit_code(ErrorKind::memory);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "planalto: internal error: %s\n", e.what());
    return planalto::exit_code(ErrorKind::internal);
  }
  return status;
}
