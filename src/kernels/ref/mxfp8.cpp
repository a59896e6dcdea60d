// SPDX-License-Identifier: Apache-2.0
#include "kernels/ref/mxfp8.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "kernels/ref/element.h"

namespace planalto::kernels::reference {

namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

bool is_e4m3(Mxfp8Format format) {
  return format == Mxfp8Format::e4m3;
}
int mantissa_bits(Mxfp8Format format) {
  return is_e4m3(format) ? 3 : 2;
}
int bias(Mxfp8Format format) {
  return is_e4m3(format) ? 7 : 15;
}
double greatest(Mxfp8Format format) {
  return is_e4m3(format) ? 448.0 : 57344.0;
}

struct Copy {
  Matrix codes, scales;
  Mxfp8Format format;
  Mxfp8ScaleRule rule;
};

// One block: elements at(0) .. at(n - 1), written by put_code(i, code).
template <class At, class PutCode>
std::uint8_t quantize_block(std::int64_t n, const Copy& copy, const At& at, const PutCode& put_code) {
  double amax = 0.0;
  for (std::int64_t i = 0; i < n; ++i)
    amax = std::isnan(at(i)) || std::isnan(amax) ? kNaN : std::max(amax, std::abs(at(i)));
  const std::uint8_t scale = mxfp8_scale(amax, copy.format, copy.rule);
  for (std::int64_t i = 0; i < n; ++i) {
    put_code(i, scale == 255 ? mxfp8_code(kNaN, copy.format)
                             : mxfp8_code(std::ldexp(at(i), 127 - scale), copy.format));
  }
  return scale;
}

// visit(first row, rows, block) for each block of 32 rows or fewer.
template <class Visit>
void for_row_blocks(const Segments& segments, std::int64_t rows, const Visit& visit) {
  std::int64_t block = 0;
  for (std::int64_t e = 0; e < segments.num; ++e) {
    const std::int64_t begin = segments.offsets != nullptr ? segments.offsets[e] : 0;
    const std::int64_t end = segments.offsets != nullptr ? segments.offsets[e + 1] : rows;
    for (std::int64_t r = begin; r < end; r += 32) visit(r, std::min<std::int64_t>(32, end - r), block++);
  }
}

std::int64_t covered(const Segments& segments, const RowCount& rows) {
  return segments.offsets != nullptr ? segments.offsets[segments.num] : rows.get();
}

void by_rows(const ConstMatrix& x, std::int64_t rows, const Copy& copy) {
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < x.cols; c += 32) {
      copy.scales.row<std::uint8_t>(r)[c / 32] = quantize_block(
          std::min<std::int64_t>(32, x.cols - c), copy, [&](std::int64_t i) { return get(x, r, c + i); },
          [&](std::int64_t i, std::uint8_t code) { copy.codes.row<std::uint8_t>(r)[c + i] = code; });
    }
  }
}

void by_columns(const ConstMatrix& x, const Segments& segments, std::int64_t rows, const Copy& copy) {
  for_row_blocks(segments, rows, [&](std::int64_t first, std::int64_t n, std::int64_t block) {
    for (std::int64_t c = 0; c < x.cols; ++c) {
      const auto put_code = [&](std::int64_t i, std::uint8_t code) {
        copy.codes.row<std::uint8_t>(block * 32 + i)[c] = code;
      };
      copy.scales.row<std::uint8_t>(block)[c] = quantize_block(
          n, copy, [&](std::int64_t i) { return get(x, first + i, c); }, put_code);
      for (std::int64_t i = n; i < 32; ++i) put_code(i, 0);
    }
  });
}

// y[r, c] from the code and scale in these places.
void put_value(const Mxfp8Dequantize& a, std::int64_t r, std::int64_t c, std::uint8_t code,
               std::uint8_t scale) {
  const double value = scale == 255 ? kNaN : std::ldexp(mxfp8_value(code, a.format), scale - 127);
  if (std::isnan(value) && a.y.dtype == DType::f32) {
    a.y.row<float>(r)[c] = std::bit_cast<float>(0x7fffffff);
  } else if (std::isnan(value)) {
    a.y.row<bf16>(r)[c] = bf16{0x7fff};
  } else {
    put(a.y, r, c, value);
  }
}

}  // namespace

double mxfp8_value(std::uint8_t code, Mxfp8Format format) {
  const int bits = mantissa_bits(format), exponent = (code & 0x7f) >> bits,
            mantissa = code & ((1 << bits) - 1);
  const double sign = code & 0x80 ? -1.0 : 1.0;
  if (is_e4m3(format) && (code & 0x7f) == 0x7f) return kNaN;
  if (!is_e4m3(format) && exponent == 31) return mantissa == 0 ? sign * kInfinity : kNaN;
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias(format) - bits);
  return sign * std::ldexp((1 << bits) + mantissa, exponent - bias(format) - bits);
}

std::uint8_t mxfp8_code(double value, Mxfp8Format format) {
  if (std::isnan(value)) return 0x7f;
  const int bits = mantissa_bits(format), sign = std::signbit(value) ? 0x80 : 0;
  const double magnitude = std::abs(value);
  const int least = 1 - bias(format);
  // Numbers next to each other differ by 2^(exponent - bits); in units of that, round to the nearest even integer.
  const int exponent =
      magnitude > 0.0 ? std::max(std::ilogb(std::min(magnitude, greatest(format))), least) : least;
  double rounded = std::ldexp(std::nearbyint(std::ldexp(magnitude, bits - exponent)), exponent - bits);
  rounded = std::min(rounded, greatest(format));
  if (rounded < std::ldexp(1.0, least))
    return static_cast<std::uint8_t>(sign | static_cast<int>(std::ldexp(rounded, bits - least)));
  const int e = std::ilogb(rounded);
  const int mantissa = static_cast<int>(std::ldexp(rounded, bits - e)) - (1 << bits);
  return static_cast<std::uint8_t>(sign | (e + bias(format)) << bits | mantissa);
}

std::uint8_t mxfp8_scale(double amax, Mxfp8Format format, Mxfp8ScaleRule rule) {
  if (std::isnan(amax)) return 255;
  if (std::isinf(amax)) return 254;
  if (amax == 0.0) return 0;
  int exponent = std::ilogb(amax) - std::ilogb(greatest(format));
  if (rule == Mxfp8ScaleRule::rceil) {
    while (std::ldexp(greatest(format), exponent) < amax) ++exponent;
  }
  return static_cast<std::uint8_t>(std::clamp(exponent, -127, 127) + 127);
}

void mxfp8_quantize(const Mxfp8Quantize& a) {
  const std::int64_t rows = covered(a.segments, a.rows);
  if (a.row_codes.data != nullptr) by_rows(a.x, rows, {a.row_codes, a.row_scales, a.format, a.rule});
  if (a.column_codes.data != nullptr) {
    by_columns(a.x, a.segments, rows, {a.column_codes, a.column_scales, a.format, a.rule});
  }
}

void mxfp8_dequantize(const Mxfp8Dequantize& a) {
  if (a.axis == Mxfp8Axis::row) {
    for (std::int64_t r = 0; r < covered(a.segments, a.rows); ++r) {
      for (std::int64_t c = 0; c < a.y.cols; ++c) {
        put_value(a, r, c, a.codes.row<std::uint8_t>(r)[c], a.scales.row<std::uint8_t>(r)[c / 32]);
      }
    }
    return;
  }
  for_row_blocks(a.segments, covered(a.segments, a.rows),
                 [&](std::int64_t first, std::int64_t n, std::int64_t block) {
                   for (std::int64_t i = 0; i < n; ++i) {
                     for (std::int64_t c = 0; c < a.y.cols; ++c) {
                       put_value(a, first + i, c, a.codes.row<std::uint8_t>(block * 32 + i)[c],
                                 a.scales.row<std::uint8_t>(block)[c]);
                     }
                   }
                 });
}

}  // namespace planalto::kernels::reference
