// SPDX-License-Identifier: Apache-2.0
// shapes.h: the shapes of bench/shapes/*.txt, one file a model, one shape a line; '#' begins a comment.
//   product NAME E N K ROWS     E weights [N, K]; E = 1 is a dense product
//   ffn     NAME E D F ROWS     E experts of width F on activations of width D
// ROWS is the number of rows of every expert, or zipf:KxT: T tokens with K distinct experts each, whose popularity falls
// as 1 / rank, the ranks dealt out at random.
// Errors      io, data: as "file: line"
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace planalto::bench {

struct Shape {
  enum class Kind { product, ffn };
  Kind kind = Kind::product;
  std::string name;  // "model/name"
  std::int64_t experts = 0;
  std::int64_t n = 0, k = 0;  // of a product
  std::int64_t d = 0, f = 0;  // of an ffn
  std::int64_t rows_each = 0;
  std::int64_t top_k = 0, tokens = 0;  // zipf
  std::int64_t rows() const { return top_k > 0 ? top_k * tokens : experts * rows_each; }
  // [E + 1]; other seeds give other routings of the same number of rows. Without zipf always the same.
  std::vector<std::int64_t> offsets(std::uint64_t seed) const;
};

// All files of the folder, or the one file. only: a part of the names that are wanted.
std::vector<Shape> read_shapes(const std::string& path, Shape::Kind kind, const std::string& only);

}  // namespace planalto::bench
