// SPDX-License-Identifier: Apache-2.0
// mxfp8_golden_test.cpp: element tables and blocks made with NVIDIA's conversions (tests/golden/README.md, section 9).
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>

#include "base/file.h"
#include "base/json.h"
#include "kernels/mxfp8_testing.h"

namespace planalto::kernels {
namespace {

using test::code_at;
using test::HostMatrix;
using test::Mxfp8Copies;

const std::string kFolder = std::string(PLANALTO_GOLDEN) + "/mxfp8/";
const char* name_of(Mxfp8Format format) {
  return format == Mxfp8Format::e4m3 ? "e4m3" : "e5m2";
}
constexpr Mxfp8Format kFormats[] = {Mxfp8Format::e4m3, Mxfp8Format::e5m2};

TEST(Mxfp8Golden, EveryBf16AsACode) {
  for (const Mxfp8Format format : kFormats) {
    const MappedFile file(kFolder + "bf16_to_" + name_of(format) + ".bin");
    ASSERT_EQ(file.size(), 65536);
    for (std::uint32_t i = 0; i < 65536; ++i) {
      const float value = to_float(bf16{static_cast<std::uint16_t>(i)});
      const auto want = static_cast<std::uint8_t>(file.bytes()[i]);
      ASSERT_EQ(mxfp8_encode(value, format), want) << value;
      ASSERT_EQ(reference::mxfp8_code(static_cast<double>(value), format), want) << value;
    }
  }
}

// The same table through the kernels: beside the largest number the scale is 1 under `floor` for all that are below
// the next power of two, also those that saturate.
TEST(Mxfp8Golden, EveryBf16OfAScaleAsACodeOfTheKernels) {
  for (const Mxfp8Format format : kFormats) {
    const MappedFile file(kFolder + "bf16_to_" + name_of(format) + ".bin");
    const double largest = format == Mxfp8Format::e4m3 ? 448.0 : 57344.0,
                 limit = format == Mxfp8Format::e4m3 ? 512.0 : 65536.0;
    std::vector<std::uint16_t> numbers;
    for (std::uint32_t i = 0; i < 65536; ++i) {
      if (std::abs(to_float(bf16{static_cast<std::uint16_t>(i)})) < static_cast<float>(limit))
        numbers.push_back(static_cast<std::uint16_t>(i));
    }
    const auto rows = static_cast<std::int64_t>(numbers.size() + 30) / 31;
    for (const DType dtype : {DType::bf16, DType::f32}) {
      HostMatrix x(dtype, rows, 32);
      test::fill_zero(x);
      for (std::size_t i = 0; i < numbers.size(); ++i) {
        const auto r = static_cast<std::int64_t>(i / 31), c = static_cast<std::int64_t>(i % 31);
        x.set(r, c, static_cast<double>(to_float(bf16{numbers[i]})));
        x.set(r, 31, largest);
      }
      test::for_each_context([&](const ExecContext& ctx) {
        Mxfp8Copies got(rows, 0, 32);
        Mxfp8Quantize a{.x = x, .format = format, .rule = Mxfp8ScaleRule::floor, .rows = {.capacity = rows}};
        got.into(&a, true, false);
        mxfp8_quantize(ctx, a);
        for (std::size_t i = 0; i < numbers.size(); ++i) {
          const auto r = static_cast<std::int64_t>(i / 31), c = static_cast<std::int64_t>(i % 31);
          ASSERT_EQ(code_at(got.row_scales, r, 0), 127);
          ASSERT_EQ(code_at(got.row_codes, r, c), static_cast<int>(file.bytes()[numbers[i]]))
              << to_float(bf16{numbers[i]});
        }
      });
    }
  }
}

TEST(Mxfp8Golden, EveryCodeAsANumber) {
  for (const Mxfp8Format format : kFormats) {
    const MappedFile file(kFolder + name_of(format) + "_to_f32.bin");
    ASSERT_EQ(file.size(), 1024);
    HostMatrix codes(DType::u8, 256, 32), scales(DType::u8, 256, 1);
    for (std::int64_t r = 0; r < 256; ++r) {
      scales.set(r, 0, 127);
      for (std::int64_t c = 0; c < 32; ++c) codes.set(r, c, static_cast<double>(r));
    }
    for (std::uint32_t i = 0; i < 256; ++i) {
      std::uint32_t want = 0;
      std::memcpy(&want, file.bytes().data() + i * 4, 4);
      EXPECT_EQ(std::bit_cast<std::uint32_t>(mxfp8_decode(static_cast<std::uint8_t>(i), format)), want) << i;
      test::for_each_context([&](const ExecContext& ctx) {
        HostMatrix y(DType::f32, 256, 32);
        mxfp8_dequantize(
            ctx, {.codes = codes, .scales = scales, .y = y, .format = format, .rows = {.capacity = 256}});
        for (std::int64_t c = 0; c < 32; ++c)
          ASSERT_EQ(y.data<std::uint32_t>()[i * 32 + static_cast<std::uint32_t>(c)], want) << i;
      });
    }
  }
}

// The blocks of one format and rule, as rows of 32.
struct Blocks {
  std::vector<JsonValue> lines;

  Blocks(Mxfp8Format format, Mxfp8ScaleRule rule) {
    const MappedFile file(kFolder + "mxfp8_blocks.jsonl");
    std::string_view text = file.text();
    while (!text.empty()) {
      const std::size_t end = std::min(text.find('\n'), text.size());
      JsonValue line = parse_json(text.substr(0, end), "mxfp8_blocks.jsonl");
      text.remove_prefix(std::min(end + 1, text.size()));
      const bool is_rceil = line.at("scale_mode", "line").as_string("scale_mode") == "rceil";
      if (line.at("format", "line").as_string("format") == name_of(format) &&
          is_rceil == (rule == Mxfp8ScaleRule::rceil)) {
        lines.push_back(std::move(line));
      }
    }
  }
  std::int64_t size() const { return static_cast<std::int64_t>(lines.size()); }
  float in(std::int64_t block, std::int64_t i) const {
    const JsonArray& in = lines[static_cast<std::size_t>(block)].at("in", "line").as_array("in");
    return std::bit_cast<float>(
        static_cast<std::uint32_t>(std::stoul(in[static_cast<std::size_t>(i)].as_string("in"), nullptr, 16)));
  }
  int scale(std::int64_t block) const {
    return static_cast<int>(lines[static_cast<std::size_t>(block)].at("scale", "line").as_int64("scale"));
  }
  int out(std::int64_t block, std::int64_t i) const {
    return static_cast<int>(lines[static_cast<std::size_t>(block)]
                                .at("out", "line")
                                .as_array("out")[static_cast<std::size_t>(i)]
                                .as_int64("out"));
  }
};

// By rows as they stand, by columns from the transposed matrix; `quantize` runs a body.
void expect_blocks(const Blocks& blocks, Mxfp8Format format, Mxfp8ScaleRule rule,
                   const std::function<void(const Mxfp8Quantize&)>& quantize) {
  const std::int64_t n = blocks.size();
  HostMatrix x(DType::f32, n, 32), transposed(DType::f32, 32, n);
  for (std::int64_t r = 0; r < n; ++r) {
    for (std::int64_t c = 0; c < 32; ++c)
      x.data<float>()[r * 32 + c] = transposed.data<float>()[c * n + r] = blocks.in(r, c);
  }
  Mxfp8Copies by_rows(n, 0, 32), by_columns(32, 32, n);
  Mxfp8Quantize a{.x = x, .format = format, .rule = rule, .rows = {.capacity = n}};
  by_rows.into(&a, true, false);
  quantize(a);
  a = {.x = transposed, .format = format, .rule = rule, .rows = {.capacity = 32}};
  by_columns.into(&a, false, true);
  quantize(a);
  for (std::int64_t r = 0; r < n; ++r) {
    ASSERT_EQ(code_at(by_rows.row_scales, r, 0), blocks.scale(r)) << "block " << r;
    ASSERT_EQ(code_at(by_columns.column_scales, 0, r), blocks.scale(r)) << "block " << r;
    for (std::int64_t c = 0; c < 32; ++c) {
      ASSERT_EQ(code_at(by_rows.row_codes, r, c), blocks.out(r, c)) << "block " << r << ", element " << c;
      ASSERT_EQ(code_at(by_columns.column_codes, c, r), blocks.out(r, c))
          << "block " << r << ", element " << c;
    }
  }
}

TEST(Mxfp8Golden, All800BlocksByRowsAndByColumns) {
  for (const Mxfp8Format format : kFormats) {
    for (const Mxfp8ScaleRule rule : {Mxfp8ScaleRule::rceil, Mxfp8ScaleRule::floor}) {
      SCOPED_TRACE(name_of(format));
      const Blocks blocks(format, rule);
      ASSERT_EQ(blocks.size(), 200);
      expect_blocks(blocks, format, rule, [](const Mxfp8Quantize& a) { reference::mxfp8_quantize(a); });
      test::for_each_context([&](const ExecContext& ctx) {
        expect_blocks(blocks, format, rule, [&](const Mxfp8Quantize& a) { mxfp8_quantize(ctx, a); });
      });
    }
  }
}

}  // namespace
}  // namespace planalto::kernels
