// SPDX-License-Identifier: Apache-2.0
#include "kernels/attention.h"

#include "kernels/cpu/attention_tiles.h"
#include "kernels/cpu/attention_workspace.h"
#include "kernels/cpu/bodies.h"
#include "kernels/cpu/parallel.h"

// Vectors run over query rows, not over keys: scores are kept transposed, S^T [keys, rows] = K Q^T, so that
// the row maximum and sum are plain vector operations, K and V are read as they lie, and only q and dout are
// transposed, once per row block. In backward dq = K^T dS, dk = dS^T Q and dv = P^T dO need no transpose
// either.
namespace planalto::kernels::PLANALTO_ISA_NS {
namespace {

using namespace attention_cut;  // NOLINT: names of this file's own cut

constexpr float kInfinity = __builtin_inff();
constexpr std::int64_t kMaxVectors = kRows / kLanes;

struct Document {
  std::int64_t q_begin, q_rows, kv_begin, kv_rows;
};

inline Document document_at(const Documents& d, std::int64_t i) {
  return {d.q_offsets[i], d.q_offsets[i + 1] - d.q_offsets[i], d.kv_offsets[i],
          d.kv_offsets[i + 1] - d.kv_offsets[i]};
}

// Finds the document that item n lies in. Items of one worker ascend, so it goes on from where it stood.
struct Cursor {
  std::int64_t document, first_item;

  template <class ItemsOf>
  std::int64_t seek(const Documents& documents, std::int64_t item, const ItemsOf& items_of) {
    if (item < first_item) *this = {0, 0};
    for (;;) {
      const std::int64_t items = items_of(document_at(documents, document));
      if (item < first_item + items) return item - first_item;
      first_item += items;
      ++document;
    }
  }
};
static_assert(sizeof(Cursor) <= kCursorFloats * sizeof(float));

template <class ItemsOf>
inline std::int64_t count_items(const Documents& documents, const ItemsOf& items_of) {
  const std::int64_t n = documents.num.get();
  std::int64_t items = 0;
  for (std::int64_t i = 0; i < n; ++i) items += items_of(document_at(documents, i));
  return items;
}

// body(document, item within it, scratch of the worker) for all items of all documents.
template <class ItemsOf, class Body>
inline void for_each_item(const ExecContext& ctx, const Documents& documents, const Workspace& workspace,
                          std::int64_t floats_per_worker, const ItemsOf& items_of, const Body& body) {
  float* scratch = static_cast<float*>(workspace.data);
  for (int worker = 0; worker < ctx.pool->num_threads(); ++worker) {
    *reinterpret_cast<Cursor*>(scratch + worker * floats_per_worker) = {0, 0};
  }
  parallel_items(ctx, count_items(documents, items_of), [&](std::int64_t item, int worker) {
    float* mine = scratch + worker * floats_per_worker;
    Cursor& cursor = *reinterpret_cast<Cursor*>(mine);
    const std::int64_t within = cursor.seek(documents, item, items_of);
    body(document_at(documents, cursor.document), within, mine + kCursorFloats);
  });
}

inline float* take(float*& scratch, std::int64_t floats) {
  float* mine = scratch;
  scratch += floats;
  return mine;
}

inline std::int64_t divide_up(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

// Up to kRows (query, head) pairs of one document and one key head. Row r of the block is pair first + r,
// which is query (first + r) / group and head (first + r) % group of the key head's.
struct RowBlock {
  // Row r sees keys begin[r] .. end[r]-1; a row past `rows` sees none.
  alignas(64) std::int32_t begin[kRows], end[kRows];
  const AttentionShape* shape;
  Document document;
  std::int64_t kv_head, group, first, rows;
  std::int64_t vectors;                   // that hold the rows
  std::int64_t key_begin, key_end;        // keys that some row sees
  std::int64_t common_begin, common_end;  // keys that every row of every vector sees

  std::int64_t query(std::int64_t r) const { return document.q_begin + (first + r) / group; }
  std::int64_t head(std::int64_t r) const { return kv_head * group + (first + r) % group; }
  template <class T>
  const T* row(const ConstHeadsView& view, std::int64_t r) const {
    return static_cast<const T*>(view.data) + query(r) * view.row_stride + head(r) * view.head_stride;
  }
  template <class T>
  T* row(const HeadsView& view, std::int64_t r) const {
    return static_cast<T*>(view.data) + query(r) * view.row_stride + head(r) * view.head_stride;
  }
};

inline std::int64_t clamp(std::int64_t x, std::int64_t low, std::int64_t high) {
  return x < low ? low : x > high ? high : x;
}

void set_rows(RowBlock& b, std::int64_t first, std::int64_t max_rows) {
  const std::int64_t all = b.document.q_rows * b.group;
  b.first = first;
  b.rows = all - first < max_rows ? all - first : max_rows;
  b.vectors = divide_up(b.rows, kLanes);
  b.key_begin = b.common_begin = b.document.kv_rows;
  b.key_end = b.common_end = 0;
  if (b.rows > 0) b.key_begin = b.document.kv_rows, b.common_begin = 0, b.common_end = b.document.kv_rows;
  const std::int64_t ahead = b.document.kv_rows - b.document.q_rows;
  for (std::int64_t r = 0; r < b.vectors * kLanes; ++r) {
    std::int64_t begin = 0, end = 0;
    if (r < b.rows) {
      const std::int64_t seen = (first + r) / b.group + 1 + ahead;
      end = clamp(seen, 0, b.document.kv_rows);
      begin = b.shape->window > 0 ? clamp(seen - b.shape->window, 0, end) : 0;
      if (begin < end && begin < b.key_begin) b.key_begin = begin;
      if (end > b.key_end) b.key_end = end;
    }
    if (begin > b.common_begin) b.common_begin = begin;
    if (end < b.common_end) b.common_end = end;
    b.begin[r] = static_cast<std::int32_t>(begin);
    b.end[r] = static_cast<std::int32_t>(end);
  }
}

// rows [kRows][padded(dim)] in fp32, and optionally transposed [padded(dim)][kRows]; missing rows are zero.
template <class T>
void load_rows(const RowBlock& b, const ConstHeadsView& view, std::int64_t dim, float scale, float* rows,
               float* transposed) {
  const std::int64_t width = padded(dim);
  for (std::int64_t r = 0; r < b.vectors * kLanes; ++r) {
    if (r < b.rows) {
      widen_row(b.row<T>(view, r), dim, width, scale, rows + r * width);
    } else {
      for (std::int64_t i = 0; i < width; i += kLanes) simd::store(rows + r * width + i, simd::zero());
    }
  }
  transpose(rows, b.vectors * kLanes, width, width, transposed, kRows);
}

// from [padded(dim)][kRows] is the transpose of the rows to write; row r is multiplied by scale[r].
template <class T>
void store_rows(const RowBlock& b, const float* from, std::int64_t dim, const float* scale,
                const HeadsView& view) {
  alignas(64) float block[kLanes * kLanes];
  for (std::int64_t v = 0; v < b.vectors; ++v) {
    for (std::int64_t c = 0; c < dim; c += kLanes) {
      transpose_block(from + c * kRows + v * kLanes, kRows, block, kLanes);
      const std::int64_t cols = dim - c < kLanes ? dim - c : kLanes;
      for (std::int64_t r = v * kLanes; r < b.rows && r < (v + 1) * kLanes; ++r) {
        narrow_row(block + (r - v * kLanes) * kLanes, cols, scale[r], b.row<T>(view, r) + c);
      }
    }
  }
}

template <class T>
void zero_rows(const RowBlock& b, std::int64_t dim, const HeadsView& view) {
  for (std::int64_t r = 0; r < b.rows; ++r) {
    T* to = b.row<T>(view, r);
    for (std::int64_t i = 0; i < dim; ++i) to[i] = T{};
  }
}

// Some keys of one key head in fp32: where they lie, or a copy in scratch.
struct Keys {
  const float* data;
  std::int64_t stride;
};
inline Keys widen_keys(const ConstHeadsView& view, const Document& d, std::int64_t kv_head, std::int64_t key,
                       std::int64_t /*num*/, std::int64_t /*dim*/, float* /*scratch*/, float /*dtype*/) {
  return {static_cast<const float*>(view.data) + (d.kv_begin + key) * view.row_stride +
              kv_head * view.head_stride,
          view.row_stride};
}
inline Keys widen_keys(const ConstHeadsView& view, const Document& d, std::int64_t kv_head, std::int64_t key,
                       std::int64_t num, std::int64_t dim, float* scratch, bf16 /*dtype*/) {
  const std::int64_t width = padded(dim);
  const bf16* from =
      static_cast<const bf16*>(view.data) + (d.kv_begin + key) * view.row_stride + kv_head * view.head_stride;
  for (std::int64_t i = 0; i < num; ++i) {
    widen_row(from + i * view.row_stride, dim, width, 1.0F, scratch + i * width);
  }
  return {scratch, width};
}

// Keys key .. key+num-1: one key block, cut to what the rows see.
struct KeyRange {
  std::int64_t key, num;
  bool masked;  // some row does not see all of them
};
inline KeyRange key_range(const RowBlock& b, std::int64_t block_begin) {
  const std::int64_t begin = block_begin > b.key_begin ? block_begin : b.key_begin;
  const std::int64_t block_end = block_begin + kKeys;
  const std::int64_t end = block_end < b.key_end ? block_end : b.key_end;
  return {begin, end - begin, begin < b.common_begin || end > b.common_end};
}

[[gnu::always_inline]] inline IntFloats spread(std::int64_t key) {
  return IntFloats{} + static_cast<std::int32_t>(key);
}
[[gnu::always_inline]] inline IntFloats load_ints(const std::int32_t* p) {
  IntFloats v;
  __builtin_memcpy(&v, p, sizeof v);
  return v;
}

struct RunningSoftmax {
  alignas(64) float max[kRows], sum[kRows],
      shrink[kRows];  // shrink: what the last tile multiplied earlier sums by
};

// Scores s [num, kRows] -> e^(s - maximum), updating the running maximum and sum. True when some earlier sum
// shrinks.
template <bool kMasked>
bool softmax_tile(const RowBlock& b, const KeyRange& keys, float* s, RunningSoftmax& run) {
  bool any = false;
  for (std::int64_t v = 0; v < b.vectors; ++v) {
    const IntFloats begin = load_ints(b.begin + v * kLanes), end = load_ints(b.end + v * kLanes);
    float* column = s + v * kLanes;
    const Floats before = simd::load(run.max + v * kLanes);
    Floats top = before;
    for (std::int64_t j = 0; j < keys.num; ++j) {
      Floats x = simd::load(column + j * kRows);
      if constexpr (kMasked) {
        const IntFloats key = spread(keys.key + j);
        x = (begin <= key) & (end > key) ? x : simd::set1(-kInfinity);
        simd::store(column + j * kRows, x);
      }
      top = simd::max(top, x);
    }
    const Floats base = top == simd::set1(-kInfinity) ? simd::zero() : top;
    const Floats shrink = simd::exp(before - base);
    Floats sum = simd::zero();
    for (std::int64_t j = 0; j < keys.num; ++j) {
      const Floats e = simd::exp(simd::load(column + j * kRows) - base);
      simd::store(column + j * kRows, e);
      sum += e;
    }
    simd::store(run.sum + v * kLanes, simd::fma(simd::load(run.sum + v * kLanes), shrink, sum));
    simd::store(run.max + v * kLanes, top);
    simd::store(run.shrink + v * kLanes, shrink);
    for (std::int64_t i = 0; i < kLanes; ++i) any |= run.shrink[v * kLanes + i] != 1.0F;
  }
  return any;
}

void shrink_columns(const float* shrink, std::int64_t vectors, std::int64_t dim, float* out) {
  for (std::int64_t i = 0; i < dim; ++i) {
    for (std::int64_t v = 0; v < vectors; ++v) {
      float* p = out + i * kRows + v * kLanes;
      simd::store(p, simd::load(p) * simd::load(shrink + v * kLanes));
    }
  }
}

// out [rows, Dv] = o_t / sum; lse = max + log(sum).
template <class T>
void finish_rows(const AttentionForward& a, const RowBlock& b, const RunningSoftmax& run, const float* o_t) {
  alignas(64) float inverse[kRows];
  for (std::int64_t r = 0; r < b.rows; ++r) {
    inverse[r] = run.sum[r] > 0.0F ? 1.0F / run.sum[r] : run.sum[r] == 0.0F ? 0.0F : run.sum[r];
    if (a.lse != nullptr) {
      a.lse[b.query(r) * a.shape.num_heads + b.head(r)] =
          run.sum[r] == 0.0F ? -kInfinity : run.max[r] + __builtin_logf(run.sum[r]);
    }
  }
  store_rows<T>(b, o_t, a.shape.v_dim, inverse, a.out);
}

template <class T>
void forward_block(const AttentionForward& a, const RowBlock& b, float* scratch) {
  const std::int64_t dq = a.shape.qk_dim, dv = a.shape.v_dim;
  float* q_rows = take(scratch, kRows * padded(dq));
  float* q_t = take(scratch, kRows * padded(dq));
  float* o_t = take(scratch, kRows * padded(dv));
  float* s = take(scratch, kRows * kKeys);
  float* k_scratch = take(scratch, kKeys * padded(dq));
  float* v_scratch = take(scratch, kKeys * padded(dv));
  load_rows<T>(b, a.q, dq, static_cast<float>(a.shape.scale), q_rows, q_t);
  RunningSoftmax run;
  for (std::int64_t r = 0; r < b.vectors * kLanes; ++r) {
    const bool sink = a.sinks != nullptr && r < b.rows;
    run.max[r] = sink ? a.sinks[b.head(r)] : -kInfinity;
    run.sum[r] = sink ? 1.0F : 0.0F;
  }
  const std::int64_t columns = b.vectors * kLanes;
  bool first = true;
  for (std::int64_t block = b.key_begin / kKeys * kKeys; block < b.key_end; block += kKeys) {
    const KeyRange keys = key_range(b, block);
    const Keys k = widen_keys(a.k, b.document, b.kv_head, keys.key, keys.num, dq, k_scratch, T{});
    const Keys v = widen_keys(a.v, b.document, b.kv_head, keys.key, keys.num, dv, v_scratch, T{});
    product<Contiguous::k>(columns, {keys.num, dq, k.data, k.stride, q_t, kRows, s, kRows, false});
    const bool shrinks =
        keys.masked ? softmax_tile<true>(b, keys, s, run) : softmax_tile<false>(b, keys, s, run);
    if (shrinks && !first) shrink_columns(run.shrink, b.vectors, dv, o_t);
    product<Contiguous::rows>(columns, {dv, keys.num, v.data, v.stride, s, kRows, o_t, kRows, !first});
    first = false;
  }
  if (first) {
    for (std::int64_t i = 0; i < padded(dv) * kRows; i += kLanes) simd::store(o_t + i, simd::zero());
  }
  finish_rows<T>(a, b, run, o_t);
}

// Small blocks when there are few: the bits of a row do not depend on its block.
template <class Args>
std::int64_t rows_per_block(const ExecContext& ctx, const Args& a, std::int64_t group) {
  std::int64_t rows = kRows;
  while (rows > kLanes) {
    const std::int64_t items = count_items(a.documents, [&](const Document& d) {
      return divide_up(d.q_rows * group, rows) * a.shape.num_kv_heads;
    });
    if (items >= 3 * ctx.pool->num_threads()) break;
    rows /= 2;
  }
  return ctx.pool->num_threads() == 1 ? kRows : rows;
}

template <class T>
void forward(const ExecContext& ctx, const AttentionForward& a) {
  const std::int64_t group = a.shape.num_heads / a.shape.num_kv_heads;
  const std::int64_t block_rows = rows_per_block(ctx, a, group);
  const auto blocks = [&](const Document& d) { return divide_up(d.q_rows * group, block_rows); };
  for_each_item(
      ctx, a.documents, a.workspace, forward_floats(a.shape.qk_dim, a.shape.v_dim),
      [&](const Document& d) { return blocks(d) * a.shape.num_kv_heads; },
      [&](const Document& d, std::int64_t item, float* scratch) {
        RowBlock b;
        b.shape = &a.shape;
        b.document = d;
        b.kv_head = item / blocks(d);
        b.group = group;
        set_rows(b, item % blocks(d) * block_rows, block_rows);
        forward_block<T>(a, b, scratch);
      });
}

// ---- backward ----

struct BackwardScratch {
  float *q_rows, *q_t, *do_rows, *do_t, *p, *ds, *dq_t, *k, *v, *dk, *dv;
};
BackwardScratch lay_out(const AttentionShape& s, float* scratch) {
  const std::int64_t dq = padded(s.qk_dim), dv = padded(s.v_dim), keys = accumulated_keys(s.max_kv_rows);
  BackwardScratch m;
  m.q_rows = take(scratch, kRows * dq);
  m.q_t = take(scratch, kRows * dq);
  m.do_rows = take(scratch, kRows * dv);
  m.do_t = take(scratch, kRows * dv);
  m.p = take(scratch, kRows * kKeys);
  m.ds = take(scratch, kRows * kKeys);
  m.dq_t = take(scratch, kRows * dq);
  m.k = take(scratch, kKeys * dq);
  m.v = take(scratch, kKeys * dv);
  m.dk = take(scratch, keys * dq);
  m.dv = take(scratch, keys * dv);
  return m;
}

struct RowStatistics {
  alignas(64) float lse[kRows], delta[kRows];  // delta = sum of dout * out
};
template <class T>
void load_statistics(const AttentionBackward& a, const RowBlock& b, RowStatistics& s) {
  for (std::int64_t r = 0; r < b.vectors * kLanes; ++r) s.lse[r] = s.delta[r] = 0.0F;
  for (std::int64_t r = 0; r < b.rows; ++r) {
    s.lse[r] = a.lse[b.query(r) * a.shape.num_heads + b.head(r)];  // -inf: a row whose keys are all masked
    s.delta[r] = dot(b.row<T>(a.dout, r), b.row<T>(a.out, r), a.shape.v_dim);
  }
}

// In: p = scores, ds = dP. Out: p = e^(score - lse), ds = p (dP - delta).
template <bool kMasked>
void gradient_tile(const RowBlock& b, const KeyRange& keys, const RowStatistics& stats, float* p, float* ds) {
  for (std::int64_t v = 0; v < b.vectors; ++v) {
    const IntFloats begin = load_ints(b.begin + v * kLanes), end = load_ints(b.end + v * kLanes);
    const Floats lse = simd::load(stats.lse + v * kLanes), delta = simd::load(stats.delta + v * kLanes);
    for (std::int64_t j = 0; j < keys.num; ++j) {
      const std::int64_t at = j * kRows + v * kLanes;
      Floats e = simd::exp(simd::load(p + at) - lse);
      if constexpr (kMasked) {
        const IntFloats key = spread(keys.key + j);
        e = (begin <= key) & (end > key) ? e : simd::zero();
      }
      simd::store(p + at, e);
      simd::store(ds + at, e * (simd::load(ds + at) - delta));
    }
  }
}

// What one call of gradient_range computes: dq of its rows, dk and dv of its keys, or both.
struct Wanted {
  bool dq, dkv;
};
struct KeySpan {
  std::int64_t begin, end;  // begin a multiple of kKeys
};

template <class T>
void gradient_block(const AttentionBackward& a, const RowBlock& b, const KeySpan& span, Wanted wanted,
                    const BackwardScratch& m) {
  const std::int64_t dq = a.shape.qk_dim, dv = a.shape.v_dim, columns = b.vectors * kLanes;
  const float scale = static_cast<float>(a.shape.scale);
  std::int64_t block = b.key_begin / kKeys * kKeys;
  block = block > span.begin ? block : span.begin;
  const std::int64_t key_end = b.key_end < span.end ? b.key_end : span.end;
  if (block >= key_end) {
    if (wanted.dq) zero_rows<T>(b, dq, a.dq);
    return;
  }
  load_rows<T>(b, a.q, dq, scale, m.q_rows, m.q_t);
  load_rows<T>(b, a.dout, dv, 1.0F, m.do_rows, m.do_t);
  RowStatistics stats;
  load_statistics<T>(a, b, stats);
  bool first = true;
  for (; block < key_end; block += kKeys) {
    const KeyRange keys = key_range(b, block);
    const Keys k = widen_keys(a.k, b.document, b.kv_head, keys.key, keys.num, dq, m.k, T{});
    const Keys v = widen_keys(a.v, b.document, b.kv_head, keys.key, keys.num, dv, m.v, T{});
    product<Contiguous::k>(columns, {keys.num, dq, k.data, k.stride, m.q_t, kRows, m.p, kRows, false});
    product<Contiguous::k>(columns, {keys.num, dv, v.data, v.stride, m.do_t, kRows, m.ds, kRows, false});
    keys.masked ? gradient_tile<true>(b, keys, stats, m.p, m.ds)
                : gradient_tile<false>(b, keys, stats, m.p, m.ds);
    if (wanted.dkv) {
      float* dk = m.dk + (keys.key - span.begin) * padded(dq);
      float* dv_rows = m.dv + (keys.key - span.begin) * padded(dv);
      product<Contiguous::k>(
          padded(dv), {keys.num, b.rows, m.p, kRows, m.do_rows, padded(dv), dv_rows, padded(dv), true});
      product<Contiguous::k>(padded(dq),
                             {keys.num, b.rows, m.ds, kRows, m.q_rows, padded(dq), dk, padded(dq), true});
    }
    if (wanted.dq) {
      product<Contiguous::rows>(columns,
                                {dq, keys.num, k.data, k.stride, m.ds, kRows, m.dq_t, kRows, !first});
    }
    first = false;
  }
  if (wanted.dq) {
    alignas(64) float scales[kRows];
    for (std::int64_t r = 0; r < kRows; ++r) scales[r] = scale;
    store_rows<T>(b, m.dq_t, dq, scales, a.dq);
  }
}

template <class T>
void store_keys(const HeadsView& view, const Document& d, std::int64_t kv_head, const KeySpan& span,
                std::int64_t dim, const float* from) {
  T* to =
      static_cast<T*>(view.data) + (d.kv_begin + span.begin) * view.row_stride + kv_head * view.head_stride;
  for (std::int64_t j = 0; j < span.end - span.begin; ++j) {
    narrow_row(from + j * padded(dim), dim, 1.0F, to + j * view.row_stride);
  }
}

// Row blocks ascend outside, key blocks inside, so each sum has one order however rows and keys are cut.
template <class T>
void gradient_range(const AttentionBackward& a, RowBlock& b, std::int64_t row_begin, std::int64_t row_end,
                    const KeySpan& span, Wanted wanted, float* scratch) {
  const BackwardScratch m = lay_out(a.shape, scratch);
  const std::int64_t keys = span.end - span.begin;
  if (wanted.dkv) {
    for (std::int64_t i = 0; i < keys * padded(a.shape.qk_dim); i += kLanes)
      simd::store(m.dk + i, simd::zero());
    for (std::int64_t i = 0; i < keys * padded(a.shape.v_dim); i += kLanes)
      simd::store(m.dv + i, simd::zero());
  }
  for (std::int64_t row = row_begin; row < row_end; row += kRows) {
    set_rows(b, row, kRows);
    gradient_block<T>(a, b, span, wanted, m);
  }
  if (wanted.dkv) {
    store_keys<T>(a.dk, b.document, b.kv_head, span, a.shape.qk_dim, m.dk);
    store_keys<T>(a.dv, b.document, b.kv_head, span, a.shape.v_dim, m.dv);
  }
}

// One item per (document, key head) computes all three gradients from 5 products a tile. Where that leaves
// workers idle, dq by row blocks (3 products) and then dk, dv by key chunks (4): the same sums in the same
// order, so the same bits.
bool one_pass(const ExecContext& ctx, const AttentionBackward& a) {
  const std::int64_t n = a.documents.num.get();
  double total = 0.0, largest = 0.0;
  for (std::int64_t i = 0; i < n; ++i) {
    const Document d = document_at(a.documents, i);
    if (d.kv_rows > accumulated_keys(a.shape.max_kv_rows)) return false;
    const double cost = static_cast<double>(d.q_rows) * static_cast<double>(d.kv_rows);
    total += cost * static_cast<double>(a.shape.num_kv_heads);
    largest = cost > largest ? cost : largest;
  }
  return 5.0 * largest * ctx.pool->num_threads() <= 7.0 * total;
}

template <class T>
void backward(const ExecContext& ctx, const AttentionBackward& a) {
  const std::int64_t group = a.shape.num_heads / a.shape.num_kv_heads, kv_heads = a.shape.num_kv_heads;
  const std::int64_t floats = backward_floats(a.shape.qk_dim, a.shape.v_dim, a.shape.max_kv_rows);
  const bool together = one_pass(ctx, a);
  if (!together) {
    const auto blocks = [&](const Document& d) { return divide_up(d.q_rows * group, kRows); };
    for_each_item(
        ctx, a.documents, a.workspace, floats, [&](const Document& d) { return blocks(d) * kv_heads; },
        [&](const Document& d, std::int64_t item, float* scratch) {
          RowBlock b;
          b.shape = &a.shape, b.document = d, b.kv_head = item / blocks(d), b.group = group;
          const std::int64_t row = item % blocks(d) * kRows;
          gradient_range<T>(a, b, row, row + 1, {0, d.kv_rows}, {true, false}, scratch);
        });
  }
  const std::int64_t chunk =
      together || accumulated_keys(a.shape.max_kv_rows) < 256 ? accumulated_keys(a.shape.max_kv_rows) : 256;
  const auto chunks = [&](const Document& d) { return divide_up(d.kv_rows, chunk); };
  for_each_item(
      ctx, a.documents, a.workspace, floats,
      [&](const Document& d) { return (together ? 1 : chunks(d)) * kv_heads; },
      [&](const Document& d, std::int64_t item, float* scratch) {
        const std::int64_t per_head = together ? 1 : chunks(d), begin = item % per_head * chunk;
        const std::int64_t end = begin + chunk < d.kv_rows ? begin + chunk : d.kv_rows;
        RowBlock b;
        b.shape = &a.shape, b.document = d, b.kv_head = item / per_head, b.group = group;
        gradient_range<T>(a, b, 0, d.q_rows * group, {begin, end}, {together, true}, scratch);
      });
}

// The sink's probability times minus delta, over all rows of a head, in double.
template <class T>
void backward_sinks(const ExecContext& ctx, const AttentionBackward& a) {
  const std::int64_t n = a.documents.num.get();
  const std::int64_t rows_begin = a.documents.q_offsets[0], rows_end = a.documents.q_offsets[n];
  parallel_items(ctx, a.shape.num_heads, [&](std::int64_t head, int /*worker*/) {
    double sum = 0.0;
    for (std::int64_t row = rows_begin; row < rows_end; ++row) {
      const T* out = static_cast<const T*>(a.out.data) + row * a.out.row_stride + head * a.out.head_stride;
      const T* dout =
          static_cast<const T*>(a.dout.data) + row * a.dout.row_stride + head * a.dout.head_stride;
      const float probability = __builtin_expf(a.sinks[head] - a.lse[row * a.shape.num_heads + head]);
      sum -= static_cast<double>(probability) * static_cast<double>(dot(dout, out, a.shape.v_dim));
    }
    a.dsinks[head] += static_cast<float>(sum);
  });
}

}  // namespace

void attention_forward(const ExecContext& ctx, const AttentionForward& a) {
  a.shape.dtype == DType::f32 ? forward<float>(ctx, a) : forward<bf16>(ctx, a);
}

void attention_backward(const ExecContext& ctx, const AttentionBackward& a) {
  const bool f32 = a.shape.dtype == DType::f32;
  f32 ? backward<float>(ctx, a) : backward<bf16>(ctx, a);
  if (a.dsinks != nullptr) f32 ? backward_sinks<float>(ctx, a) : backward_sinks<bf16>(ctx, a);
}

}  // namespace planalto::kernels::PLANALTO_ISA_NS
