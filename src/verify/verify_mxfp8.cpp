// SPDX-License-Identifier: Apache-2.0
#include "verify/verify_mxfp8.h"

#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <map>
#include <utility>

#include "base/error.h"
#include "base/exec_context.h"
#include "base/file.h"
#include "base/json.h"
#include "kernels/mxfp8.h"
#include "kernels/table.h"

namespace planalto {

namespace {

using kernels::kMxfp8Block;
using kernels::Mxfp8Axis;
using kernels::Mxfp8Format;
using kernels::Mxfp8ScaleRule;

const char* name_of(Mxfp8Format format) {
  return format == Mxfp8Format::e4m3 ? "e4m3" : "e5m2";
}
const char* name_of(Mxfp8ScaleRule rule) {
  return rule == Mxfp8ScaleRule::rceil ? "rceil" : "floor";
}

// The blocks of one format and rule, one after the other.
struct Blocks {
  std::vector<float> in;
  std::vector<std::uint8_t> scales, codes;
  std::vector<std::int64_t> lines;

  std::int64_t size() const { return static_cast<std::int64_t>(lines.size()); }
};

template <class Enum>
Enum choice(const JsonValue& line, const char* key, std::array<Enum, 2> legal, const std::string& where) {
  const std::string& text = line.at(key, where).as_string(fmt::format("{}: {}", where, key));
  for (const Enum e : legal) {
    if (text == name_of(e)) return e;
  }
  fail(ErrorKind::data, "{}: {} is \"{}\"; legal: {}, {}", where, key, text, name_of(legal[0]),
       name_of(legal[1]));
}

std::uint8_t byte_of(const JsonValue& value, const std::string& where) {
  const std::int64_t v = value.as_int64(where);
  if (v < 0 || v > 255) fail(ErrorKind::data, "{} is {}; legal: 0 to 255", where, v);
  return static_cast<std::uint8_t>(v);
}

float float_of_hex(const std::string& text, const std::string& where) {
  std::uint32_t bits = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, bits, 16);
  if (text.size() != 8 || error != std::errc() || stop != end) {
    fail(ErrorKind::data, "{} holds \"{}\"; legal: the 8 hex digits of an fp32", where, text);
  }
  return std::bit_cast<float>(bits);
}

const JsonArray& block_array(const JsonValue& line, const char* key, const std::string& where) {
  const JsonArray& array = line.at(key, where).as_array(fmt::format("{}: {}", where, key));
  if (array.size() != kMxfp8Block) {
    fail(ErrorKind::data, "{}: {} has {} elements; a block has {}", where, key, array.size(), kMxfp8Block);
  }
  return array;
}

using BlocksByKind = std::map<std::pair<Mxfp8Format, Mxfp8ScaleRule>, Blocks>;

void add_block(const JsonValue& line, std::int64_t number, const std::string& where, BlocksByKind* kinds) {
  const auto format = choice(line, "format", std::array{Mxfp8Format::e4m3, Mxfp8Format::e5m2}, where);
  const auto rule =
      choice(line, "scale_mode", std::array{Mxfp8ScaleRule::floor, Mxfp8ScaleRule::rceil}, where);
  const JsonArray& in = block_array(line, "in", where);
  const JsonArray& out = block_array(line, "out", where);
  Blocks& blocks = (*kinds)[{format, rule}];
  for (const JsonValue& v : in)
    blocks.in.push_back(float_of_hex(v.as_string(where + ": in"), where + ": in"));
  for (const JsonValue& v : out) blocks.codes.push_back(byte_of(v, where + ": out"));
  blocks.scales.push_back(byte_of(line.at("scale", where), where + ": scale"));
  blocks.lines.push_back(number);
}

BlocksByKind read_blocks(const std::string& path) {
  const MappedFile file(path);
  std::string_view text = file.text();
  BlocksByKind kinds;
  for (std::int64_t number = 1; !text.empty(); ++number) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const JsonValue value = parse_json(line, path, {.max_values = 1000, .first_line = number});
    add_block(value, number, fmt::format("{}:{}", path, number), &kinds);
  }
  return kinds;
}

// A matrix of bytes or floats.
template <class T>
struct Owned {
  std::vector<T> data;
  std::int64_t rows, cols;

  Owned(std::int64_t num_rows, std::int64_t num_cols)
      : data(static_cast<std::size_t>(num_rows * num_cols)), rows(num_rows), cols(num_cols) {}
  T& at(std::int64_t r, std::int64_t c) { return data[static_cast<std::size_t>(r * cols + c)]; }
  Matrix view() {
    return {data.data(),
            sizeof(T) == 1   ? DType::u8
            : sizeof(T) == 2 ? DType::bf16
                             : DType::f32,
            rows, cols, cols};
  }
};

struct Quantized {
  Owned<std::uint8_t> codes, scales;
};

template <class T>
Quantized quantize(const ExecContext& ctx, Owned<T>* x, Mxfp8Axis axis, Mxfp8Format format,
                   Mxfp8ScaleRule rule) {
  const bool by_rows = axis == Mxfp8Axis::row;
  const std::int64_t blocks = kernels::mxfp8_blocks(by_rows ? x->cols : x->rows);
  Quantized q{{by_rows ? x->rows : blocks * kMxfp8Block, x->cols},
              {by_rows ? x->rows : blocks, by_rows ? blocks : x->cols}};
  kernels::Mxfp8Quantize a{.x = x->view(), .format = format, .rule = rule, .rows = {.capacity = x->rows}};
  (by_rows ? a.row_codes : a.column_codes) = q.codes.view();
  (by_rows ? a.row_scales : a.column_scales) = q.scales.view();
  kernels::mxfp8_quantize(ctx, a);
  return q;
}

// Counts what differs and says where the first of it is.
class Differences {
 public:
  void add(int got, int want, const std::string& where) {
    if (got == want) return;
    if (count_++ == 0) first_ = fmt::format("{}: {:#04x}, expected {:#04x}", where, got, want);
  }
  VerifyRow row(const std::string& quantity) const {
    return {quantity + " (differences)", static_cast<double>(count_), 0.0, count_ == 0, first_};
  }

 private:
  std::int64_t count_ = 0;
  std::string first_;
};

void compare_blocks(const ExecContext& ctx, const Blocks& blocks, Mxfp8Format format, Mxfp8ScaleRule rule,
                    Mxfp8Axis axis, std::vector<VerifyRow>* rows) {
  const bool by_rows = axis == Mxfp8Axis::row;
  const std::int64_t n = blocks.size();
  Owned<float> x(by_rows ? n : kMxfp8Block, by_rows ? kMxfp8Block : n);
  const auto in = [&](std::int64_t b, std::int64_t i) {
    return blocks.in[static_cast<std::size_t>(b * kMxfp8Block + i)];
  };
  for (std::int64_t b = 0; b < n; ++b) {
    for (std::int64_t i = 0; i < kMxfp8Block; ++i) (by_rows ? x.at(b, i) : x.at(i, b)) = in(b, i);
  }
  Quantized q = quantize(ctx, &x, axis, format, rule);
  Differences scales, codes;
  for (std::int64_t b = 0; b < n; ++b) {
    const auto at = static_cast<std::size_t>(b);
    const std::string where = fmt::format("line {}", blocks.lines[at]);
    scales.add(by_rows ? q.scales.at(b, 0) : q.scales.at(0, b), blocks.scales[at], where);
    for (std::int64_t i = 0; i < kMxfp8Block; ++i) {
      const int want = blocks.codes[at * kMxfp8Block + static_cast<std::size_t>(i)];
      codes.add(by_rows ? q.codes.at(b, i) : q.codes.at(i, b), want, fmt::format("{}, element {}", where, i));
    }
  }
  const std::string name =
      fmt::format("{} {} by {}", name_of(format), name_of(rule), by_rows ? "rows" : "columns");
  rows->push_back(scales.row(fmt::format("{}: scales of {} blocks", name, n)));
  rows->push_back(codes.row(name + ": codes"));
}

struct Table {
  Mxfp8Format format;
  bool encodes;  // bf16 to code, else code to fp32
  std::int64_t bytes;
};

const Table* find_table(const std::string& path) {
  static const std::map<std::string, Table> kTables{{"bf16_to_e4m3.bin", {Mxfp8Format::e4m3, true, 65536}},
                                                    {"bf16_to_e5m2.bin", {Mxfp8Format::e5m2, true, 65536}},
                                                    {"e4m3_to_f32.bin", {Mxfp8Format::e4m3, false, 1024}},
                                                    {"e5m2_to_f32.bin", {Mxfp8Format::e5m2, false, 1024}}};
  const auto found = kTables.find(file_name(path));
  return found == kTables.end() ? nullptr : &found->second;
}

// Each bf16 below twice the highest power of two of the format, in a block whose scale the largest number makes 1.
VerifyRow compare_encoding(const ExecContext& ctx, const Table& table, const std::string& name,
                           std::span<const std::byte> codes) {
  const kernels::Mxfp8Traits traits = kernels::mxfp8_traits(table.format);
  const float largest = std::bit_cast<float>(traits.max_bits),
              limit = std::ldexp(2.0F, traits.greatest_exponent);
  constexpr std::int64_t kPerRow = kMxfp8Block - 1;
  std::vector<std::uint16_t> numbers;
  for (std::uint32_t i = 0; i < codes.size(); ++i) {
    const auto bits = static_cast<std::uint16_t>(i);
    if (std::abs(to_float(bf16{bits})) < limit) numbers.push_back(bits);
  }
  const auto n = static_cast<std::int64_t>(numbers.size());
  Owned<bf16> x((n + kPerRow - 1) / kPerRow, kMxfp8Block);
  for (std::int64_t r = 0; r < x.rows; ++r) x.at(r, kPerRow) = to_bf16(largest);
  for (std::int64_t i = 0; i < n; ++i)
    x.at(i / kPerRow, i % kPerRow) = bf16{numbers[static_cast<std::size_t>(i)]};
  Quantized q = quantize(ctx, &x, Mxfp8Axis::row, table.format, Mxfp8ScaleRule::floor);
  Differences differences;
  for (std::int64_t i = 0; i < n; ++i) {
    const std::uint16_t bits = numbers[static_cast<std::size_t>(i)];
    differences.add(q.codes.at(i / kPerRow, i % kPerRow), static_cast<int>(codes[bits]),
                    fmt::format("bf16 {:#06x}", bits));
  }
  return differences.row(fmt::format("{} quantized in blocks, below {}", name, limit));
}

VerifyRow compare_decoding(const ExecContext& ctx, const Table& table, const std::string& name,
                           std::span<const float> values) {
  Owned<std::uint8_t> codes(1, 256), scales(1, 8);
  Owned<float> y(1, 256);
  for (std::int64_t i = 0; i < 256; ++i) codes.at(0, i) = static_cast<std::uint8_t>(i);
  for (std::uint8_t& s : scales.data) s = 127;
  kernels::mxfp8_dequantize(ctx, {.codes = codes.view(),
                                  .scales = scales.view(),
                                  .y = y.view(),
                                  .format = table.format,
                                  .rows = {.capacity = 1}});
  Differences differences;
  for (std::size_t i = 0; i < 256; ++i) {
    const auto got = std::bit_cast<std::uint32_t>(y.data[i]), want = std::bit_cast<std::uint32_t>(values[i]);
    differences.add(static_cast<int>(got), static_cast<int>(want), fmt::format("code {:#04x}", i));
  }
  return differences.row(name + " dequantized in blocks");
}

}  // namespace

bool is_mxfp8_block(std::string_view line) {
  return line.find("\"scale_mode\"") != std::string_view::npos;
}

bool is_mxfp8_table(const std::string& path) {
  return find_table(path) != nullptr;
}

std::vector<VerifyRow> verify_mxfp8_blocks(const std::string& path, const Target& target) {
  ThreadPool pool(target.num_threads);
  const ExecContext ctx{&pool, &kernels::kernel_table(target.isa)};
  std::vector<VerifyRow> rows;
  for (const auto& [kind, blocks] : read_blocks(path)) {
    for (const Mxfp8Axis axis : {Mxfp8Axis::row, Mxfp8Axis::column}) {
      compare_blocks(ctx, blocks, kind.first, kind.second, axis, &rows);
    }
  }
  return rows;
}

std::vector<VerifyRow> verify_mxfp8_table(const std::string& path, const Target& target) {
  const Table* table = find_table(path);
  PLANALTO_CHECK(table != nullptr, "{} is no element table of MXFP8", path);
  const MappedFile file(path);
  if (file.size() != table->bytes) {
    fail(ErrorKind::data, "{} has {} bytes; this table has {}", path, file.size(), table->bytes);
  }
  ThreadPool pool(target.num_threads);
  const ExecContext ctx{&pool, &kernels::kernel_table(target.isa)};
  const std::string name = file_name(path).substr(0, file_name(path).size() - 4);
  Differences differences;
  if (table->encodes) {
    for (std::uint32_t i = 0; i < 65536; ++i) {
      const float value = to_float(bf16{static_cast<std::uint16_t>(i)});
      differences.add(kernels::mxfp8_encode(value, table->format), static_cast<int>(file.bytes()[i]),
                      fmt::format("bf16 {:#06x}", i));
    }
    return {differences.row(name), compare_encoding(ctx, *table, name, file.bytes())};
  }
  std::array<float, 256> values;
  std::memcpy(values.data(), file.bytes().data(), sizeof values);
  for (std::uint32_t i = 0; i < 256; ++i) {
    const float value = kernels::mxfp8_decode(static_cast<std::uint8_t>(i), table->format);
    differences.add(static_cast<int>(std::bit_cast<std::uint32_t>(value)),
                    static_cast<int>(std::bit_cast<std::uint32_t>(values[i])),
                    fmt::format("code {:#04x}", i));
  }
  return {differences.row(name), compare_decoding(ctx, *table, name, values)};
}

}  // namespace planalto
