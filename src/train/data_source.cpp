// SPDX-License-Identifier: Apache-2.0
#include "train/data_source.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/left_behind.h"

namespace planalto {

namespace {

constexpr std::int64_t kCopyTokens = 1 << 16;

// What decides the tokens: bytes of every file, the tokenizer, the options.
std::uint64_t preparation_hash(const std::vector<std::string>& files, const Tokenizer& tokenizer,
                               const PrepareOptions& o) {
  Xxh3Stream hash;
  const std::string options =
      fmt::format("v1 tokenizer={:016x} bos={}:{} eos={}:{} format={} field={} separator={} skip={}",
                  tokenizer.hash(), o.add_bos, o.bos_id, o.add_eos, o.eos_id, static_cast<int>(o.text.format),
                  o.text.text_field, o.text.separator, o.text.skip_bad);
  hash.update(std::as_bytes(std::span(options)));
  for (const std::string& file : files) {
    const MappedFile mapped(file);
    mapped.will_read_sequentially();
    hash.update(mapped.bytes());
  }
  return hash.digest();
}

bool is_token_shard(const std::string& path) {
  return is_regular_file(path) && looks_like_token_shard(MappedFile(path).bytes());
}

}  // namespace

PreparedText prepare_text(const std::string& path, const Tokenizer& tokenizer, const PrepareOptions& o) {
  if (!path_exists(path)) fail(ErrorKind::data, "data: {} does not exist", path);
  if (is_token_shard(path)) return {path, true, {}};
  const std::vector<std::string> files = text_files(path);
  PreparedText prepared;
  make_folders(o.cache_dir);
  remove_left_behind(o.cache_dir);
  prepared.shard_path =
      join_path(o.cache_dir, fmt::format("{:016x}.tokens", preparation_hash(files, tokenizer, o)));
  if (is_regular_file(prepared.shard_path)) {
    prepared.from_cache = true;
    return prepared;
  }
  TokenShardWriter writer(prepared.shard_path,
                          {.vocab_size = tokenizer.vocab_size(), .tokenizer_hash = tokenizer.hash()});
  std::vector<std::int32_t> ids;
  prepared.report = for_each_document(path, o.text, [&](const TextDocument& document) {
    ids.clear();
    tokenizer.append_encoded(document.text, false, &ids);
    if (o.add_bos && o.bos_id >= 0 && (ids.empty() || ids.front() != o.bos_id))
      ids.insert(ids.begin(), o.bos_id);
    if (o.add_eos && o.eos_id >= 0 && (ids.empty() || ids.back() != o.eos_id)) ids.push_back(o.eos_id);
    writer.add_document(ids);
  });
  if (writer.num_tokens() == 0) fail(ErrorKind::data, "data: {} holds no text", path);
  writer.commit();
  return prepared;
}

ShardSource::ShardSource(std::vector<TokenShard> shards) {
  for (TokenShard& shard : shards) {
    const std::size_t idx = shards_.size();
    for (std::int64_t d = 0; d < shard.num_documents(); ++d) {
      const std::int64_t begin = shard.document_begin(d), length = shard.document_begin(d + 1) - begin;
      if (length > 0) documents_.push_back({idx, begin, length});
    }
    num_tokens_ += shard.num_tokens();
    shards_.push_back(std::make_shared<const TokenShard>(std::move(shard)));
  }
}

void ShardSource::copy(std::int64_t document, std::int64_t first, std::int64_t n, std::int32_t* out) const {
  const Document& d = documents_[static_cast<std::size_t>(document)];
  PLANALTO_CHECK(first >= 0 && n >= 0 && first + n <= d.length, "tokens {} .. {} of a document of {}", first,
                 first + n, d.length);
  shards_[d.shard]->tokens().copy(d.first + first, {out, static_cast<std::size_t>(n)});
}

void ShardSource::copy_labels(std::int64_t document, std::int64_t first, std::int64_t n,
                              std::int32_t* out) const {
  copy(document, first, n, out);
  const Document& d = documents_[static_cast<std::size_t>(document)];
  const TokenShard& shard = *shards_[d.shard];
  if (!shard.header().has_trained_mask) return;
  for (std::int64_t i = 0; i < n; ++i) {
    if (!shard.trained(d.first + first + i)) out[i] = kIgnoreLabel;
  }
}

std::int64_t ShardSource::num_labels(std::int64_t document) const {
  const Document& d = documents_[static_cast<std::size_t>(document)];
  const TokenShard& shard = *shards_[d.shard];
  if (!shard.header().has_trained_mask) return TokenSource::num_labels(document);
  std::int64_t n = 0;
  for (std::int64_t i = 1; i < d.length; ++i) n += shard.trained(d.first + i) ? 1 : 0;
  return n;
}

std::uint64_t ShardSource::hash() const {
  Xxh3Stream hash;
  for (const auto& shard : shards_) {
    const std::uint64_t checksum = shard->header().checksum;
    hash.update(std::as_bytes(std::span(&checksum, 1)));
  }
  const std::int64_t tokens = num_tokens_;
  hash.update(std::as_bytes(std::span(&tokens, 1)));
  return hash.digest();
}

ShardSource ShardSource::split_off(std::int64_t begin, std::int64_t end) {
  ShardSource part;
  part.shards_ = shards_;
  std::vector<Document> rest;
  std::int64_t at = 0;
  auto keep = [](std::vector<Document>& list, std::int64_t& tokens, Document d, std::int64_t from,
                 std::int64_t to) {
    if (from >= to) return;
    list.push_back({d.shard, d.first + from, to - from});
    tokens += to - from;
  };
  num_tokens_ = 0;
  for (const Document& d : documents_) {
    const std::int64_t from = std::clamp<std::int64_t>(begin - at, 0, d.length);
    const std::int64_t to = std::clamp<std::int64_t>(end - at, from, d.length);
    keep(rest, num_tokens_, d, 0, from);
    keep(part.documents_, part.num_tokens_, d, from, to);
    keep(rest, num_tokens_, d, to, d.length);
    at += d.length;
  }
  documents_ = std::move(rest);
  return part;
}

DataSummary summarize(const TokenSource& source, std::int64_t seq_len) {
  DataSummary s;
  s.documents = source.num_documents();
  for (std::int64_t d = 0; d < s.documents; ++d) {
    const std::int64_t length = source.document_length(d), labels = source.num_labels(d);
    s.tokens += length;
    s.labels += labels;
    s.without_label += labels == 0 ? 1 : 0;
    s.split += length > seq_len ? 1 : 0;
  }
  return s;
}

std::string sample_ids(const TokenSource& source) {
  constexpr std::int64_t kShown = 3;
  const std::int64_t length = source.num_documents() == 0 ? 0 : source.document_length(0);
  std::string text;
  for (std::int64_t i = 0; i < length; ++i) {
    if (length > 2 * kShown && i == kShown) {
      text += ", ...";
      i = length - kShown;
    }
    std::int32_t id = 0;
    source.copy(0, i, 1, &id);
    text += (text.empty() ? "" : ", ") + std::to_string(id);
  }
  return "[" + text + "]";
}

double unigram_loss(const TokenSource& train, const TokenSource& eval, std::int64_t vocab_size) {
  std::vector<std::int32_t> ids(static_cast<std::size_t>(kCopyTokens));
  std::vector<double> counts(static_cast<std::size_t>(vocab_size), 1.0);
  double total = static_cast<double>(vocab_size), loss = 0.0;
  std::int64_t labels = 0;
  auto for_each_token = [&](const TokenSource& source, const auto& take) {
    for (std::int64_t d = 0; d < source.num_documents(); ++d) {
      for (std::int64_t first = 0; first < source.document_length(d); first += kCopyTokens) {
        const std::int64_t n = std::min(kCopyTokens, source.document_length(d) - first);
        source.copy(d, first, n, ids.data());
        for (std::int64_t i = 0; i < n; ++i) take(ids[static_cast<std::size_t>(i)], first + i);
      }
    }
  };
  for_each_token(train, [&](std::int32_t id, std::int64_t) {
    counts[static_cast<std::size_t>(id)] += 1.0;
    total += 1.0;
  });
  for_each_token(eval, [&](std::int32_t id, std::int64_t position) {
    if (position == 0) return;  // the first token of a document is nobody's label
    loss -= std::log(counts[static_cast<std::size_t>(id)] / total);
    ++labels;
  });
  return labels == 0 ? 0.0 : loss / static_cast<double>(labels);
}

}  // namespace planalto
