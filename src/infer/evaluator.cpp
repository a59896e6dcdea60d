// SPDX-License-Identifier: Apache-2.0
#include "infer/evaluator.h"

#include "model/rope_table.h"

namespace planalto {

Evaluator::Evaluator(const LoadedModel& model, const EvaluatorOptions& options)
    : options_(options),
      programs_(model.config, options.precision, options.seq_len * options.rows, options.seq_len,
                options.target),
      launch_(programs_.table, {&programs_.eval}, {.target = options.target}) {
  fill_rope_table(model.config.attention.rope, options.seq_len,
                  launch_.data<float>(programs_.buffers.rope_table));
  model.load_into(programs_.parameters, programs_.table, launch_.address_of());
}

TextLoss Evaluator::run(const TokenSource& source) {
  Batcher batcher(source,
                  {.seq_len = options_.seq_len, .rows = options_.rows, .shuffle = false, .repeat = false});
  const EvalBuffers& s = programs_.buffers;
  const MicrobatchView v{launch_.data<std::int32_t>(s.ids), launch_.data<std::int32_t>(s.labels),
                         launch_.data<std::int32_t>(s.positions), launch_.data<std::int32_t>(s.doc_offsets),
                         launch_.data<std::int64_t>(s.counts)};
  TextLoss total;
  while (batcher.fill(v)) {
    launch_.run(programs_.eval);
    total.loss_sum += launch_.data<double>(s.loss_sums)[0];
    total.labels += v.counts[ops::kNumTrained];
    total.tokens += v.counts[ops::kNumTokens];
  }
  return total;
}

}  // namespace planalto
