// SPDX-License-Identifier: Apache-2.0
// kernel_list.h: every kernel that has bodies per ISA, as X(function, argument struct). The table, the declarations of
// the bodies and each ISA's filled table are all made from this list, so adding a kernel is one line here.
#pragma once

#define PLANALTO_KERNELS(X)   \
  PLANALTO_PRODUCT_KERNELS(X) \
  PLANALTO_ROW_KERNELS(X) PLANALTO_ROUTE_KERNELS(X) PLANALTO_ATTENTION_KERNELS(X) PLANALTO_MXFP8_KERNELS(X)

// Version 14 has no stable form for these.
// clang-format off
// What bf16 multiply instructions (vdpbf16ps, tdpbf16ps) make a difference to: the bodies that the sets of those have of their own.
#define PLANALTO_PRODUCT_KERNELS(X) \
  X(grouped_gemm_forward, GroupedGemmForward) \
  X(grouped_gemm_grad_input, GroupedGemmGradInput) \
  X(grouped_gemm_grad_weight, GroupedGemmGradWeight) \
  X(loss_head, LossHead) \
  X(peak_multiply_add, PeakMultiplyAdd) \
  X(peak_read, PeakRead) \
  X(peak_update, PeakUpdate)
#define PLANALTO_ROUTE_KERNELS(X) \
  X(router_forward, RouterForward) \
  X(router_weights, RouterWeights) \
  X(router_backward, RouterBackward) \
  X(router_aux_loss, RouterAuxLoss) \
  X(route_layout, RouteLayout) \
  X(gather_rows, GatherRows) \
  X(combine_rows, CombineRows) \
  X(unsort_route_values, UnsortRouteValues) \
  X(scatter_rows, ScatterRows)
#define PLANALTO_ROW_KERNELS(X) \
  X(embedding_forward, EmbeddingForward) \
  X(embedding_backward, EmbeddingBackward) \
  X(add_rows, AddRows) \
  X(cast_elements, CastElements) \
  X(fill_zero, FillZero) \
  X(bias_grad, BiasGrad) \
  X(mla_keys_forward, MlaKeysForward) \
  X(mla_keys_backward, MlaKeysBackward) \
  X(rms_norm_forward, RmsNormForward) \
  X(rms_norm_backward, RmsNormBackward) \
  X(swiglu_forward, SwigluForward) \
  X(swiglu_backward, SwigluBackward) \
  X(rope_apply, RopeApply) \
  X(pack_weight, PackWeight) \
  X(adamw_update, AdamWUpdate) \
  X(sum_squares, SumSquares)
#define PLANALTO_ATTENTION_KERNELS(X) \
  X(attention_forward, AttentionForward) \
  X(attention_backward, AttentionBackward)
#define PLANALTO_MXFP8_KERNELS(X) \
  X(mxfp8_quantize, Mxfp8Quantize) \
  X(mxfp8_dequantize, Mxfp8Dequantize)
// clang-format on
