// SPDX-License-Identifier: Apache-2.0
#include "gradient/differences.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <sstream>

#include "base/random.h"

namespace planalto {

namespace {

constexpr std::size_t kLargest = 8, kOthers = 6, kDirections = 2;
// Truncation grows with its square, rounding of the loss with its inverse: both stay far below the bound.
constexpr double kStep = 1e-5;
// Of the gradient's largest element, for a direction of its root mean square. The fp32 sums of the engine stay below 7e-6 of it on
// every model here; the rest is room for other instruction sets.
constexpr double kBound = 3e-5;

// The worst of some pairs of gradient and difference.
class Worst {
 public:
  explicit Worst(double bound) : bound_(bound) {}
  void add(std::size_t index, double gradient, double difference) {
    const double error = std::abs(gradient - difference);
    if (std::isnan(error_) || error <= error_) return;  // a NaN is the worst
    error_ = error;
    index_ = index;
    gradient_ = gradient;
    difference_ = difference;
  }
  bool inside() const { return error_ <= bound_; }
  std::string describe() const {
    std::ostringstream text;
    text << index_ << ": gradient " << gradient_ << ", difference " << difference_ << ", bound " << bound_;
    return text.str();
  }

 private:
  double bound_;
  double error_ = -1.0, gradient_ = 0.0, difference_ = 0.0;
  std::size_t index_ = 0;
};

// Derivative along `direction`; values[i] is moved where it is not 0.
double derivative(std::vector<double>& values, const std::vector<double>& direction,
                  const std::function<double()>& loss) {
  const std::vector<double> before = values;
  auto loss_at = [&](double step) {
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = before[i] + step * direction[i];
    return loss();
  };
  const double above = loss_at(kStep), below = loss_at(-kStep);
  values = before;
  return (above - below) / (2.0 * kStep);
}

std::vector<std::size_t> elements_to_try(const std::string& name, const std::vector<float>& gradient) {
  std::vector<std::size_t> order(gradient.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return std::abs(gradient[a]) > std::abs(gradient[b]); });
  order.resize(std::min<std::size_t>(order.size(), kLargest));
  const Random random(9, name);
  for (std::uint64_t i = 0; i < kOthers; ++i) order.push_back(random.bits(i) % gradient.size());
  return order;
}

}  // namespace

void expect_central_differences(const std::string& name, const std::vector<float>& gradient,
                                std::vector<double>& values, const std::function<double()>& loss) {
  ASSERT_EQ(gradient.size(), values.size()) << name;
  double largest = 0.0, squares = 0.0;
  for (const float g : gradient) {
    largest = std::max(largest, std::abs(static_cast<double>(g)));
    squares += static_cast<double>(g) * static_cast<double>(g);
  }
  std::vector<double> direction(values.size(), 0.0);
  Worst elements(kBound * largest);
  for (const std::size_t i : elements_to_try(name, gradient)) {
    direction[i] = 1.0;
    elements.add(i, static_cast<double>(gradient[i]), derivative(values, direction, loss));
    direction[i] = 0.0;
  }
  EXPECT_TRUE(elements.inside()) << name << ": element " << elements.describe();
  const double length = std::sqrt(static_cast<double>(values.size()));
  Worst directions(kBound * std::sqrt(squares) / length);
  for (std::size_t k = 0; k < kDirections; ++k) {
    const Random random(13 + k, name);
    double along = 0.0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      direction[i] = (random.bits(i) % 2 == 0 ? 1.0 : -1.0) / length;
      along += direction[i] * static_cast<double>(gradient[i]);
    }
    directions.add(k, along, derivative(values, direction, loss));
  }
  EXPECT_TRUE(directions.inside()) << name << ": direction " << directions.describe();
}

}  // namespace planalto
