// SPDX-License-Identifier: Apache-2.0
// mxfp8_test.cpp: elements and scales of MXFP8 worked out by hand, and the copies of matrices against the reference bodies.
#include "kernels/mxfp8.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "kernels/mxfp8_testing.h"
#include "kernels/table.h"
#include "support/expect_error.h"
#include "support/random_seed.h"

namespace planalto::kernels {
namespace {

using test::code_at;
using test::HostMatrix;
using test::Mxfp8Copies;
using test::offsets_of;

constexpr Mxfp8Format kFormats[] = {Mxfp8Format::e4m3, Mxfp8Format::e5m2};
constexpr Mxfp8ScaleRule kRules[] = {Mxfp8ScaleRule::rceil, Mxfp8ScaleRule::floor};
constexpr float kInf = std::numeric_limits<float>::infinity();
const float kNaN = std::numeric_limits<float>::quiet_NaN();

std::uint32_t bits_of(float v) {
  return std::bit_cast<std::uint32_t>(v);
}

// ---- Elements and scales ----

TEST(Mxfp8Element, C021ScaleBytesAtTheEnds) {
  EXPECT_EQ(e8m0_to_float(0), 0x1p-127F);
  EXPECT_EQ(e8m0_to_float(1), 0x1p-126F);
  EXPECT_EQ(e8m0_to_float(127), 1.0F);
  EXPECT_EQ(e8m0_to_float(254), 0x1p127F);
  EXPECT_TRUE(std::isnan(e8m0_to_float(255)));
  test::for_each_context([](const ExecContext& ctx) {
    const std::uint8_t bytes[] = {0, 1, 127, 254, 255};
    const double want[] = {0x1p-127, 0x1p-126, 1.0, 0x1p127, 0.0};
    HostMatrix codes(DType::u8, 5, 32), scales(DType::u8, 5, 1), y(DType::f32, 5, 32);
    for (std::int64_t r = 0; r < 5; ++r) {
      scales.set(r, 0, bytes[r]);
      for (std::int64_t c = 0; c < 32; ++c) codes.set(r, c, 0x38);  // 1.0
    }
    mxfp8_dequantize(ctx, {.codes = codes, .scales = scales, .y = y, .rows = {.capacity = 5}});
    for (std::int64_t r = 0; r < 4; ++r) {
      for (std::int64_t c = 0; c < 32; ++c) EXPECT_EQ(y.at(r, c), want[r]) << r << " " << c;
    }
    for (std::int64_t c = 0; c < 32; ++c) EXPECT_TRUE(std::isnan(y.at(4, c)));
  });
}

TEST(Mxfp8Element, C024FloatToScaleByteGoesDownBelowOneAsWell) {
  EXPECT_EQ(e8m0_from_float(0.3F, Mxfp8ScaleRule::floor), 125);
  EXPECT_EQ(e8m0_from_float(0.25F, Mxfp8ScaleRule::floor), 125);
  EXPECT_EQ(e8m0_from_float(0.3F, Mxfp8ScaleRule::rceil), 126);
  EXPECT_EQ(e8m0_from_float(0.25F, Mxfp8ScaleRule::rceil), 125);
}

TEST(Mxfp8Element, CornersOfFloatToScaleByte) {
  for (const Mxfp8ScaleRule rule : kRules) {
    const bool up = rule == Mxfp8ScaleRule::rceil;
    EXPECT_EQ(e8m0_from_float(kNaN, rule), 255);
    EXPECT_EQ(e8m0_from_float(-kNaN, rule), 255);
    EXPECT_EQ(e8m0_from_float(kInf, rule), 254);
    EXPECT_EQ(e8m0_from_float(0.0F, rule), 0);
    EXPECT_EQ(e8m0_from_float(std::bit_cast<float>(0x00400000U), rule), 0);  // 2^-127
    EXPECT_EQ(e8m0_from_float(std::bit_cast<float>(0x00000001U), rule), 0);
    EXPECT_EQ(e8m0_from_float(std::bit_cast<float>(0x00400001U), rule), up ? 1 : 0);
    EXPECT_EQ(e8m0_from_float(std::bit_cast<float>(0x007fffffU), rule), up ? 1 : 0);
    EXPECT_EQ(e8m0_from_float(0x1p-126F, rule), 1);
    EXPECT_EQ(e8m0_from_float(0x1p127F, rule), 254);
    EXPECT_EQ(e8m0_from_float(std::numeric_limits<float>::max(), rule), 254);
  }
}

// The scale of a block is amax / 448 (57344) rounded to a power of two, for every bf16 amax and those fp32 next to them.
// The quotient in fp32 is rounded to the same side everywhere but for one number: right above 448 2^-127 it falls on
// 2^-127, though the next power of two is 2^-126.
TEST(Mxfp8Element, ScaleOfABlockIsItsQuotientRounded) {
  for (const Mxfp8Format format : kFormats) {
    const float largest = format == Mxfp8Format::e4m3 ? 448.0F : 57344.0F;
    std::int64_t differences = 0;
    for (std::uint32_t high = 0; high < 0x7f80; ++high) {
      for (const std::uint32_t low : {0U, 1U, 2U, 0x7fffU, 0xffffU}) {
        const std::uint32_t amax = (high << 16) | low;
        const auto value = std::bit_cast<float>(amax);
        const int scale = mxfp8_block_scale(amax, format, Mxfp8ScaleRule::rceil);
        differences += scale != e8m0_from_float(value / largest, Mxfp8ScaleRule::rceil);
        ASSERT_EQ(scale, reference::mxfp8_scale(static_cast<double>(value), format, Mxfp8ScaleRule::rceil))
            << value;
        ASSERT_EQ(mxfp8_block_scale(amax, format, Mxfp8ScaleRule::floor),
                  reference::mxfp8_scale(static_cast<double>(value), format, Mxfp8ScaleRule::floor))
            << value;
      }
    }
    EXPECT_EQ(differences, 1);
    EXPECT_EQ(mxfp8_block_scale(bits_of(largest * 0x1p-127F) + 1, format, Mxfp8ScaleRule::rceil), 1);
  }
}

TEST(Mxfp8Element, C025SubnormalsAndEveryMidpoint) {
  EXPECT_EQ(mxfp8_decode(0x01, Mxfp8Format::e4m3), 0.001953125F);
  EXPECT_EQ(mxfp8_decode(0x07, Mxfp8Format::e4m3), 0.013671875F);
  EXPECT_EQ(mxfp8_decode(0x08, Mxfp8Format::e4m3), 0.015625F);
  EXPECT_EQ(bits_of(mxfp8_decode(0x80, Mxfp8Format::e4m3)), 0x80000000U);
  EXPECT_EQ(mxfp8_decode(0x7e, Mxfp8Format::e4m3), 448.0F);
  EXPECT_TRUE(std::isnan(mxfp8_decode(0x7f, Mxfp8Format::e4m3)));
  EXPECT_EQ(mxfp8_encode(464.0F, Mxfp8Format::e4m3), 0x7e);
  EXPECT_EQ(mxfp8_decode(0x01, Mxfp8Format::e5m2), 0x1p-16F);
  EXPECT_EQ(mxfp8_decode(0x7b, Mxfp8Format::e5m2), 57344.0F);
  EXPECT_EQ(mxfp8_decode(0xfc, Mxfp8Format::e5m2), -kInf);
  for (const Mxfp8Format format : kFormats) {
    const int last = format == Mxfp8Format::e4m3 ? 0x7e : 0x7b;
    for (int code = 0; code <= last; ++code) {
      const float value = mxfp8_decode(static_cast<std::uint8_t>(code), format);
      EXPECT_EQ(static_cast<double>(value), reference::mxfp8_value(static_cast<std::uint8_t>(code), format))
          << code;
      EXPECT_EQ(mxfp8_encode(value, format), code);
      EXPECT_EQ(mxfp8_encode(-value, format), code | 0x80);
      if (code == last) continue;
      // Neighbouring codes differ by one: the even one of the two takes the middle between them.
      const float next = mxfp8_decode(static_cast<std::uint8_t>(code + 1), format),
                  middle = (value + next) / 2.0F;
      const int even = code % 2 == 0 ? code : code + 1;
      EXPECT_EQ(mxfp8_encode(middle, format), even) << middle;
      EXPECT_EQ(mxfp8_encode(-middle, format), even | 0x80) << middle;
      EXPECT_EQ(mxfp8_encode(std::nextafter(middle, 0.0F), format), code) << middle;
      EXPECT_EQ(mxfp8_encode(std::nextafter(middle, kInf), format), code + 1) << middle;
    }
    EXPECT_EQ(mxfp8_encode(kInf, format), last);
    EXPECT_EQ(mxfp8_encode(-std::numeric_limits<float>::max(), format), last | 0x80);
    EXPECT_EQ(mxfp8_encode(kNaN, format), 0x7f);
    EXPECT_EQ(mxfp8_encode(-kNaN, format), 0x7f);
  }
}

// ---- Blocks ----

// Rows of x as blocks of 32 (both bf16 and fp32 where exact), quantized by rows; visit(scales, codes).
template <class Check>
void quantize_rows_of(const HostMatrix& x, Mxfp8Format format, Mxfp8ScaleRule rule, const Check& check) {
  test::for_each_context([&](const ExecContext& ctx) {
    Mxfp8Copies got(x.rows(), 0, x.cols());
    Mxfp8Quantize a{.x = x, .format = format, .rule = rule, .rows = {.capacity = x.rows()}};
    got.into(&a, true, false);
    mxfp8_quantize(ctx, a);
    check(got.row_scales, got.row_codes);
  });
}

TEST(Mxfp8Quantize, C022ZeroBlocks) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    HostMatrix x(dtype, 1, 160);
    for (std::int64_t c = 0; c < 160; ++c)
      x.set(0, c, c < 32 ? 0.0 : c < 64 ? -0.0 : c < 96 ? 1.0 : c < 128 ? 0.0 : -448.0);
    test::for_each_context([&](const ExecContext& ctx) {
      Mxfp8Copies got(1, 0, 160);
      Mxfp8Quantize a{.x = x, .rows = {.capacity = 1}};
      got.into(&a, true, false);
      mxfp8_quantize(ctx, a);
      const int scales[] = {0, 0, 119, 0, 127}, codes[] = {0x00, 0x80, 0x78, 0x00, 0xfe};  // 1 = 256 x 2^-8
      for (std::int64_t c = 0; c < 160; ++c) {
        EXPECT_EQ(code_at(got.row_scales, 0, c / 32), scales[c / 32]);
        EXPECT_EQ(code_at(got.row_codes, 0, c), codes[c / 32]) << c;
      }
      HostMatrix y(DType::f32, 1, 160);
      mxfp8_dequantize(ctx,
                       {.codes = got.row_codes, .scales = got.row_scales, .y = y, .rows = {.capacity = 1}});
      for (std::int64_t c = 0; c < 160; ++c) {
        EXPECT_EQ(y.at(0, c), x.at(0, c)) << c;
        EXPECT_EQ(std::signbit(y.at(0, c)), std::signbit(x.at(0, c))) << c;
      }
    });
  }
}

TEST(Mxfp8Quantize, C023TheScaleRuleIsTheSameOnEveryPath) {
  HostMatrix x(DType::f32, 6, 32);
  test::fill_zero(x);
  const double amax[] = {957.0, 448.0, 449.0,
                         464.0, 511.9, 448.0 + 0x1p-15};  // the last: next to 448 in fp32
  for (std::int64_t r = 0; r < 6; ++r) x.set(r, 7, amax[r]);
  const int up[] = {129, 127, 128, 128, 128, 128}, down[] = {128, 127, 127, 127, 127, 127};
  const auto value_of = [](int scale, int code) {
    return std::ldexp(reference::mxfp8_value(static_cast<std::uint8_t>(code), Mxfp8Format::e4m3),
                      scale - 127);
  };
  quantize_rows_of(x, Mxfp8Format::e4m3, Mxfp8ScaleRule::rceil,
                   [&](const HostMatrix& scales, const HostMatrix& codes) {
                     for (std::int64_t r = 0; r < 6; ++r) EXPECT_EQ(code_at(scales, r, 0), up[r]);
                     EXPECT_EQ(value_of(129, code_at(codes, 0, 7)), 960.0);
                   });
  quantize_rows_of(x, Mxfp8Format::e4m3, Mxfp8ScaleRule::floor,
                   [&](const HostMatrix& scales, const HostMatrix& codes) {
                     for (std::int64_t r = 0; r < 6; ++r) EXPECT_EQ(code_at(scales, r, 0), down[r]);
                     EXPECT_EQ(value_of(128, code_at(codes, 0, 7)), 896.0);
                     EXPECT_EQ(value_of(127, code_at(codes, 4, 7)), 448.0);
                   });
}

TEST(Mxfp8Quantize, UnderCeilingNothingSaturatesAndAnErrorIsAtMostHalfAStep) {
  HostMatrix x(DType::f32, 64, 96);
  test::fill_random(x, 5, -1.0, 1.0);
  for (std::int64_t r = 0; r < 64; ++r) {
    for (std::int64_t c = 0; c < 96; ++c) x.set(r, c, std::ldexp(x.at(r, c), static_cast<int>(r - 32)));
  }
  quantize_rows_of(
      x, Mxfp8Format::e4m3, Mxfp8ScaleRule::rceil, [&](const HostMatrix& scales, const HostMatrix& codes) {
        for (std::int64_t r = 0; r < 64; ++r) {
          for (std::int64_t c = 0; c < 96; ++c) {
            const double unit = std::ldexp(1.0, code_at(scales, r, c / 32) - 127), want = x.at(r, c);
            const double got = unit * reference::mxfp8_value(static_cast<std::uint8_t>(code_at(codes, r, c)),
                                                             Mxfp8Format::e4m3);
            const double step = std::max(std::ldexp(unit, -9), std::ldexp(1.0, std::ilogb(want) - 3));
            ASSERT_LE(std::abs(got - want), step / 2) << r << " " << c;
            ASSERT_LE(std::abs(want), 448.0 * unit);
          }
        }
      });
}

// A NaN takes its whole block, an infinity leaves nothing but itself; neither touches another block, row or column.
TEST(Mxfp8Quantize, NaNAndInfinityStayInTheirBlock) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    HostMatrix x(dtype, 40, 70);
    test::fill_random(x, 3, 1.0, 2.0);
    HostMatrix plain = x;
    x.set(3, 35, static_cast<double>(kNaN));
    x.set(5, 40, static_cast<double>(-kInf));
    x.set(37, 66, static_cast<double>(-kNaN));
    test::for_each_context([&](const ExecContext& ctx) {
      Mxfp8Copies got(40, 64, 70), want(40, 64, 70);
      Mxfp8Quantize a{.x = x, .rows = {.capacity = 40}};
      got.into(&a);
      mxfp8_quantize(ctx, a);
      a.x = plain;
      want.into(&a);
      mxfp8_quantize(ctx, a);
      for (std::int64_t r = 0; r < 40; ++r) {
        for (std::int64_t c = 0; c < 70; ++c) {
          const bool nan_row = (r == 3 && c / 32 == 1) || (r == 37 && c / 32 == 2),
                     inf_row = r == 5 && c / 32 == 1;
          const bool nan_column = (c == 35 && r < 32) || (c == 66 && r >= 32), inf_column = c == 40 && r < 32;
          const bool is_inf = r == 5 && c == 40;
          EXPECT_EQ(code_at(got.row_scales, r, c / 32), nan_row   ? 255
                                                        : inf_row ? 254
                                                                  : code_at(want.row_scales, r, c / 32));
          EXPECT_EQ(code_at(got.column_scales, r / 32, c), nan_column ? 255
                                                           : inf_column
                                                               ? 254
                                                               : code_at(want.column_scales, r / 32, c));
          // 1 .. 2 is at most 2^-126 of a scale of 2^127.
          EXPECT_EQ(code_at(got.row_codes, r, c), nan_row   ? 0x7f
                                                  : is_inf  ? 0xfe
                                                  : inf_row ? 0
                                                            : code_at(want.row_codes, r, c))
              << r << " " << c;
          EXPECT_EQ(code_at(got.column_codes, r, c), nan_column   ? 0x7f
                                                     : is_inf     ? 0xfe
                                                     : inf_column ? 0
                                                                  : code_at(want.column_codes, r, c))
              << r << " " << c;
        }
      }
    });
  }
}

// ---- Matrices against the reference bodies ----

struct Case {
  std::vector<std::int64_t> sizes;
  std::int64_t cols = 1, spare_rows = 0;
};

// Bits of every kind: numbers near each other, of all magnitudes, subnormals, zeros, now and then NaN and infinity.
void fill_bits(HostMatrix& x, test::Random& random) {
  const auto number = [&]() -> float {
    switch (random.below(12)) {
      case 0:
        return 0.0F;
      case 1:
        return -0.0F;
      case 2:
        return std::bit_cast<float>(static_cast<std::uint32_t>(random.next()) & 0x807fffffU);
      case 3:
        return std::bit_cast<float>(static_cast<std::uint32_t>(random.next()));
      default:
        return static_cast<float>(std::ldexp(random.uniform(-1.0, 1.0), static_cast<int>(random.below(20))));
    }
  };
  const Matrix m = x.view();
  const bool tame = random.below(2) == 0;  // else most blocks are of the rare kinds
  for (std::int64_t r = 0; r < m.rows; ++r) {
    const auto size = static_cast<int>(random.below(270)) - 140;
    for (std::int64_t c = 0; c < m.cols; ++c) {
      const float v = tame ? static_cast<float>(std::ldexp(random.uniform(-1.0, 1.0), size)) : number();
      if (m.dtype == DType::f32) m.row<float>(r)[c] = v;
      if (m.dtype == DType::bf16) m.row<bf16>(r)[c] = to_bf16(v);
    }
  }
}

void expect_reference(const Case& s, DType dtype, Mxfp8Format format, Mxfp8ScaleRule rule,
                      std::uint64_t seed) {
  const std::vector<std::int64_t> offsets = offsets_of(s.sizes);
  const std::int64_t rows = offsets.back(), capacity = rows + s.spare_rows;
  const Segments segments{static_cast<std::int64_t>(s.sizes.size()), offsets.data()};
  const std::int64_t padded = mxfp8_max_padded_rows(capacity, segments.num);
  test::Random random(seed);
  HostMatrix x(dtype, capacity, s.cols, s.cols + 3);
  fill_bits(x, random);
  test::poison_rows(x, rows);
  Mxfp8Quantize a{
      .x = x, .format = format, .rule = rule, .segments = segments, .rows = {.capacity = capacity}};
  Mxfp8Copies want(capacity, padded, s.cols, 5);
  want.into(&a);
  reference::mxfp8_quantize(a);
  test::for_each_context([&](const ExecContext& ctx) {
    Mxfp8Copies both(capacity, padded, s.cols, 5), rows_only = both, columns_only = both;
    both.into(&a);
    mxfp8_quantize(ctx, a);
    rows_only.into(&a, true, false);
    mxfp8_quantize(ctx, a);
    columns_only.into(&a, false, true);
    mxfp8_quantize(ctx, a);
    // What lies past the last row or in a gap is poison in both.
    for (const Mxfp8Copies* got : {&both, &rows_only}) {
      ASSERT_TRUE(test::same_bits(got->row_scales, want.row_scales));
      ASSERT_TRUE(test::same_bits(got->row_codes, want.row_codes));
    }
    for (const Mxfp8Copies* got : {&both, &columns_only}) {
      ASSERT_TRUE(test::same_bits(got->column_scales, want.column_scales));
      ASSERT_TRUE(test::same_bits(got->column_codes, want.column_codes));
    }
    EXPECT_TRUE(test::untouched(rows_only.column_codes));
    EXPECT_TRUE(test::untouched(columns_only.row_codes));
    for (const DType to : {DType::f32, DType::bf16}) {
      HostMatrix y(to, capacity, s.cols, s.cols + 1), y_want(to, capacity, s.cols, s.cols + 1);
      for (const Mxfp8Axis axis : {Mxfp8Axis::row, Mxfp8Axis::column}) {
        const bool by_rows = axis == Mxfp8Axis::row;
        Mxfp8Dequantize d{.codes = by_rows ? both.row_codes : both.column_codes,
                          .scales = by_rows ? both.row_scales : both.column_scales,
                          .y = y,
                          .axis = axis,
                          .format = format,
                          .segments = segments,
                          .rows = {.capacity = capacity}};
        mxfp8_dequantize(ctx, d);
        d.y = y_want;
        reference::mxfp8_dequantize(d);
        ASSERT_TRUE(test::same_bits(y, y_want)) << (by_rows ? "by rows" : "by columns");
      }
    }
  });
}

TEST(Mxfp8Quantize, EveryPathHasTheBitsOfTheReference) {
  const Case cases[] = {{{1}, 1},
                        {{32}, 32},
                        {{33}, 31},
                        {{64}, 160},
                        {{0, 5, 0, 0, 40, 1, 32, 31, 0}, 65, 3},
                        {{3, 128, 2}, 256, 1},
                        {{0, 0}, 40, 4},
                        {{7}, 0},
                        {{100}, 7}};
  const int seed = testing::random_seed();
  SCOPED_TRACE(testing::rerun(seed));
  std::uint64_t n = 0;
  for (const Case& s : cases) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      for (const Mxfp8Format format : kFormats) {
        for (const Mxfp8ScaleRule rule : kRules) {
          SCOPED_TRACE(::testing::Message()
                       << "[" << ::testing::PrintToString(s.sizes) << ", " << s.cols << "] "
                       << to_string(dtype) << (format == Mxfp8Format::e4m3 ? " e4m3" : " e5m2")
                       << (rule == Mxfp8ScaleRule::rceil ? " rceil" : " floor"));
          for (int repeat = 0; repeat < 2; ++repeat) {
            expect_reference(s, dtype, format, rule, static_cast<std::uint64_t>(seed) * 1000 + n++);
            if (HasFatalFailure()) return;
          }
        }
      }
    }
  }
}

TEST(Mxfp8Quantize, C026ABlockNeverSpansTwoExperts) {
  const std::vector<std::vector<std::int64_t>> splits{{44, 20}, {1, 63}, {32, 0, 32}};
  for (const std::vector<std::int64_t>& sizes : splits) {
    const std::vector<std::int64_t> offsets = offsets_of(sizes);
    HostMatrix x(DType::bf16, 64, 48);
    test::fill_random(x, 9, 0.5, 1.0);
    const std::int64_t first_of_b = sizes[0], rows_of_b = 64 - first_of_b;
    HostMatrix b(DType::bf16, rows_of_b, 48);
    for (std::int64_t r = 0; r < rows_of_b; ++r) {
      for (std::int64_t c = 0; c < 48; ++c) {
        x.set(first_of_b + r, c, x.at(first_of_b + r, c) * 1e-3);
        b.set(r, c, x.at(first_of_b + r, c));
      }
    }
    const Segments segments{static_cast<std::int64_t>(sizes.size()), offsets.data()};
    const std::int64_t padded = mxfp8_padded_rows(segments, 64), padded_b = mxfp8_padded_rows({}, rows_of_b);
    ASSERT_EQ(padded, sizes[0] == 44 ? 96 : sizes[0] == 1 ? 96 : 64);
    test::for_each_context([&](const ExecContext& ctx) {
      Mxfp8Copies all(64, padded, 48), alone(rows_of_b, padded_b, 48);
      Mxfp8Quantize a{.x = x, .segments = segments, .rows = {.capacity = 64}};
      all.into(&a, false, true);
      mxfp8_quantize(ctx, a);
      Mxfp8Quantize a_alone{.x = b, .rows = {.capacity = rows_of_b}};
      alone.into(&a_alone, false, true);
      mxfp8_quantize(ctx, a_alone);
      const std::int64_t shift = padded - padded_b;
      for (std::int64_t r = 0; r < padded_b; ++r) {
        for (std::int64_t c = 0; c < 48; ++c) {
          ASSERT_EQ(code_at(all.column_codes, shift + r, c), code_at(alone.column_codes, r, c))
              << r << " " << c;
          ASSERT_EQ(code_at(all.column_scales, (shift + r) / 32, c), code_at(alone.column_scales, r / 32, c));
          ASSERT_TRUE(r < rows_of_b || code_at(alone.column_codes, r, c) == 0);
        }
      }
      EXPECT_LE(code_at(all.column_scales, shift / 32, 0) + 8, code_at(all.column_scales, 0, 0));
    });
  }
}

// Every pair of a code and a scale.
TEST(Mxfp8Dequantize, EveryCodeWithEveryScale) {
  HostMatrix codes(DType::u8, 256, 256 * 32), scales(DType::u8, 256, 256),
      column_scales(DType::u8, 8, 256 * 32);
  for (std::int64_t r = 0; r < 256; ++r) {
    for (std::int64_t c = 0; c < 256 * 32; ++c) codes.set(r, c, static_cast<double>(r));
    for (std::int64_t c = 0; c < 256; ++c) scales.set(r, c, static_cast<double>(c));
  }
  for (std::int64_t r = 0; r < 8; ++r) {
    for (std::int64_t c = 0; c < 256 * 32; ++c) column_scales.set(r, c, static_cast<double>(c % 256));
  }
  for (const Mxfp8Format format : kFormats) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      for (const Mxfp8Axis axis : {Mxfp8Axis::row, Mxfp8Axis::column}) {
        Mxfp8Dequantize d{.codes = codes,
                          .scales = axis == Mxfp8Axis::row ? scales : column_scales,
                          .y = {},
                          .axis = axis,
                          .format = format,
                          .rows = {.capacity = 256}};
        HostMatrix want(dtype, 256, 256 * 32);
        d.y = want;
        reference::mxfp8_dequantize(d);
        test::for_each_context([&](const ExecContext& ctx) {
          if (ctx.pool->num_threads() != 2) return;
          HostMatrix y(dtype, 256, 256 * 32);
          d.y = y;
          mxfp8_dequantize(ctx, d);
          EXPECT_TRUE(test::same_bits(y, want));
        });
      }
    }
  }
}

TEST(Mxfp8Layout, PaddedRows) {
  const auto padded = [](const std::vector<std::int64_t>& sizes) {
    const std::vector<std::int64_t> offsets = offsets_of(sizes);
    return mxfp8_padded_rows({static_cast<std::int64_t>(sizes.size()), offsets.data()}, offsets.back());
  };
  EXPECT_EQ(padded({44, 20}), 96);
  EXPECT_EQ(padded({1, 63}), 96);
  EXPECT_EQ(padded({32, 0, 32}), 64);
  EXPECT_EQ(padded({0, 0}), 0);
  EXPECT_EQ(padded({1, 1, 1}), 96);
  EXPECT_EQ(mxfp8_padded_rows({}, 33), 64);
  EXPECT_EQ(mxfp8_max_padded_rows(3, 8), 96);  // one row in each of three
  EXPECT_EQ(mxfp8_max_padded_rows(64, 2), 96);
  EXPECT_EQ(mxfp8_max_padded_rows(66, 2), 128);  // 33 and 33
  EXPECT_EQ(mxfp8_max_padded_rows(0, 4), 0);
}

TEST(Mxfp8Quantize, RefusesWhatDoesNotFit) {
  ThreadPool pool(1);
  const ExecContext ctx{&pool, &kernel_table(Isa::avx2)};
  HostMatrix x(DType::f32, 40, 64), wide(DType::f64, 40, 64);
  Mxfp8Copies copies(40, 64, 64), small(40, 32, 64);
  Mxfp8Quantize a{.x = x, .rows = {.capacity = 40}};
  testing::expect_error(ErrorKind::internal, {"40 x 64", "no codes"}, [&] { mxfp8_quantize(ctx, a); });
  small.into(&a);
  testing::expect_error(ErrorKind::internal, {"by columns", "[32, 64]", "wanted 64 rows"},
                        [&] { mxfp8_quantize(ctx, a); });
  copies.into(&a);
  a.x = wide;
  testing::expect_error(ErrorKind::internal, {"mxfp8_quantize: x", "f64"}, [&] { mxfp8_quantize(ctx, a); });
  const std::int64_t offsets[] = {0, 20, 10};
  a = {.x = x, .segments = {2, offsets}, .rows = {.capacity = 40}};
  copies.into(&a);
  testing::expect_error(ErrorKind::internal, {"offset 2 is 10"}, [&] { mxfp8_quantize(ctx, a); });
}

}  // namespace
}  // namespace planalto::kernels
