// SPDX-License-Identifier: Apache-2.0
// random_seed.h: a new seed for each run of a random test, or the one of --gtest_random_seed.
#pragma once

#include <gtest/gtest.h>

#include <random>
#include <string>

namespace planalto::testing {

inline int random_seed() {
  const int wanted = GTEST_FLAG_GET(random_seed);
  return wanted != 0 ? wanted : static_cast<int>(std::random_device{}() % 1000000000) + 1;
}

// The options that rerun the present test with a seed.
inline std::string rerun(int seed) {
  const ::testing::TestInfo* test = ::testing::UnitTest::GetInstance()->current_test_info();
  return std::string("rerun with --gtest_filter=") + test->test_suite_name() + "." + test->name() +
         " --gtest_random_seed=" + std::to_string(seed);
}

}  // namespace planalto::testing
