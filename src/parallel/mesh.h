// SPDX-License-Identifier: Apache-2.0
// mesh.h: the ranks of a run as a grid: data parallel copies, each spread over the ranks of expert parallelism.
// Shapes      rank = data coordinate * expert ranks + expert coordinate, so the ranks that exchange tokens are neighbours
// Invariants  the groups of an axis partition the ranks; a group lists its ranks in ascending order
// Errors      config: an extent below 1; internal: a rank outside the grid
// Source      Megatron Core's order of ranks: expert parallelism inside data parallelism
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "program/program.h"

namespace planalto {

// world: all ranks, which see different tokens. expert: the ranks that share one copy of the experts. data: the ranks that hold
// the same experts.
enum class MeshAxis : std::uint8_t { world, data, expert };
const char* to_string(MeshAxis axis);

struct MeshShape {
  int data = 1;
  int expert = 1;
  int num_ranks() const { return data * expert; }
};

// The grid as one rank sees it.
class Mesh {
 public:
  Mesh() : Mesh(MeshShape{}, 0) {}
  Mesh(const MeshShape& shape, int rank);

  const MeshShape& shape() const { return shape_; }
  int rank() const { return rank_; }
  int coordinate(MeshAxis axis) const;  // of this rank in its group of the axis
  CommGroup group(MeshAxis axis) const;

 private:
  MeshShape shape_;
  int rank_ = 0;
};

}  // namespace planalto
