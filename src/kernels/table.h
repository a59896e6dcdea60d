// SPDX-License-Identifier: Apache-2.0
// table.h: the table of kernel bodies of one ISA.
// Threads     tables are constant; each is chosen once and handed to kernels through ExecContext
#pragma once

#include "base/exec_context.h"
#include "kernels/isa.h"
#include "kernels/kernel_list.h"

namespace planalto::kernels {

#define PLANALTO_DECLARE(function, Args) struct Args;
PLANALTO_KERNELS(PLANALTO_DECLARE)
#undef PLANALTO_DECLARE

struct KernelTable {
  Isa isa;
#define PLANALTO_FIELD(function, Args) void (*function)(const ExecContext&, const Args&);
  PLANALTO_KERNELS(PLANALTO_FIELD)
#undef PLANALTO_FIELD
};

// The bodies for an ISA that the CPU has (available_isas()).
const KernelTable& kernel_table(Isa isa);

}  // namespace planalto::kernels
