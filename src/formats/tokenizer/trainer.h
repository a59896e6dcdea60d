// SPDX-License-Identifier: Apache-2.0
// trainer.h: makes a byte-level BPE tokenizer from text.
// The text is cut by the pattern of cl100k and Llama 3 (kTrainedPattern). Ids: the special tokens in their order, then
// the 256 bytes in the order of their characters, then one token a merge. The file has no normalizer and no
// post-processor: it adds no special token to any text.
// Numerics    each merge joins the pair with the highest count; among equals the one with the lowest left id, then
//             right id: as Hugging Face's BpeTrainer. Counts are exact; the same text gives the same file
// Memory      the distinct pieces of all documents, and about 60 bytes for each of their bytes while merging
// Threads     one
// Errors      config: a size or a special token that cannot be; data: a document that is not UTF-8
// Source      Sennrich et al. 2016 (arXiv:1508.07909), section 3.2, with incremental pair counts
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace planalto {

struct BpeTrainerOptions {
  std::int64_t vocab_size = 0;  // special tokens and the 256 bytes included
  std::vector<std::string> special_tokens;
  std::int64_t min_frequency = 2;  // a pair that is rarer is not joined
};

struct TrainedTokenizer {
  std::string json;             // the text of a tokenizer.json
  std::int64_t vocab_size = 0;  // less than asked for when no pair was frequent enough
  std::int64_t num_merges = 0;
  std::int64_t num_documents = 0;
  std::int64_t num_pieces = 0;  // distinct ones
};

// Gives the next document, or false at the end.
using NextDocument = std::function<bool(std::string*)>;

TrainedTokenizer train_byte_level_bpe(const NextDocument& next, const BpeTrainerOptions& options);

}  // namespace planalto
