// SPDX-License-Identifier: Apache-2.0
// order.h: which op is sure to have finished before which other starts, from stream order and waits, whatever
// the trip counts. Invariants  every answer holds for all trip counts that a region allows; where they
// differ, the weakest counts Source      vector clocks (Fidge 1988, Mattern 1989); one entry a stream holds
// the last op that is known to be over
#pragma once

#include <vector>

#include "program/program.h"

namespace planalto {

class ProgramOrder {
 public:
  explicit ProgramOrder(const Program& program);
  // Removes from program.waits what follows from stream order and from other waits.
  static void remove_implied_waits(Program& program);

  // All executions of p are over when o starts for the first time. For p and o in one region: false.
  bool before(int p, int o) const;
  // p and o in one region: p of an iteration is over when o of the same iteration starts.
  bool before_in_iteration(int p, int o) const;
  // p and o in one region: p of an iteration is over when o of the next one starts.
  bool before_next_iteration(int p, int o) const;

 private:
  using Clock = std::vector<int>;  // by stream: the last op known to be over, -1: none

  struct Body;  // what is known while a region is walked
  ProgramOrder(const Program& program, std::vector<std::vector<Wait>>& waits, bool remove_implied);
  void walk(std::vector<std::vector<Wait>>& waits, bool remove_implied);
  void visit_op(int o, std::vector<Wait>& waits, bool remove_implied);
  void visit_region(int region, std::vector<std::vector<Wait>>& waits, bool remove_implied);
  void same_iteration(int o, Body& body, std::vector<Wait>& waits, bool remove_implied);
  void next_iteration(int o, std::vector<Clock>& known, std::vector<Wait>& waits, bool remove_implied);
  void leave_region(int region, const Body& body);

  int stream(int op) const { return program_.ops[static_cast<std::size_t>(op)].stream; }
  int region(int op) const { return program_.ops[static_cast<std::size_t>(op)].repeat; }

  const Program& program_;
  std::vector<Clock> known_;  // by stream: all executions over, as that stream knows it so far
  std::vector<Clock> start_;  // by op: the same at its first start, ops of its own region left out
  std::vector<Clock> over_;   // by op: what a stream knows that has waited for all its executions
  std::vector<Clock> same_;   // by op of a region: ops of the region, this iteration, over when it starts
  std::vector<Clock>
      last_;  // by op of a region: ops of the region, the iteration before, over when it starts
};

}  // namespace planalto
