// SPDX-License-Identifier: Apache-2.0
#include "bench/harness/shapes.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <sstream>

#include "base/error.h"
#include "base/random.h"

namespace planalto::bench {

namespace {

bool parse_rows(const std::string& text, Shape* s) {
  int end = 0;
  long long first = 0, second = 0;
  if (std::sscanf(text.c_str(), "zipf:%lldx%lld%n", &first, &second, &end) == 2) {
    s->top_k = first, s->tokens = second;
    return end == static_cast<int>(text.size()) && first > 0 && first <= s->experts && second > 0;
  }
  if (std::sscanf(text.c_str(), "%lld%n", &first, &end) != 1) return false;
  s->rows_each = first;
  return end == static_cast<int>(text.size()) && first > 0;
}

Shape parse_shape(const std::string& line, const std::string& model, const std::string& where) {
  std::istringstream words(line);
  Shape s;
  std::string kind, rows, rest;
  std::int64_t first = 0, second = 0;
  const bool whole = (words >> kind >> s.name >> s.experts >> first >> second >> rows) && !(words >> rest);
  if (!whole || (kind != "product" && kind != "ffn") || s.experts < 1 || first < 1 || second < 1 ||
      !parse_rows(rows, &s)) {
    fail(ErrorKind::data, "{}: \"{}\" is neither \"product NAME E N K ROWS\" nor \"ffn NAME E D F ROWS\"",
         where, line);
  }
  s.name = model + "/" + s.name;
  s.kind = kind == "ffn" ? Shape::Kind::ffn : Shape::Kind::product;
  (kind == "ffn" ? s.d : s.n) = first;
  (kind == "ffn" ? s.f : s.k) = second;
  return s;
}

void read_file(const std::filesystem::path& path, std::vector<Shape>* shapes) {
  std::ifstream file(path);
  if (!file) fail(ErrorKind::io, "{}: cannot be read", path.string());
  int number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    const std::size_t first = line.find_first_not_of(" \t");
    if (first == std::string::npos || line[first] == '#') continue;
    shapes->push_back(parse_shape(line, path.stem().string(), path.string() + ":" + std::to_string(number)));
  }
}

}  // namespace

std::vector<std::int64_t> Shape::offsets(std::uint64_t seed) const {
  std::vector<std::int64_t> rows(static_cast<std::size_t>(experts), rows_each);
  const auto num = static_cast<std::size_t>(experts);
  if (top_k > 0) {
    const Random random(seed, "routing");
    std::uint64_t drawn = 0;
    std::vector<std::size_t> order(num);
    std::vector<double> dealt(num), popularity(num), score(num);
    std::iota(order.begin(), order.end(), std::size_t{0});
    for (double& v : dealt) v = random.uniform(drawn++);
    std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return dealt[a] < dealt[b]; });
    for (std::size_t rank = 0; rank < num; ++rank) {
      popularity[order[rank]] = -std::log(static_cast<double>(rank + 1));
    }
    // The K largest of popularity plus Gumbel noise are K draws without replacement.
    for (std::int64_t t = 0; t < tokens; ++t) {
      for (std::size_t e = 0; e < num; ++e) {
        score[e] = popularity[e] - std::log(-std::log1p(-random.uniform(drawn++)));
      }
      std::partial_sort(order.begin(), order.begin() + top_k, order.end(),
                        [&](std::size_t a, std::size_t b) { return score[a] > score[b]; });
      for (std::int64_t i = 0; i < top_k; ++i) ++rows[order[static_cast<std::size_t>(i)]];
    }
  }
  std::vector<std::int64_t> offsets(num + 1, 0);
  std::partial_sum(rows.begin(), rows.end(), offsets.begin() + 1);
  return offsets;
}

std::vector<Shape> read_shapes(const std::string& path, Shape::Kind kind, const std::string& only) {
  std::vector<std::filesystem::path> files;
  if (std::filesystem::is_directory(path)) {
    for (const auto& entry : std::filesystem::directory_iterator(path)) {
      if (entry.path().extension() == ".txt") files.push_back(entry.path());
    }
    std::sort(files.begin(), files.end());
  } else {
    files.emplace_back(path);
  }
  std::vector<Shape> shapes;
  for (const auto& file : files) read_file(file, &shapes);
  std::erase_if(shapes,
                [&](const Shape& s) { return s.kind != kind || s.name.find(only) == std::string::npos; });
  return shapes;
}

}  // namespace planalto::bench
