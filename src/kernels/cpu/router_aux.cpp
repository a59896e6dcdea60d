// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/bodies.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/router_blocks.h"
#include "kernels/cpu/router_row.h"
#include "kernels/router.h"

namespace planalto::kernels::PLANALTO_ISA_NS {

namespace {

// Every loss but z is a sum over tokens of <f, p_t>, with factors f that carry no gradient: they are the same for
// all tokens of the layer, or for those of a document.
struct Rows {
  alignas(64) float factors[kMaxExperts];
  alignas(64) float scores[kMaxExperts];
  alignas(64) float logits[kMaxExperts];
};

struct Scratch {
  double* block_loss;        // [blocks]
  std::int32_t* straddling;  // [blocks, E] counts of the document that starts in a block and goes on after it
};

PLANALTO_INLINE Scratch scratch(const RouterAuxLoss& a, std::int64_t blocks) {
  auto* block_loss = static_cast<double*>(a.workspace.data);
  return {block_loss, static_cast<std::int32_t*>(static_cast<void*>(block_loss + blocks))};
}

PLANALTO_INLINE double factor_of(const RouterAuxLoss& a) {
  return a.coefficient * (a.scale != nullptr ? *a.scale : 1.0);
}

// Adds the gradient of <f, p> and returns the value. Softmax: dl = p (f - <f, p>). Sigmoid: p = s / sum(s) gives
// ds = (f - <f, p>) / sum(s) and dl = ds s (1 - s).
PLANALTO_INLINE double add_token(const RouterAuxLoss& a, Rows& rows, std::int64_t t) {
  const std::int64_t num_experts = a.options.num_experts, width = padded(num_experts);
  const bool sigmoid = a.options.score == RouterScore::sigmoid;
  load_padded(a.scores + t * num_experts, rows.scores, num_experts, 0.0F);
  float inverse = 1.0F;
  if (sigmoid) {
    const float sum = lane_sum(rows.scores, width);
    inverse = sum == 0.0F ? 0.0F : 1.0F / sum;
  }
  const float value = lane_dot(rows.factors, rows.scores, width) * inverse;
  if (a.dlogits != nullptr) {
    float* dlogits = a.dlogits + t * num_experts;
    if (sigmoid) {
      for (std::int64_t e = 0; e < num_experts; ++e) {
        const float s = rows.scores[e];
        dlogits[e] += s * inverse * (rows.factors[e] - value) * (1.0F - s);
      }
    } else {
      for (std::int64_t e = 0; e < num_experts; ++e) dlogits[e] += rows.scores[e] * (rows.factors[e] - value);
    }
  }
  return static_cast<double>(value);
}

PLANALTO_INLINE double add_z_token(const RouterAuxLoss& a, Rows& rows, std::int64_t t, double factor) {
  const std::int64_t num_experts = a.options.num_experts;
  load_padded(a.logits + t * num_experts, rows.logits, num_experts, -kInfinity);
  const SoftmaxRow s = softmax_row(rows.logits, rows.scores, num_experts);
  const double lse = static_cast<double>(s.max) + __builtin_log(static_cast<double>(s.sum));
  if (a.dlogits != nullptr) {
    float* dlogits = a.dlogits + t * num_experts;
    const auto slope = static_cast<float>(2.0 * factor * lse);
    for (std::int64_t e = 0; e < num_experts; ++e) dlogits[e] += slope * rows.scores[e];
  }
  return factor * lse * lse;
}

PLANALTO_INLINE void constant_factors(const RouterAuxLoss& a, Rows& rows) {
  const std::int64_t num_experts = a.options.num_experts;
  const bool joined = a.kind == AuxLossKind::joined;
  const std::int64_t* counts = joined ? a.joined_counts : a.counts;
  std::int64_t routes = 0;
  for (std::int64_t e = 0; e < num_experts; ++e) routes += counts[e];
  const auto top_k = static_cast<double>(a.options.top_k);
  const double tokens = static_cast<double>(routes) / top_k;
  double factor = factor_of(a) * static_cast<double>(num_experts) / (tokens * tokens);
  if (!joined) factor /= top_k;
  for (std::int64_t e = 0; e < padded(num_experts); ++e) {
    rows.factors[e] =
        e < num_experts && routes > 0 ? static_cast<float>(factor * static_cast<double>(counts[e])) : 0.0F;
  }
}

// The first document that ends after token t.
PLANALTO_INLINE std::int64_t document_of(const RouterAuxLoss& a, std::int64_t t) {
  std::int64_t low = 0, high = a.num_docs.get();
  while (low < high) {
    const std::int64_t middle = (low + high) / 2;
    if (a.doc_offsets[middle + 1] > t) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

PLANALTO_INLINE void count_document(const RouterAuxLoss& a, std::int64_t d, std::int32_t* counts) {
  for (std::int64_t e = 0; e < a.options.num_experts; ++e) counts[e] = 0;
  const std::int64_t end = a.doc_offsets[d + 1] * a.options.top_k;
  for (std::int64_t i = a.doc_offsets[d] * a.options.top_k; i < end; ++i) ++counts[a.ids[i]];
}

PLANALTO_INLINE double add_block_documents(const RouterAuxLoss& a, const Scratch& s, Rows& rows,
                                           std::int64_t begin, std::int64_t end, double factor) {
  const std::int64_t num_experts = a.options.num_experts, num_docs = a.num_docs.get();
  std::int32_t own[kMaxExperts];
  double loss = 0.0;
  for (std::int64_t d = document_of(a, begin); d < num_docs && a.doc_offsets[d] < end; ++d) {
    const std::int64_t first = a.doc_offsets[d], last = a.doc_offsets[d + 1];
    if (first == last) continue;
    const std::int32_t* counts = own;
    if (first >= begin && last <= end) {
      count_document(a, d, own);
    } else {
      counts = s.straddling + first / kAuxBlockTokens * num_experts;
    }
    const auto length = static_cast<double>(last - first);
    const double f =
        factor * static_cast<double>(num_experts) / (static_cast<double>(a.options.top_k) * length * length);
    for (std::int64_t e = 0; e < padded(num_experts); ++e) {
      rows.factors[e] = e < num_experts ? static_cast<float>(f * static_cast<double>(counts[e])) : 0.0F;
    }
    const std::int64_t stop = last < end ? last : end;
    for (std::int64_t t = first > begin ? first : begin; t < stop; ++t) loss += add_token(a, rows, t);
  }
  return loss;
}

PLANALTO_INLINE void count_straddling(const ExecContext& ctx, const RouterAuxLoss& a, const Scratch& s,
                                      std::int64_t tokens) {
  parallel_items(ctx, num_aux_blocks(tokens), [&](std::int64_t b, int) {
    const std::int64_t begin = b * kAuxBlockTokens, end = begin + kAuxBlockTokens;
    const std::int64_t d = document_of(a, end - 1);
    if (d == a.num_docs.get() || a.doc_offsets[d] < begin || a.doc_offsets[d] >= end ||
        a.doc_offsets[d + 1] <= end)
      return;
    count_document(a, d, s.straddling + b * a.options.num_experts);
  });
}

// The factor of one token (z) or one document (sequence).
PLANALTO_INLINE double averaged_factor(const RouterAuxLoss& a, std::int64_t tokens) {
  if (a.kind == AuxLossKind::z) return factor_of(a) / static_cast<double>(tokens);
  std::int64_t documents = 0;
  for (std::int64_t d = 0; d < a.num_docs.get(); ++d)
    documents += a.doc_offsets[d + 1] > a.doc_offsets[d] ? 1 : 0;
  return documents > 0 ? factor_of(a) / static_cast<double>(documents) : 0.0;
}

}  // namespace

void router_aux_loss(const ExecContext& ctx, const RouterAuxLoss& a) {
  const std::int64_t tokens = a.tokens.get(), blocks = num_aux_blocks(tokens);
  if (tokens == 0) return;
  const Scratch s = scratch(a, blocks);
  const bool per_document = a.kind == AuxLossKind::sequence, z = a.kind == AuxLossKind::z;
  const double factor = per_document || z ? averaged_factor(a, tokens) : 0.0;
  if (per_document) count_straddling(ctx, a, s, tokens);
  parallel_ranges(ctx, blocks, 1, [&](std::int64_t first, std::int64_t last, int) {
    Rows rows;
    if (!per_document && !z) constant_factors(a, rows);
    for (std::int64_t b = first; b < last; ++b) {
      const std::int64_t begin = b * kAuxBlockTokens;
      const std::int64_t end = begin + kAuxBlockTokens < tokens ? begin + kAuxBlockTokens : tokens;
      double loss = 0.0;
      if (per_document) {
        loss = add_block_documents(a, s, rows, begin, end, factor);
      } else {
        for (std::int64_t t = begin; t < end; ++t)
          loss += z ? add_z_token(a, rows, t, factor) : add_token(a, rows, t);
      }
      s.block_loss[b] = loss;
    }
  });
  if (a.loss == nullptr) return;
  double loss = 0.0;
  for (std::int64_t b = 0; b < blocks; ++b) loss += s.block_loss[b];
  *a.loss += loss;
}

}  // namespace planalto::kernels::PLANALTO_ISA_NS
