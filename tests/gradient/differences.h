// SPDX-License-Identifier: Apache-2.0
// differences.h: a gradient of the engine against central differences of a loss in double.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace planalto {

// A gradient and the values in double that it belongs to, which loss() reads; values are as they were afterwards.
// Looked at: the largest elements, some others, and a direction through all elements, so that none is left out.
void expect_central_differences(const std::string& name, const std::vector<float>& gradient,
                                std::vector<double>& values, const std::function<double()>& loss);

}  // namespace planalto
