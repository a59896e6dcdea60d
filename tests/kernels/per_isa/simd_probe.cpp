// SPDX-License-Identifier: Apache-2.0
// simd_probe.cpp: simd.h behind plain functions, compiled once per ISA as kernel bodies are, for
// simd_test.cpp.
#include "kernels/cpu/simd.h"

namespace planalto::kernels::PLANALTO_ISA_NS {

// Vectors while a whole one is left, then one partial load and store.
#define PLANALTO_PROBE(name, From, To, expression)      \
  void name(const From* from, To* to, std::int64_t n) { \
    std::int64_t i = 0;                                 \
    for (; i + simd::kLanes <= n; i += simd::kLanes) {  \
      const simd::Floats x = simd::load(from + i);      \
      simd::store(to + i, expression);                  \
    }                                                   \
    const simd::Floats x = simd::load(from + i, n - i); \
    simd::store(to + i, expression, n - i);             \
  }
PLANALTO_PROBE(probe_exp, float, float, simd::exp(x))
PLANALTO_PROBE(probe_sigmoid, float, float, simd::sigmoid(x))
PLANALTO_PROBE(probe_narrow, float, bf16, x)
PLANALTO_PROBE(probe_rounded, float, float, simd::rounded_to_bf16(x))
PLANALTO_PROBE(probe_widen, bf16, float, x)
PLANALTO_PROBE(probe_copy, float, float, x)

float probe_sum(const float* from) {
  return simd::sum(simd::load(from));
}
float probe_max(const float* from) {
  return simd::max_lane(simd::load(from));
}
std::int64_t probe_lanes() {
  return simd::kLanes;
}

}  // namespace planalto::kernels::PLANALTO_ISA_NS
