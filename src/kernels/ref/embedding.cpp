// SPDX-License-Identifier: Apache-2.0
#include "kernels/ref/embedding.h"

#include "kernels/ref/element.h"

namespace planalto::kernels::reference {

void embedding_forward(const EmbeddingForward& a) {
  for (std::int64_t t = 0; t < a.tokens.get(); ++t) {
    for (std::int64_t d = 0; d < a.y.cols; ++d) put(a.y, t, d, get(a.table, a.ids[t], d));
  }
}

void embedding_backward(const EmbeddingBackward& a) {
  for (std::int64_t v = 0; v < a.dtable.rows; ++v) {
    for (std::int64_t d = 0; d < a.dtable.cols; ++d) {
      double sum = a.accumulate ? get(a.dtable, v, d) : 0.0;
      for (std::int64_t t = 0; t < a.tokens.get(); ++t) {
        if (a.ids[t] == v && v != a.padding_id) sum += get(a.dy, t, d);
      }
      put(a.dtable, v, d, sum);
    }
  }
}

}  // namespace planalto::kernels::reference
