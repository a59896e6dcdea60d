// SPDX-License-Identifier: Apache-2.0
// bodies.h: declares the bodies of one ISA; included by each file of this folder, which is compiled once per ISA.
// Invariants  an ISA object defines no weak symbol: what stands in a header is always inlined or in an unnamed namespace
#pragma once

#include "kernels/table.h"

namespace planalto::kernels::PLANALTO_ISA_NS {

#define PLANALTO_BODY(function, Args) void function(const ExecContext& ctx, const Args& a);
PLANALTO_KERNELS(PLANALTO_BODY)
#undef PLANALTO_BODY

extern const KernelTable kTable;

}  // namespace planalto::kernels::PLANALTO_ISA_NS
