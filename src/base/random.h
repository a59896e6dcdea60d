// SPDX-License-Identifier: Apache-2.0
// random.h: random numbers as a function of (key, counter): no state to save, any element on its own.
// Numerics    uniform: 53 bits in [0, 1); normal: Box-Muller in double, mean 0, deviation 1
// Source      the finaliser of splitmix64 (Steele, Lea, Flood 2014) over a Weyl sequence
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>
#include <string_view>

namespace planalto {

// Every bit of the result depends on every bit of x.
constexpr std::uint64_t mix64(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

class Random {
 public:
  explicit constexpr Random(std::uint64_t key) : key_(mix64(key)) {}
  // A stream of its own for every name under one seed.
  Random(std::uint64_t seed, std::string_view name) : key_(mix64(seed)) {
    for (const char c : name) key_ = mix64(key_ ^ static_cast<unsigned char>(c));
  }

  std::uint64_t bits(std::uint64_t i) const { return mix64(key_ ^ mix64(i)); }
  double uniform(std::uint64_t i) const { return static_cast<double>(bits(i) >> 11) * 0x1p-53; }
  double normal(std::uint64_t i) const {
    const double radius = std::sqrt(-2.0 * std::log(1.0 - uniform(2 * i)));
    return radius * std::cos(2.0 * std::numbers::pi * uniform(2 * i + 1));
  }

 private:
  std::uint64_t key_;
};

}  // namespace planalto
