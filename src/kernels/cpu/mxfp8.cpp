// SPDX-License-Identifier: Apache-2.0
#include "kernels/mxfp8.h"

#include <cstring>

#include "kernels/cpu/bodies.h"
#include "kernels/cpu/mxfp8_lanes.h"
#include "kernels/cpu/parallel.h"

namespace planalto::kernels::PLANALTO_ISA_NS {

namespace {

using mxfp8::Group;
using mxfp8::kGroup;
using mxfp8::kParts;
using mxfp8::Parts;
using mxfp8::Words;
using simd::kLanes;

constexpr std::int64_t kBlock = kMxfp8Block;
static_assert(kBlock == kGroup);
constexpr std::uint32_t kInfinity = 0x7f800000U;
// Columns that are worked on at a time in blocks of 32 rows: with bf16, 8 KB of x.
constexpr std::int64_t kChunkGroups = 4;
constexpr std::int64_t kChunk = kChunkGroups * kGroup;

std::int64_t covered_rows(const Segments& segments, const RowCount& rows) {
  return segments.offsets != nullptr ? segments.offsets[segments.num] : rows.get();
}

// A block that holds NaN or infinity: n elements x[i * stride], codes likewise.
template <class T>
[[gnu::noinline, gnu::cold]] void encode_special(const T* x, std::int64_t stride, std::int64_t n,
                                                 std::uint8_t scale, Mxfp8Format format, std::uint8_t* codes,
                                                 std::int64_t code_stride) {
  for (std::int64_t i = 0; i < n; ++i)
    codes[i * code_stride] = mxfp8_encode_scaled(to_float(x[i * stride]), scale, format);
}

// How far ahead of the loop over a row memory is asked for. The loop is long enough that a core alone keeps too few lines
// on their way; the address may lie past the end.
constexpr std::int64_t kAheadBytes = 4096;
template <class T>
PLANALTO_INLINE void prefetch_group(const T* group, std::int64_t ahead_bytes) {
  const char* p = reinterpret_cast<const char*>(group) + ahead_bytes;
#pragma GCC unroll 2
  for (std::size_t i = 0; i < kGroup * sizeof(T); i += 64) __builtin_prefetch(p + i);
}

// ---- By rows ----

// Returns the bits of the greatest magnitude; where that is NaN or infinite, the codes are void.
template <class E, class T>
PLANALTO_INLINE std::uint32_t encode_row_group(const T* x, std::uint8_t* codes, std::uint8_t* scale) {
  const Group<T> g = mxfp8::load_group(x);
  const Group<T> m = mxfp8::magnitudes(g);
  const std::uint32_t amax = mxfp8::greatest(m);
  *scale = mxfp8_block_scale(amax, E::kFormat, E::kRule);
  const simd::Floats factor = E::factor(mxfp8::splat(*scale));
  Parts p = mxfp8::widen(m);
#pragma GCC unroll 4
  for (int i = 0; i < kParts; ++i) p.v[i] = E::encode(p.v[i], factor);
  mxfp8::store_bytes(p, g, codes);
  return amax;
}

// A row that has NaN or infinity: the blocks that hold them once more. A call within the loop over blocks would cost all
// of them: the compiler then loads every constant anew.
template <class E, class T>
[[gnu::noinline, gnu::cold]] void mend_row(const T* x, std::int64_t cols, std::uint8_t* codes,
                                           const std::uint8_t* scales) {
  for (std::int64_t c = 0; c < cols; c += kGroup) {
    const std::uint8_t scale = scales[c / kGroup];
    if (scale < 254) continue;
    encode_special(x + c, 1, cols - c < kGroup ? cols - c : kGroup, scale, E::kFormat, codes + c, 1);
  }
}

template <class E, bool kFromMemory, class T>
PLANALTO_INLINE void encode_row(const T* x, std::int64_t cols, std::uint8_t* codes, std::uint8_t* scales) {
  std::uint32_t greatest = 0;
  std::int64_t c = 0;
  for (; c + kGroup <= cols; c += kGroup) {
    if constexpr (kFromMemory) prefetch_group(x + c, kAheadBytes);
    const std::uint32_t amax = encode_row_group<E>(x + c, codes + c, scales + c / kGroup);
    greatest = amax > greatest ? amax : greatest;
  }
  if (c < cols) {
    T part[kGroup] = {};
    std::uint8_t part_codes[kGroup];
    const auto rest = static_cast<std::size_t>(cols - c);
    std::memcpy(part, x + c, rest * sizeof(T));
    const std::uint32_t amax = encode_row_group<E>(part, part_codes, scales + c / kGroup);
    greatest = amax > greatest ? amax : greatest;
    std::memcpy(codes + c, part_codes, rest);
  }
  if (greatest >= kInfinity) [[unlikely]]
    mend_row<E>(x, cols, codes, scales);
}

template <class E, class T>
void quantize_rows(const ExecContext& ctx, const Mxfp8Quantize& a) {
  const std::int64_t cols = a.x.cols;
  parallel_ranges(ctx, covered_rows(a.segments, a.rows), row_grain(cols),
                  [&](std::int64_t begin, std::int64_t end, int) {
                    for (std::int64_t r = begin; r < end; ++r) {
                      encode_row<E, true>(a.x.row<T>(r), cols, a.row_codes.row<std::uint8_t>(r),
                                          a.row_scales.row<std::uint8_t>(r));
                    }
                  });
}

// ---- By columns, and both ----

// The blocks of 32 rows in order, from a given one on.
class BlockCursor {
 public:
  PLANALTO_INLINE BlockCursor(const Segments& segments, std::int64_t rows, std::int64_t block)
      : segments_(segments), rows_(rows), block_(block), skip_(block) {
    find();
  }
  PLANALTO_INLINE void next() {
    ++block_;
    first_ += kBlock;
    if (first_ >= end_) {
      ++segment_;
      skip_ = 0;
      find();
    }
  }
  std::int64_t block() const { return block_; }
  std::int64_t first_row() const { return first_; }
  std::int64_t num_rows() const { return end_ - first_ < kBlock ? end_ - first_ : kBlock; }

 private:
  // Sets first_ to block skip_ counted from the beginning of segment_, wherever that lies.
  PLANALTO_INLINE void find() {
    for (; segment_ < segments_.num; ++segment_) {
      first_ = segments_.offsets != nullptr ? segments_.offsets[segment_] : 0;
      end_ = segments_.offsets != nullptr ? segments_.offsets[segment_ + 1] : rows_;
      const std::int64_t blocks = mxfp8_blocks(end_ - first_);
      if (skip_ < blocks) {
        first_ += skip_ * kBlock;
        return;
      }
      skip_ -= blocks;
    }
    first_ = end_ = rows_;
  }

  const Segments& segments_;
  std::int64_t rows_, block_, skip_, segment_ = 0, first_ = 0, end_ = 0;
};

// A piece of a block of 32 rows: n rows of some columns, where its codes go, and where the next piece lies.
template <class T>
struct Piece {
  const T* x;
  std::int64_t stride, n;
  std::uint8_t *codes, *scales;
  std::int64_t code_stride;
  std::uint8_t *row_codes, *row_scales;  // unless both copies are wanted, not used
  std::int64_t row_code_stride, row_scale_stride;
  std::int64_t next;  // elements from x
};

// kGroups times 32 columns, all read twice: for the scales, and again from the nearest cache for the codes of both
// copies. False when a magnitude is NaN or infinite: then nothing is written.
template <class E, bool kBoth, int kGroups, class T>
PLANALTO_INLINE bool encode_piece(const Piece<T>& p) {
  Group<T> amax[kGroups] = {};
  for (std::int64_t i = 0; i < p.n; ++i) {
#pragma GCC unroll 4
    for (int g = 0; g < kGroups; ++g) {
      amax[g] = mxfp8::max_of(amax[g], mxfp8::magnitudes(mxfp8::load_group(p.x + i * p.stride + g * kGroup)));
    }
  }
  Group<T> greatest = amax[0];
  for (int g = 1; g < kGroups; ++g) greatest = mxfp8::max_of(greatest, amax[g]);
  if (mxfp8::greatest(greatest) >= kInfinity) return false;
  simd::Floats factors[kGroups][kParts];
#pragma GCC unroll 4
  for (int g = 0; g < kGroups; ++g) {
    Parts bytes = mxfp8::widen(amax[g]);
#pragma GCC unroll 4
    for (int j = 0; j < kParts; ++j) {
      bytes.v[j] = E::scale_bytes(bytes.v[j]);
      factors[g][j] = E::factor(bytes.v[j]);
    }
    mxfp8::store_bytes(bytes, amax[g], p.scales + g * kGroup);
  }
  for (std::int64_t i = 0; i < p.n; ++i) {
#pragma GCC unroll 4
    for (int g = 0; g < kGroups; ++g) {
      const T* x = p.x + i * p.stride + g * kGroup;
      prefetch_group(x, p.next * static_cast<std::int64_t>(sizeof(T)));
      const Group<T> group = mxfp8::load_group(x);
      Parts parts = mxfp8::widen(mxfp8::magnitudes(group));
#pragma GCC unroll 4
      for (int j = 0; j < kParts; ++j) parts.v[j] = E::encode(parts.v[j], factors[g][j]);
      mxfp8::store_bytes(parts, group, p.codes + i * p.code_stride + g * kGroup);
      if constexpr (kBoth) {
        encode_row_group<E>(x, p.row_codes + i * p.row_code_stride + g * kGroup,
                            p.row_scales + i * p.row_scale_stride + g);
      }
    }
  }
  return true;
}

// The first `cols` columns of a piece with NaN or infinity in it, or with fewer than 32 columns.
template <class E, bool kBoth, class T>
[[gnu::noinline]] void encode_piece_slowly(const Piece<T>& p, std::int64_t cols) {
  for (std::int64_t c = 0; c < cols; ++c) {
    std::uint32_t amax = 0;
    for (std::int64_t i = 0; i < p.n; ++i) {
      const std::uint32_t bits = std::bit_cast<std::uint32_t>(to_float(p.x[i * p.stride + c])) & 0x7fffffffU;
      amax = bits > amax ? bits : amax;
    }
    p.scales[c] = mxfp8_block_scale(amax, E::kFormat, E::kRule);
    encode_special(p.x + c, p.stride, p.n, p.scales[c], E::kFormat, p.codes + c, p.code_stride);
  }
  for (std::int64_t i = 0; kBoth && i < p.n; ++i) {
    encode_row<E, false>(p.x + i * p.stride, cols, p.row_codes + i * p.row_code_stride,
                         p.row_scales + i * p.row_scale_stride);
  }
}

// The first `cols` columns of a piece, at most kChunk of them.
template <class E, bool kBoth, class T>
PLANALTO_INLINE void encode_chunk(Piece<T> p, std::int64_t cols) {
  std::uint8_t* padding = p.codes + p.n * p.code_stride;
  for (std::int64_t i = p.n; i < kBlock; ++i, padding += p.code_stride) {
    std::memset(padding, 0, static_cast<std::size_t>(cols));
  }
  if (cols == kChunk) {
    if (!encode_piece<E, kBoth, kChunkGroups>(p)) encode_piece_slowly<E, kBoth>(p, cols);
    return;
  }
  for (std::int64_t c = 0; c < cols; c += kGroup) {
    const std::int64_t width = cols - c < kGroup ? cols - c : kGroup;
    if (width < kGroup || !encode_piece<E, kBoth, 1>(p)) encode_piece_slowly<E, kBoth>(p, width);
    p.x += kGroup;
    p.codes += kGroup;
    p.scales += kGroup;
    p.row_codes += kGroup;
    ++p.row_scales;
  }
}

// Work is divided into chunks of a block of 32 rows, so that few rows of many columns are shared out as well.
template <class E, bool kBoth, class T>
void quantize_blocks(const ExecContext& ctx, const Mxfp8Quantize& a) {
  const std::int64_t cols = a.x.cols, chunks = (cols + kChunk - 1) / kChunk;
  const std::int64_t rows = covered_rows(a.segments, a.rows);
  const std::int64_t blocks = mxfp8_padded_rows(a.segments, rows) / kBlock;
  parallel_ranges(ctx, blocks * chunks, 2, [&](std::int64_t begin, std::int64_t end, int) {
    BlockCursor at(a.segments, rows, begin / chunks);
    std::int64_t chunk = begin % chunks;
    for (std::int64_t item = begin; item < end; ++item) {
      const std::int64_t c = chunk * kChunk, width = cols - c < kChunk ? cols - c : kChunk;
      const std::int64_t first = at.first_row(), block = at.block();
      const bool last = chunk + 1 == chunks;
      Piece<T> p{.x = a.x.row<T>(first) + c,
                 .stride = a.x.row_stride,
                 .n = at.num_rows(),
                 .codes = a.column_codes.row<std::uint8_t>(block * kBlock) + c,
                 .scales = a.column_scales.row<std::uint8_t>(block) + c,
                 .code_stride = a.column_codes.row_stride,
                 .row_codes = nullptr,
                 .row_scales = nullptr,
                 .row_code_stride = a.row_codes.row_stride,
                 .row_scale_stride = a.row_scales.row_stride,
                 .next = last ? kBlock * a.x.row_stride - c : kChunk};
      if constexpr (kBoth) {
        p.row_codes = a.row_codes.row<std::uint8_t>(first) + c;
        p.row_scales = a.row_scales.row<std::uint8_t>(first) + c / kGroup;
      }
      encode_chunk<E, kBoth>(p, width);
      chunk = last ? 0 : chunk + 1;
      if (last) at.next();
    }
  });
}

template <class E, class T>
void quantize_typed(const ExecContext& ctx, const Mxfp8Quantize& a) {
  const bool by_rows = a.row_codes.data != nullptr;
  if (a.column_codes.data == nullptr) {
    if (by_rows) quantize_rows<E, T>(ctx, a);
  } else if (by_rows) {
    quantize_blocks<E, true, T>(ctx, a);
  } else {
    quantize_blocks<E, false, T>(ctx, a);
  }
}

template <Mxfp8Format kFormat, Mxfp8ScaleRule kRule>
void quantize_as(const ExecContext& ctx, const Mxfp8Quantize& a) {
  using E = mxfp8::Encoder<kFormat, kRule>;
  a.x.dtype == DType::f32 ? quantize_typed<E, float>(ctx, a) : quantize_typed<E, bf16>(ctx, a);
}

// ---- Back ----

// n values from codes, with one scale for all (kAxis row) or one each.
template <Mxfp8Format kFormat, Mxfp8Axis kAxis, class T>
PLANALTO_INLINE void decode_run(const std::uint8_t* codes, const std::uint8_t* scales, T* y, std::int64_t n) {
  simd::sweep(n, [&](std::int64_t i, auto part) {
    std::uint8_t code_part[kLanes] = {}, scale_part[kLanes] = {};
    const std::uint8_t *code = codes + i, *scale = scales + i;
    if constexpr (requires { part.n; }) {
      std::memcpy(code_part, code, static_cast<std::size_t>(part.n));
      code = code_part;
      if constexpr (kAxis == Mxfp8Axis::column) {
        std::memcpy(scale_part, scale, static_cast<std::size_t>(part.n));
        scale = scale_part;
      }
    }
    Words exponent;
    if constexpr (kAxis == Mxfp8Axis::row) {
      exponent = mxfp8::splat(*scales);
    } else {
      exponent = mxfp8::widen_bytes(scale);
    }
    simd::store(y + i, mxfp8::scaled(mxfp8::decode<kFormat>(code), exponent), part);
  });
}

template <Mxfp8Format kFormat, class T>
void dequantize_rows(const ExecContext& ctx, const Mxfp8Dequantize& a) {
  const std::int64_t cols = a.y.cols;
  parallel_ranges(
      ctx, covered_rows(a.segments, a.rows), row_grain(cols), [&](std::int64_t begin, std::int64_t end, int) {
        for (std::int64_t r = begin; r < end; ++r) {
          const std::uint8_t *codes = a.codes.row<std::uint8_t>(r), *scales = a.scales.row<std::uint8_t>(r);
          T* y = a.y.row<T>(r);
          for (std::int64_t c = 0; c < cols; c += kBlock) {
            decode_run<kFormat, Mxfp8Axis::row>(codes + c, scales + c / kBlock, y + c,
                                                cols - c < kBlock ? cols - c : kBlock);
          }
        }
      });
}

template <Mxfp8Format kFormat, class T>
void dequantize_columns(const ExecContext& ctx, const Mxfp8Dequantize& a) {
  const std::int64_t rows = covered_rows(a.segments, a.rows);
  const std::int64_t blocks = mxfp8_padded_rows(a.segments, rows) / kBlock;
  parallel_ranges(ctx, blocks, row_grain(a.y.cols * kBlock), [&](std::int64_t begin, std::int64_t end, int) {
    for (BlockCursor at(a.segments, rows, begin); at.block() < end; at.next()) {
      for (std::int64_t i = 0; i < at.num_rows(); ++i) {
        decode_run<kFormat, Mxfp8Axis::column>(a.codes.row<std::uint8_t>(at.block() * kBlock + i),
                                               a.scales.row<std::uint8_t>(at.block()),
                                               a.y.row<T>(at.first_row() + i), a.y.cols);
      }
    }
  });
}

template <Mxfp8Format kFormat, class T>
void dequantize_as(const ExecContext& ctx, const Mxfp8Dequantize& a) {
  a.axis == Mxfp8Axis::row ? dequantize_rows<kFormat, T>(ctx, a) : dequantize_columns<kFormat, T>(ctx, a);
}

}  // namespace

void mxfp8_quantize(const ExecContext& ctx, const Mxfp8Quantize& a) {
  constexpr auto kE4m3 = Mxfp8Format::e4m3, kE5m2 = Mxfp8Format::e5m2;
  constexpr auto kCeil = Mxfp8ScaleRule::rceil, kFloor = Mxfp8ScaleRule::floor;
  const bool ceil = a.rule == kCeil;
  if (a.format == kE4m3) return ceil ? quantize_as<kE4m3, kCeil>(ctx, a) : quantize_as<kE4m3, kFloor>(ctx, a);
  return ceil ? quantize_as<kE5m2, kCeil>(ctx, a) : quantize_as<kE5m2, kFloor>(ctx, a);
}

void mxfp8_dequantize(const ExecContext& ctx, const Mxfp8Dequantize& a) {
  const bool f32 = a.y.dtype == DType::f32;
  if (a.format == Mxfp8Format::e4m3) {
    f32 ? dequantize_as<Mxfp8Format::e4m3, float>(ctx, a) : dequantize_as<Mxfp8Format::e4m3, bf16>(ctx, a);
  } else {
    f32 ? dequantize_as<Mxfp8Format::e5m2, float>(ctx, a) : dequantize_as<Mxfp8Format::e5m2, bf16>(ctx, a);
  }
}

}  // namespace planalto::kernels::PLANALTO_ISA_NS
