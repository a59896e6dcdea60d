// SPDX-License-Identifier: Apache-2.0
#include "parallel/mesh.h"

#include "base/error.h"

namespace planalto {

const char* to_string(MeshAxis axis) {
  switch (axis) {
    case MeshAxis::world:
      return "world";
    case MeshAxis::data:
      return "data";
    case MeshAxis::expert:
      return "expert";
  }
  return "?";
}

Mesh::Mesh(const MeshShape& shape, int rank) : shape_(shape), rank_(rank) {
  if (shape.data < 1 || shape.expert < 1) {
    fail(ErrorKind::config,
         "a mesh of {} data parallel and {} expert parallel ranks; legal: 1 or more of each", shape.data,
         shape.expert);
  }
  PLANALTO_CHECK(rank >= 0 && rank < shape.num_ranks(), "rank {} of {}", rank, shape.num_ranks());
}

int Mesh::coordinate(MeshAxis axis) const {
  switch (axis) {
    case MeshAxis::world:
      return rank_;
    case MeshAxis::data:
      return rank_ / shape_.expert;
    case MeshAxis::expert:
      return rank_ % shape_.expert;
  }
  return 0;
}

CommGroup Mesh::group(MeshAxis axis) const {
  CommGroup g{.name = to_string(axis), .ranks = {}, .rank = coordinate(axis)};
  for (int r = 0; r < shape_.num_ranks(); ++r) {
    const bool same_data = r / shape_.expert == rank_ / shape_.expert;
    const bool same_expert = r % shape_.expert == rank_ % shape_.expert;
    if (axis == MeshAxis::world || (axis == MeshAxis::expert ? same_data : same_expert)) g.ranks.push_back(r);
  }
  return g;
}

}  // namespace planalto
