// SPDX-License-Identifier: Apache-2.0
#include "moe/forced_routes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "support/expect_error.h"

namespace planalto::moe {
namespace {

using Ids = std::vector<std::int32_t>;
using ::planalto::testing::expect_error;

TEST(ForcedRoutes, BalancedWrapsAroundAndAscends) {
  Ids ids(10, -1);
  forced_ids(ForcedPattern::balanced, 5, 2, ids);
  EXPECT_EQ(ids, (Ids{0, 1, 2, 3, 0, 4, 1, 2, 3, 4}));
}

TEST(ForcedRoutes, BalancedCountsDifferByOneAtMost) {
  for (const std::int64_t num_experts : {1, 7, 16}) {
    for (std::int64_t top_k = 1; top_k <= num_experts; ++top_k) {
      Ids ids(static_cast<std::size_t>(13 * top_k), -1);
      forced_ids(ForcedPattern::balanced, num_experts, top_k, ids);
      std::vector<std::int64_t> counts(static_cast<std::size_t>(num_experts), 0);
      for (const std::int32_t id : ids) ++counts.at(static_cast<std::size_t>(id));
      const auto [least, most] = std::minmax_element(counts.begin(), counts.end());
      EXPECT_LE(*most - *least, 1) << "E " << num_experts << " K " << top_k;
    }
  }
}

TEST(ForcedRoutes, AllToOneSendsEveryTokenToTheSameExperts) {
  Ids ids(6, -1);
  forced_ids(ForcedPattern::all_to_one, 8, 2, ids);
  EXPECT_EQ(ids, (Ids{0, 1, 0, 1, 0, 1}));
}

TEST(ForcedRoutes, RecordedIdsAreOrderedInsideTheirToken) {
  Ids ids{3, 0, 1, 2, 7, 4};
  order_recorded_ids(8, 3, "routes.bin", ids);
  EXPECT_EQ(ids, (Ids{0, 1, 3, 2, 4, 7}));
}

TEST(ForcedRoutes, C010RecordedIdsThatAreNoExpertAreRefusedWithTheirValue) {
  for (const std::int32_t bad : {8, -1}) {
    Ids ids{0, 1, 2, bad};
    expect_error(ErrorKind::data, {"routes.bin", "token 1", std::to_string(bad), "0 to 7"},
                 [&] { order_recorded_ids(8, 2, "routes.bin", ids); });
  }
  Ids twice{5, 5};
  expect_error(ErrorKind::data, {"routes.bin", "token 0", "5 twice"},
               [&] { order_recorded_ids(8, 2, "routes.bin", twice); });
  Ids odd{1, 2, 3};
  expect_error(ErrorKind::data, {"3 expert ids", "top_k 2"},
               [&] { order_recorded_ids(8, 2, "routes.bin", odd); });
}

}  // namespace
}  // namespace planalto::moe
