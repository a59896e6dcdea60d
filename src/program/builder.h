// SPDX-License-Identifier: Apache-2.0
// builder.h: what model code and techniques emit ops into; listeners add theirs where a buffer is first used, last used or complete.
// Invariants  ops stand in the order of emission; finish() removes ops whose results nobody reads, then asks the listeners
// Memory      owns the ops until finish(); buffers go to the table given
// Source      original
#pragma once

#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "base/target.h"
#include "program/program.h"

namespace planalto {

class Builder;

// Lands ops inside a model that does not know of it. Called by finish(), in program order; what it emits stands at that
// place, with the phase and stream of the op concerned. Uses inside a region are told before and after the whole region.
class Listener {
 public:
  virtual ~Listener() = default;
  virtual void before_first_use(Builder&, Buffer) {}
  virtual void after_last_use(Builder&, Buffer) {}
  // After the last op that writes a buffer of role gradient.
  virtual void gradient_complete(Builder&, Buffer) {}
  // After everything else.
  virtual void at_end(Builder&) {}
};

class Builder {
 public:
  Builder(BufferTable& table, const Target& target, std::string program_name, int program_index);

  const Target& target() const { return target_; }
  const BufferTable& table() const { return table_; }
  const BufferInfo& info(Buffer b) const { return table_[b]; }

  // A buffer that lives between its first and last use in this program. The name is prefixed by the scopes that are open.
  Buffer transient(std::string_view name, DType dtype, std::int64_t rows, std::int64_t cols,
                   Role role = Role::activation);
  // Two slots, addressed by the iteration of the region that it is used in.
  Buffer slotted(std::string_view name, DType dtype, std::int64_t rows, std::int64_t cols,
                 Role role = Role::exchange);
  Buffer workspace(std::string_view name, std::int64_t bytes);
  // Belongs to the run, not to this program: what an observer or a technique keeps from step to step.
  Buffer persistent(BufferInfo info);

  // Appends an op: scopes prefix its name; phase and stream are the present ones.
  void emit(Op op);

  class Scope {
   public:
    Scope(Builder& b, std::string_view name);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Builder& builder_;
    std::size_t old_size_;
  };
  Scope scope(std::string_view name) { return Scope(*this, name); }

  Phase phase() const { return phase_; }
  void set_phase(Phase phase) { phase_ = phase; }
  int stream(std::string_view name, bool compute = false);  // the index of a stream, made on first mention
  void set_stream(int stream) { stream_ = stream; }
  int group(const CommGroup& group);  // the index of a group, made on first mention

  void begin_repeat(std::int64_t fixed_trips);
  void begin_repeat(Buffer trip_count, std::int64_t max_trips);
  void end_repeat();

  // True when an op before wrote this gradient in this step: the caller accumulates then, and overwrites otherwise.
  bool accumulate(Buffer gradient) { return !started_.insert(gradient.id).second; }

  void add_listener(Listener* listener) { listeners_.push_back(listener); }
  Program finish();

 private:
  void remove_dead_ops();
  void ask_listeners();

  struct Uses {
    int first = -1, last = -1, last_write = -1;  // ops, before the listeners added theirs
  };
  void tell(const Op& op, Buffer b, void (Listener::*event)(Builder&, Buffer));
  void tell_first_uses(const Op& op, int index, std::vector<Uses>& uses);
  void tell_last_uses(const Op& op, int index, std::vector<Uses>& uses);

  BufferTable& table_;
  Target target_;
  Program program_;
  std::string prefix_;
  Phase phase_ = Phase::forward;
  int stream_ = 0;
  int open_repeat_ = -1;
  std::unordered_set<std::int32_t> started_;
  std::vector<Listener*> listeners_;
};

}  // namespace planalto
