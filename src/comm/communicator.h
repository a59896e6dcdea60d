// SPDX-License-Identifier: Apache-2.0
// communicator.h: collectives and messages among the ranks of one group; every rank of the group makes the same calls in the same order.
// Shapes      flat runs of `count` elements; the same count on every rank except where counts per peer are given
// Units       counts and offsets in elements
// Invariants  reductions add in rank order, so that a sum has the same bits on every rank and in every run
// Memory      views of the caller's; no call allocates. in and out are the same run, or do not overlap
// Threads     a communicator belongs to one stream; calls of different communicators may overlap
// Errors      internal: views that do not fit together, an operation that the group cannot have; comm: a peer failed
// Source      MPI 4.0, chapters 3 and 6
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "base/dtype.h"

namespace planalto {

enum class Reduction : std::uint8_t { sum, max, min };

struct ConstRun {
  const void* data = nullptr;
  DType dtype = DType::f32;
  std::int64_t count = 0;
};
struct Run {
  void* data = nullptr;
  DType dtype = DType::f32;
  std::int64_t count = 0;
  operator ConstRun() const {
    return {data, dtype, count};
  }  // NOLINT(google-explicit-constructor): a Run can be read
};

class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int size() const = 0;
  virtual int rank() const = 0;

  // values of every rank, combined, on every rank
  virtual void all_reduce(const Run& values, Reduction reduction) = 0;
  // in has size() times out's elements; rank r keeps the r-th part of the combined values
  virtual void reduce_scatter(const ConstRun& in, const Run& out, Reduction reduction) = 0;
  // out has size() times in's elements: the ranks' in one after the other
  virtual void all_gather(const ConstRun& in, const Run& out) = 0;
  // Elements [send_offsets[p], send_offsets[p + 1]) of in go to peer p; what came from p lies at [receive_offsets[p],
  // receive_offsets[p + 1]) of out. Both have size() + 1 entries; the counts of a pair agree.
  virtual void all_to_all_v(const ConstRun& in, std::span<const std::int64_t> send_offsets, const Run& out,
                            std::span<const std::int64_t> receive_offsets) = 0;
  virtual void send(const ConstRun& values, int peer) = 0;
  virtual void receive(const Run& values, int peer) = 0;
  virtual void barrier() = 0;
  // Makes every call of every peer, present and to come, fail with `reason`.
  virtual void abort(const char* reason) noexcept = 0;
};

// The group of one rank: collectives copy, there is no peer to send to.
std::unique_ptr<Communicator> self_communicator();

}  // namespace planalto
