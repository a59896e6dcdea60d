// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <array>
#include <atomic>

#include "base/dtype.h"
#include "base/error.h"
#include "base/exec_context.h"

namespace planalto {
namespace {

TEST(ThreadPool, RunsEachWorkerOnceForManyEpochs) {
  for (int n : {1, 2, 3, 5}) {
    ThreadPool pool(n);
    std::array<std::atomic<int>, 5> seen{};
    for (int i = 0; i < 1000; ++i) {
      pool.run(
          [](void* arg, int w) {
            (*static_cast<std::array<std::atomic<int>, 5>*>(arg))[static_cast<std::size_t>(w)]++;
          },
          &seen);
    }
    for (int w = 0; w < 5; ++w) EXPECT_EQ(seen[static_cast<std::size_t>(w)], w < n ? 1000 : 0);
  }
}

TEST(Bf16, C105RoundsToNearestEvenOnTheScalarPath) {
  EXPECT_EQ(to_bf16(1.0F + 0x1p-8F).bits, 0x3f80);
  EXPECT_EQ(to_bf16(1.0F + 3 * 0x1p-8F).bits, to_bf16(1.015625F).bits);
  EXPECT_EQ(to_bf16(std::bit_cast<float>(0x7F7FFFFFU)).bits, 0x7f80);
  EXPECT_TRUE((to_bf16(std::bit_cast<float>(0x7F800001U)).bits & 0x7fff) > 0x7f80);
  EXPECT_EQ(to_bf16(-1.0F - 0x1p-8F).bits, 0xbf80);
  EXPECT_EQ(to_bf16(0x1p-127F).bits, 0x0040);  // C104
  EXPECT_EQ(to_bf16(0x1p-133F).bits, 0x0001);
}

TEST(Error, KeepsKindAndMessage) {
  try {
    fail(ErrorKind::data, "file {} is short", "x");
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::data);
    EXPECT_STREQ(e.what(), "file x is short");
    EXPECT_EQ(exit_code(e.kind()), 3);
  }
}

}  // namespace
}  // namespace planalto
