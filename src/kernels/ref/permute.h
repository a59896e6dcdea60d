// SPDX-License-Identifier: Apache-2.0
// ref/permute.h: the reference bodies of the route layout and of the moves along it.
#pragma once

#include "kernels/permute.h"

namespace planalto::kernels::reference {

void route_layout(const RouteLayout& a);
void gather_rows(const GatherRows& a);
void combine_rows(const CombineRows& a);
void unsort_route_values(const UnsortRouteValues& a);
void scatter_rows(const ScatterRows& a);

}  // namespace planalto::kernels::reference
