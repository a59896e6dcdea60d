// SPDX-License-Identifier: Apache-2.0
// embedding.h: the reference bodies of kernels/embedding.h.
#pragma once

#include "kernels/embedding.h"

namespace planalto::kernels::reference {

void embedding_forward(const EmbeddingForward& a);
void embedding_backward(const EmbeddingBackward& a);

}  // namespace planalto::kernels::reference
