// SPDX-License-Identifier: Apache-2.0
// route_file.h: the expert ids of a run's steps in a file: written by debug.router = "record:FILE", read by "replay:FILE".
// Shapes      header: "PLROUTES", then int64 version, moe blocks, microbatches M, tokens T, top_k K, experts E; then of each step
//             int64 step and int32 ids [moe blocks, M, T, K]. Rows without a token hold -1. Little-endian
// Invariants  steps follow each other without a gap. Each step is in the file when the next begins: however a run ends, its
//             recording is there; a step that was cut off at the end is no step
// Memory      allocates nothing a step while it is written; mapped while it is read
// Errors      data: another shape, an id that is no expert (file, step, token); config: a step that the file lacks; io: not written
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"

namespace planalto {

struct RouteShape {
  std::int64_t moe_blocks = 0, microbatches = 0, tokens = 0, top_k = 0, num_experts = 0;
  std::int64_t ids() const { return moe_blocks * microbatches * tokens * top_k; }
};

class RouteRecorder {
 public:
  // steps_done: of the run so far. A recording of them is gone on with behind the last; any other file of that name is replaced.
  RouteRecorder(const std::string& path, const RouteShape& shape, std::int64_t steps_done);
  ~RouteRecorder();
  RouteRecorder(const RouteRecorder&) = delete;
  RouteRecorder& operator=(const RouteRecorder&) = delete;
  void add(std::int64_t step, std::span<const std::int32_t> ids);

 private:
  std::string path_;
  int fd_ = -1;
};

class RouteReplay {
 public:
  RouteReplay(const std::string& path, const RouteShape& shape);
  // The ids of a step, each token's in ascending order.
  void read(std::int64_t step, std::span<std::int32_t> ids) const;
  std::int64_t first_step() const { return first_step_; }
  std::int64_t num_steps() const { return num_steps_; }

 private:
  MappedFile file_;
  RouteShape shape_;
  std::int64_t first_step_ = 0, num_steps_ = 0;
  bool cut_off_ = false;  // a part of another step stands behind the last
};

}  // namespace planalto
