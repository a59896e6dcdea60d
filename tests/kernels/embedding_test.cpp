// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include "base/error.h"
#include "kernels/ref/embedding.h"
#include "kernels/table.h"
#include "support/kernel_testing.h"

namespace planalto::kernels {
namespace {

using test::HostMatrix;

TEST(Embedding, CopiesTheRowsOfTheirIdsAndStopsAtTheCount) {
  const std::int32_t ids[] = {4, 0, 4, 2, -9};
  const std::int64_t count = 4;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    HostMatrix table(dtype, 5, 37, 40);
    test::fill_random(table, 1);
    test::for_each_context([&](const ExecContext& ctx) {
      HostMatrix y(dtype, 5, 37, 41);
      embedding_forward(ctx,
                        {.table = table, .ids = ids, .y = y, .tokens = {.count = &count, .capacity = 5}});
      for (std::int64_t t = 0; t < count; ++t) {
        for (std::int64_t d = 0; d < 37; ++d) ASSERT_EQ(y.at(t, d), table.at(ids[t], d));
      }
      EXPECT_TRUE(test::untouched(y, count));
    });
  }
}

TEST(Embedding, GradientOfRepeatedIdsIsExactOnIntegers) {
  constexpr std::int64_t kTokens = 211, kVocabulary = 19;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const std::int64_t d : {1, 16, 77, 200}) {
      for (const bool accumulate : {false, true}) {
        SCOPED_TRACE(testing::Message() << to_string(dtype) << ", D " << d << ", accumulate " << accumulate);
        test::Random random(3);
        std::vector<std::int32_t> ids(kTokens);
        for (auto& id : ids)
          id = static_cast<std::int32_t>(random.below(kVocabulary - 1));  // the last has no token
        HostMatrix dy(dtype, kTokens, d, d + 3), before(DType::f32, kVocabulary, d);
        test::fill_integers(dy, 4);
        test::fill_integers(before, 5);
        const std::int64_t count = 200;
        test::poison_rows(dy, count);
        ids[count] = -1;
        EmbeddingBackward a{.ids = ids.data(),
                            .dy = dy,
                            .padding_id = 3,
                            .accumulate = accumulate,
                            .tokens = {.count = &count, .capacity = kTokens}};
        HostMatrix want = before;
        a.dtable = want;
        reference::embedding_backward(a);
        test::for_each_context([&](const ExecContext& ctx) {
          HostMatrix got = before;
          a.dtable = got;
          embedding_backward(ctx, a);
          EXPECT_TRUE(test::close(got, want));
          for (std::int64_t c = 0; c < d; ++c) {
            ASSERT_EQ(got.at(3, c), accumulate ? before.at(3, c) : 0.0);
            ASSERT_EQ(got.at(kVocabulary - 1, c), accumulate ? before.at(kVocabulary - 1, c) : 0.0);
          }
        });
      }
    }
  }
}

// 2^24 + 1 - 2^24 in fp32 is 0 or 1 by the order of the additions.
TEST(Embedding, AddsTheTokensOfOneIdInTheirOrder) {
  const std::int32_t ids[] = {0, 0, 0, 1, 1, 1};
  const double values[] = {0x1p24, 1, -0x1p24, 0x1p24, -0x1p24, 1};
  HostMatrix dy(DType::f32, 6, 300);
  for (std::int64_t t = 0; t < 6; ++t) {
    for (std::int64_t d = 0; d < 300; ++d) dy.set(t, d, values[t]);
  }
  test::for_each_context([&](const ExecContext& ctx) {
    HostMatrix dtable(DType::f32, 2, 300);
    embedding_backward(ctx, {.ids = ids, .dy = dy, .dtable = dtable, .tokens = {.capacity = 6}});
    for (std::int64_t d = 0; d < 300; ++d) {
      ASSERT_EQ(dtable.at(0, d), 0.0);
      ASSERT_EQ(dtable.at(1, d), 1.0);
    }
  });
}

TEST(Embedding, NoTokenLeavesAZeroGradient) {
  const std::int64_t count = 0;
  test::for_each_context([&](const ExecContext& ctx) {
    HostMatrix dy(DType::bf16, 2, 8), dtable(DType::f32, 3, 8);
    embedding_backward(ctx, {.dy = dy, .dtable = dtable, .tokens = {.count = &count, .capacity = 2}});
    for (std::int64_t v = 0; v < 3; ++v) {
      for (std::int64_t d = 0; d < 8; ++d) ASSERT_EQ(dtable.at(v, d), 0.0);
    }
  });
}

TEST(Embedding, NamesAnIdOutsideTheTable) {
  ThreadPool pool(1);
  const ExecContext ctx{&pool, &kernel_table(Isa::avx2)};
  HostMatrix table(DType::f32, 5, 4), y(DType::f32, 2, 4);
  for (const std::int32_t bad : {-1, 5}) {
    const std::int32_t ids[] = {0, bad};
    try {
      embedding_forward(ctx, {.table = table, .ids = ids, .y = y, .tokens = {.capacity = 2}});
      ADD_FAILURE() << "id " << bad << " was accepted";
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::data);
      EXPECT_THAT(e.what(), testing::HasSubstr(std::to_string(bad) + " at position 1"));
    }
  }
}

}  // namespace
}  // namespace planalto::kernels
