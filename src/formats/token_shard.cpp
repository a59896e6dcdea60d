// SPDX-License-Identifier: Apache-2.0
#include "formats/token_shard.h"

#include <algorithm>
#include <limits>

#include "base/error.h"

namespace planalto {

namespace {

constexpr std::string_view kMagic = "PLTSHARD";
constexpr std::uint32_t kVersion = 1;
constexpr std::int64_t kHeaderBytes = 128;
constexpr std::int64_t kHashedHeaderBytes = 64;  // what the header's own checksum covers
constexpr std::uint64_t kFlagTrainedMask = 1;

// The width follows from the vocabulary, so that a reader can tell a forged width from a real one.
std::uint32_t token_bytes_for(std::int64_t vocab_size) {
  return vocab_size <= 65536 ? 2 : 4;
}

std::int64_t pad_to_8(std::int64_t num_bytes) {
  return (8 - num_bytes % 8) % 8;
}

void append_bytes(std::vector<std::byte>& out, const void* data, std::size_t num_bytes) {
  const auto* p = static_cast<const std::byte*>(data);
  out.insert(out.end(), p, p + num_bytes);
}

std::vector<std::byte> header_bytes(const TokenShardHeader& h) {
  std::vector<std::byte> out;
  const auto put = [&out](auto v) { append_bytes(out, &v, sizeof(v)); };
  append_bytes(out, kMagic.data(), kMagic.size());
  put(h.version);
  put(h.token_bytes);
  put(h.vocab_size);
  put(h.tokenizer_hash);
  put(h.num_tokens);
  put(h.num_documents);
  put(h.has_trained_mask ? kFlagTrainedMask : std::uint64_t{0});
  put(h.checksum);
  PLANALTO_CHECK(out.size() == kHashedHeaderBytes, "a header of {} bytes", out.size());
  put(xxh3_64(out));
  out.resize(static_cast<std::size_t>(kHeaderBytes));
  return out;
}

}  // namespace

bool looks_like_token_shard(std::span<const std::byte> bytes) {
  return bytes.size() >= kMagic.size() && std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) == 0;
}

// --- TokenSpan ------------------------------------------------------------------------------------------------------

std::int32_t TokenSpan::operator[](std::int64_t i) const {
  std::int32_t id = 0;
  copy(i, std::span(&id, 1));
  return id;
}

void TokenSpan::copy(std::int64_t first, std::span<std::int32_t> out) const {
  const auto count = static_cast<std::int64_t>(out.size());
  PLANALTO_CHECK(first >= 0 && count <= size() && first <= size() - count, "tokens [{}, +{}] of {}", first,
                 count, size());
  const std::byte* from = bytes_.data() + first * token_bytes_;
  if (token_bytes_ == 4) {
    std::memcpy(out.data(), from, out.size_bytes());
    return;
  }
  for (std::size_t i = 0; i < out.size(); ++i) {
    std::uint16_t id = 0;
    std::memcpy(&id, from + 2 * i, 2);
    out[i] = id;
  }
}

// --- reading --------------------------------------------------------------------------------------------------------

TokenShard TokenShard::open(const std::string& path, const TokenShardOptions& options) {
  TokenShard out;
  out.file_ = MappedFile(path);
  out.read_header();
  out.check_offsets();
  if (options.tokenizer_hash && *options.tokenizer_hash != out.header_.tokenizer_hash) {
    fail(ErrorKind::data, "{}: made with the tokenizer {}, the one in use is {}: tokenise the text again",
         path, hex64(out.header_.tokenizer_hash), hex64(*options.tokenizer_hash));
  }
  if (options.verify) out.verify();
  return out;
}

void TokenShard::read_header() {
  const std::string& path = file_.path();
  ByteReader reader(file_.bytes(), path);
  const auto hashed = reader.take(kHashedHeaderBytes, "the header of a token shard");
  if (!looks_like_token_shard(hashed))
    fail(ErrorKind::data, "{}: not a token shard (it does not begin with {})", path, kMagic);
  const std::uint64_t header_checksum = reader.u64("the checksum of the header");
  reader.seek(static_cast<std::int64_t>(kMagic.size()), "the header");
  header_.version = reader.u32("the version");
  if (header_.version != kVersion) {
    fail(ErrorKind::data, "{}: token shard version {}, this program reads {}", path, header_.version,
         kVersion);
  }
  if (xxh3_64(hashed) != header_checksum) {
    fail(ErrorKind::data, "{}: the header is damaged: its checksum is {}, it says {}", path,
         hex64(xxh3_64(hashed)), hex64(header_checksum));
  }
  header_.token_bytes = reader.u32("the token width");
  header_.vocab_size = reader.size64("the vocabulary size");
  header_.tokenizer_hash = reader.u64("the tokenizer hash");
  header_.num_tokens = reader.size64("the number of tokens");
  header_.num_documents = reader.size64("the number of documents");
  const std::uint64_t flags = reader.u64("the flags");
  header_.checksum = reader.u64("the checksum");
  header_.has_trained_mask = (flags & kFlagTrainedMask) != 0;
  if ((flags & ~kFlagTrainedMask) != 0) fail(ErrorKind::data, "{}: unknown flags {:#x}", path, flags);
  if (header_.vocab_size < 1 || header_.vocab_size > std::numeric_limits<std::int32_t>::max()) {
    fail(ErrorKind::data, "{}: a vocabulary of {}, legal are 1 to 2^31-1", path, header_.vocab_size);
  }
  if (header_.token_bytes != token_bytes_for(header_.vocab_size)) {
    fail(ErrorKind::data, "{}: {} bytes a token, a vocabulary of {} is stored in {}", path,
         header_.token_bytes, header_.vocab_size, token_bytes_for(header_.vocab_size));
  }
  reader.seek(kHashedHeaderBytes + 8, "the rest of the header");
  for (const std::byte b : reader.take(kHeaderBytes - kHashedHeaderBytes - 8, "the rest of the header")) {
    if (b != std::byte{0})
      fail(ErrorKind::data, "{}: the header is damaged: its unused bytes are not zero", path);
  }
  body_ = file_.bytes().subspan(static_cast<std::size_t>(kHeaderBytes));
  tokens_ = reader.take_array(header_.num_tokens, header_.token_bytes, "the tokens");
  for (const std::byte b : reader.take(pad_to_8(reader.offset()), "the padding behind the tokens")) {
    if (b != std::byte{0}) fail(ErrorKind::data, "{}: the padding behind the tokens is not zero", path);
  }
  if (header_.num_documents > reader.left() / 8) {
    fail(ErrorKind::data, "{}: {} documents, but only {} bytes are left for their offsets", path,
         header_.num_documents, reader.left());
  }
  offsets_ =
      view_as<std::uint64_t>(reader.take_array(header_.num_documents + 1, 8, "the document offsets"), path);
  if (header_.has_trained_mask) {
    const std::int64_t num_words = header_.num_tokens / 64 + (header_.num_tokens % 64 != 0 ? 1 : 0);
    mask_ = view_as<std::uint64_t>(reader.take_array(num_words, 8, "the mask of trained tokens"), path);
  }
  if (reader.left() != 0) {
    fail(ErrorKind::data, "{}: {} bytes behind the end: the file should have {} bytes and has {}", path,
         reader.left(), reader.offset(), file_.size());
  }
}

void TokenShard::check_offsets() const {
  const auto end = static_cast<std::uint64_t>(header_.num_tokens);
  if (offsets_.front() != 0 || offsets_.back() != end) {
    fail(ErrorKind::data, "{}: the documents cover tokens [{}, {}] instead of [0, {}]", path(),
         offsets_.front(), offsets_.back(), end);
  }
  for (std::size_t i = 1; i < offsets_.size(); ++i) {
    if (offsets_[i] < offsets_[i - 1]) {
      fail(ErrorKind::data, "{}: document {} ends at token {}, before it begins at {}", path(), i - 1,
           offsets_[i], offsets_[i - 1]);
    }
  }
}

void TokenShard::verify() const {
  file_.will_read_sequentially();
  const std::uint64_t found = xxh3_64(body_);
  if (found != header_.checksum) {
    fail(ErrorKind::data, "{}: damaged: the checksum is {}, the header says {}", path(), hex64(found),
         hex64(header_.checksum));
  }
  std::vector<std::int32_t> piece(1 << 14);
  for (std::int64_t at = 0; at < num_tokens(); at += static_cast<std::int64_t>(piece.size())) {
    const auto count = std::min<std::int64_t>(static_cast<std::int64_t>(piece.size()), num_tokens() - at);
    const std::span<std::int32_t> ids(piece.data(), static_cast<std::size_t>(count));
    tokens().copy(at, ids);
    for (std::size_t i = 0; i < ids.size(); ++i) {
      if (ids[i] < 0 || ids[i] >= header_.vocab_size) {
        fail(ErrorKind::data, "{}: token {} has the id {}, the vocabulary ends at {}", path(),
             at + static_cast<std::int64_t>(i), static_cast<std::uint32_t>(ids[i]), header_.vocab_size - 1);
      }
    }
  }
  const std::int64_t last_bits = num_tokens() % 64;
  if (!mask_.empty() && last_bits != 0 && (mask_.back() >> last_bits) != 0) {
    fail(ErrorKind::data, "{}: the mask of trained tokens goes on behind the last token", path());
  }
}

std::int64_t TokenShard::document_begin(std::int64_t i) const {
  PLANALTO_CHECK(i >= 0 && i <= num_documents(), "document {} of {}", i, num_documents());
  return static_cast<std::int64_t>(offsets_[static_cast<std::size_t>(i)]);
}

TokenSpan TokenShard::document(std::int64_t i) const {
  PLANALTO_CHECK(i >= 0 && i < num_documents(), "document {} of {}", i, num_documents());
  const std::int64_t begin = document_begin(i);
  const auto width = static_cast<std::int64_t>(header_.token_bytes);
  return {tokens_.subspan(static_cast<std::size_t>(begin * width),
                          static_cast<std::size_t>((document_begin(i + 1) - begin) * width)),
          static_cast<int>(header_.token_bytes)};
}

std::int64_t TokenShard::document_of(std::int64_t i) const {
  PLANALTO_CHECK(i >= 0 && i < num_tokens(), "token {} of {}", i, num_tokens());
  return std::upper_bound(offsets_.begin(), offsets_.end(), static_cast<std::uint64_t>(i)) -
         offsets_.begin() - 1;
}

bool TokenShard::trained(std::int64_t i) const {
  PLANALTO_CHECK(i >= 0 && i < num_tokens(), "token {} of {}", i, num_tokens());
  return mask_.empty() || (mask_[static_cast<std::size_t>(i / 64)] >> (i % 64) & 1) != 0;
}

// --- writing --------------------------------------------------------------------------------------------------------

TokenShardWriter::TokenShardWriter(const std::string& path, const TokenShardSpec& spec)
    : path_(path), spec_(spec), token_bytes_(token_bytes_for(spec.vocab_size)), file_(path) {
  PLANALTO_CHECK(spec.vocab_size >= 1 && spec.vocab_size <= std::numeric_limits<std::int32_t>::max(),
                 "a vocabulary of {}", spec.vocab_size);
  file_.write(std::vector<std::byte>(static_cast<std::size_t>(kHeaderBytes)));  // its place; filled by commit
}

TokenShardWriter::~TokenShardWriter() = default;

void TokenShardWriter::put(std::span<const std::byte> bytes) {
  checksum_.update(bytes);
  file_.write(bytes);
}

void TokenShardWriter::append(std::span<const std::int32_t> ids, std::span<const std::uint8_t> trained) {
  PLANALTO_CHECK(trained.size() == (spec_.trained_mask ? ids.size() : 0), "{}: {} mask entries for {} tokens",
                 path_, trained.size(), ids.size());
  scratch_.clear();
  for (const std::int32_t id : ids) {
    if (id < 0 || id >= spec_.vocab_size) {
      fail(ErrorKind::data, "{}: the token id {} is outside the vocabulary of {}", path_, id,
           spec_.vocab_size);
    }
    append_bytes(scratch_, &id, token_bytes_);  // little-endian: the low bytes come first
  }
  put(scratch_);
  if (spec_.trained_mask) {
    mask_.resize(static_cast<std::size_t>(num_tokens_ + static_cast<std::int64_t>(ids.size()) + 63) / 64);
    for (std::size_t i = 0; i < trained.size(); ++i) {
      const std::size_t at = static_cast<std::size_t>(num_tokens_) + i;
      if (trained[i] != 0) mask_[at / 64] |= std::uint64_t{1} << (at % 64);
    }
  }
  num_tokens_ += static_cast<std::int64_t>(ids.size());
}

void TokenShardWriter::end_document() {
  offsets_.push_back(static_cast<std::uint64_t>(num_tokens_));
}

void TokenShardWriter::commit() {
  PLANALTO_CHECK(offsets_.back() == static_cast<std::uint64_t>(num_tokens_),
                 "{}: the last document is not ended", path_);
  put(std::vector<std::byte>(static_cast<std::size_t>(pad_to_8(file_.size()))));
  put(std::as_bytes(std::span<const std::uint64_t>(offsets_)));
  if (spec_.trained_mask) put(std::as_bytes(std::span<const std::uint64_t>(mask_)));
  const TokenShardHeader header{.version = kVersion,
                                .token_bytes = token_bytes_,
                                .vocab_size = spec_.vocab_size,
                                .tokenizer_hash = spec_.tokenizer_hash,
                                .num_tokens = num_tokens_,
                                .num_documents = num_documents(),
                                .has_trained_mask = spec_.trained_mask,
                                .checksum = checksum_.digest()};
  file_.overwrite(0, header_bytes(header));
  file_.commit();
}

}  // namespace planalto
