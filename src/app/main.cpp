// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <new>

#include "app/commands.h"
#include "base/error.h"
#include "base/version.h"

int main(int argc, char** argv) {
  using planalto::ErrorKind;
  CLI::App app{"Planalto trains Mixture-of-Experts language models inside a memory plan fixed at launch."};
  app.name("planalto");
  app.set_version_flag("--version", std::string("planalto ") + planalto::kVersion);
  app.require_subcommand(1);
  app.failure_message(CLI::FailureMessage::help);
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
