// SPDX-License-Identifier: Apache-2.0
// ref/router.h: the router's reference bodies, and its mathematics in double for difference quotients.
// Numerics    double throughout; one rounding where a result is stored as fp32
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/router.h"

namespace planalto::kernels::reference {

// One token: E logits to E scores; K chosen ids; K weights.
std::vector<double> router_scores(const RouterOptions& o, const double* logits);
std::vector<std::int32_t> router_choice(const RouterOptions& o, const double* logits, const float* bias);
std::vector<double> router_token_weights(const RouterOptions& o, const std::vector<double>& scores,
                                         const std::int32_t* ids);
// The value of an auxiliary loss as a function of the logits [T, E]; a.scores and a.logits are not read.
double router_aux_loss_value(const RouterAuxLoss& a, const std::vector<double>& logits);

void router_forward(const RouterForward& a);
void router_weights(const RouterWeights& a);
void router_backward(const RouterBackward& a);
// Takes logits and ignores scores.
void router_aux_loss(const RouterAuxLoss& a);

}  // namespace planalto::kernels::reference
