// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/bodies.h"

namespace planalto::kernels::PLANALTO_ISA_NS {

const KernelTable kTable = {Isa::PLANALTO_ISA_NS,
#define PLANALTO_ENTRY(function, Args) PLANALTO_ISA_NS::function,
                            PLANALTO_KERNELS(PLANALTO_ENTRY)
#undef PLANALTO_ENTRY
};

}  // namespace planalto::kernels::PLANALTO_ISA_NS
