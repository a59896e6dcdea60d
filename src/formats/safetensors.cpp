// SPDX-License-Identifier: Apache-2.0
#include "formats/safetensors.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include "base/dtype.h"
#include "base/error.h"
#include "base/json.h"
#include "base/utf8.h"

namespace planalto {

namespace {

struct DTypeName {
  FileDType dtype;
  const char* name;
  std::int64_t bytes;
};

constexpr DTypeName kDTypes[] = {
    {FileDType::f64, "F64", 8},         {FileDType::f32, "F32", 4},
    {FileDType::f16, "F16", 2},         {FileDType::bf16, "BF16", 2},
    {FileDType::i64, "I64", 8},         {FileDType::i32, "I32", 4},
    {FileDType::i16, "I16", 2},         {FileDType::i8, "I8", 1},
    {FileDType::u64, "U64", 8},         {FileDType::u32, "U32", 4},
    {FileDType::u16, "U16", 2},         {FileDType::u8, "U8", 1},
    {FileDType::boolean, "BOOL", 1},    {FileDType::f8_e4m3, "F8_E4M3", 1},
    {FileDType::f8_e5m2, "F8_E5M2", 1}, {FileDType::f8_e8m0, "F8_E8M0", 1},
};

const DTypeName& entry_of(FileDType dtype) {
  return kDTypes[static_cast<std::size_t>(dtype)];
}

std::string all_dtypes() {
  std::string out;
  for (const DTypeName& d : kDTypes) out += fmt::format("{}{}", out.empty() ? "" : " ", d.name);
  return out;
}

}  // namespace

const char* to_string(FileDType dtype) {
  return entry_of(dtype).name;
}
std::int64_t dtype_bytes(FileDType dtype) {
  return entry_of(dtype).bytes;
}

bool parse_file_dtype(std::string_view text, FileDType* dtype) {
  for (const DTypeName& d : kDTypes) {
    if (text == d.name) {
      *dtype = d.dtype;
      return true;
    }
  }
  return false;
}

std::string shape_text(std::span<const std::int64_t> shape) {
  std::string out = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) out += fmt::format("{}{}", i == 0 ? "" : ", ", shape[i]);
  return out + "]";
}

std::int64_t num_elements(const TensorSpec& spec, std::string_view where) {
  // A zero does not hide an overflow of the others: strides are computed from them.
  std::int64_t product = 1;
  bool empty = false;
  for (const std::int64_t extent : spec.shape) {
    if (extent < 0)
      fail(ErrorKind::data, "{}: the shape {} has a negative extent", where, shape_text(spec.shape));
    empty = empty || extent == 0;
    if (__builtin_mul_overflow(product, std::max<std::int64_t>(extent, 1), &product)) {
      fail(ErrorKind::data, "{}: the shape {} has more than 2^63-1 elements", where, shape_text(spec.shape));
    }
  }
  return empty ? 0 : product;
}

std::int64_t num_bytes(const TensorSpec& spec, std::string_view where) {
  std::int64_t bytes = 0;
  if (__builtin_mul_overflow(num_elements(spec, where), dtype_bytes(spec.dtype), &bytes)) {
    fail(ErrorKind::data, "{}: {} of shape {} is more than 2^63-1 bytes", where, to_string(spec.dtype),
         shape_text(spec.shape));
  }
  return bytes;
}

// --- reading the header ---------------------------------------------------------------------------------------------

namespace {

constexpr std::int64_t kLengthBytes = 8;
constexpr std::int64_t kMaxHeaderBytes = 100'000'000;
constexpr JsonOptions kHeaderLimits{.max_depth = 8, .max_values = 1'500'000};

std::vector<std::int64_t> read_sizes(const JsonValue& value, const std::string& where) {
  std::vector<std::int64_t> out;
  for (const JsonValue& v : value.as_array(where)) {
    if (!v.is_integer() || v.as_double(where) < 0 || v.as_uint64(where) > INT64_MAX) {
      fail(ErrorKind::data, "{}: expected integers from 0 to 2^63-1, found {}", where, write_json(v));
    }
    out.push_back(v.as_int64(where));
  }
  return out;
}

SafetensorsFile::Entry read_entry(const JsonMember& member, const std::string& where) {
  SafetensorsFile::Entry entry;
  entry.spec.name = member.key;
  for (const JsonMember& m : member.value.as_object(where)) {
    if (m.key != "dtype" && m.key != "shape" && m.key != "data_offsets") {
      fail(ErrorKind::data, "{}: unknown key \"{}\" (dtype, shape and data_offsets are known)", where,
           printable(m.key));
    }
  }
  const std::string& dtype = member.value.at("dtype", where).as_string(where + ": dtype");
  if (!parse_file_dtype(dtype, &entry.spec.dtype)) {
    fail(ErrorKind::data, "{}: unknown dtype \"{}\" (known: {})", where, printable(dtype), all_dtypes());
  }
  entry.spec.shape = read_sizes(member.value.at("shape", where), where + ": shape");
  entry.num_elements = num_elements(entry.spec, where);
  const std::int64_t needed = num_bytes(entry.spec, where);
  const auto offsets = read_sizes(member.value.at("data_offsets", where), where + ": data_offsets");
  if (offsets.size() != 2) {
    fail(ErrorKind::data, "{}: data_offsets holds {} numbers instead of 2", where, offsets.size());
  }
  entry.begin = offsets[0];
  entry.end = offsets[1];
  if (entry.begin > entry.end) {
    fail(ErrorKind::data, "{}: the range [{}, {}] ends before it begins", where, entry.begin, entry.end);
  }
  if (entry.end - entry.begin != needed) {
    fail(ErrorKind::data, "{}: {} of shape {} needs {} bytes, its range [{}, {}] has {}", where, dtype,
         shape_text(entry.spec.shape), needed, entry.begin, entry.end, entry.end - entry.begin);
  }
  return entry;
}

}  // namespace

SafetensorsFile SafetensorsFile::open(const std::string& path) {
  SafetensorsFile out;
  out.file_ = MappedFile(path);
  out.read_header();
  out.check_layout();
  out.build_index();
  return out;
}

void SafetensorsFile::read_header() {
  const std::string& path = file_.path();
  ByteReader reader(file_.bytes(), path);
  const std::uint64_t length = reader.u64("the header length of a safetensors file");
  if (length == 0) fail(ErrorKind::data, "{}: a safetensors header of 0 bytes", path);
  if (length > static_cast<std::uint64_t>(reader.left())) {
    fail(ErrorKind::data, "{}: the header length is {} bytes, but only {} follow it in this file of {}", path,
         length, reader.left(), file_.size());
  }
  if (length > kMaxHeaderBytes) {
    fail(ErrorKind::data, "{}: the header length is {} bytes, at most {} are accepted", path, length,
         kMaxHeaderBytes);
  }
  const auto header = reader.take(static_cast<std::int64_t>(length), "the header");
  data_begin_ = kLengthBytes + static_cast<std::int64_t>(length);
  const std::string_view text(reinterpret_cast<const char*>(header.data()), header.size());
  const std::string source = path + " (header)";
  if (text.front() != '{') {
    fail(ErrorKind::data, "{}: a safetensors header begins with {{, this one with \"{}\"", path,
         printable(text.substr(0, 8)));
  }
  const JsonValue document = parse_json(text, source, kHeaderLimits);
  for (const JsonMember& member : document.as_object(source)) {
    if (member.key == "__metadata__") {
      const std::string where = source + ": __metadata__";
      for (const JsonMember& m : member.value.as_object(where)) {
        metadata_.emplace_back(m.key, m.value.as_string(where + ": " + printable(m.key)));
      }
      continue;
    }
    entries_.push_back(
        read_entry(member, fmt::format("{}: tensor \"{}\"", path, printable(member.key, 200))));
  }
}

// Sorted by range, each tensor begins where the one before it ends; the last one ends with the file.
void SafetensorsFile::check_layout() const {
  std::vector<const Entry*> sorted;
  for (const Entry& e : entries_) sorted.push_back(&e);
  std::sort(sorted.begin(), sorted.end(), [](const Entry* a, const Entry* b) {
    return std::pair(a->begin, a->end) < std::pair(b->begin, b->end);
  });
  const Entry* last = nullptr;
  for (const Entry* e : sorted) {
    if (last == nullptr || e->end > last->end) last = e;
  }
  if (last != nullptr && last->end > data_bytes()) {
    const auto expected = static_cast<std::uint64_t>(last->end) + static_cast<std::uint64_t>(data_begin_);
    fail(ErrorKind::data,
         "{}: tensor \"{}\" ends at byte {} of the data: the file should have {} bytes and has {}", path(),
         printable(last->spec.name, 200), last->end, expected, file_.size());
  }
  std::int64_t covered = 0;
  const Entry* before = nullptr;
  for (const Entry* e : sorted) {
    if (e->begin < covered) {
      fail(ErrorKind::data, "{}: the tensors \"{}\" [{}, {}] and \"{}\" [{}, {}] overlap", path(),
           printable(before->spec.name, 200), before->begin, before->end, printable(e->spec.name, 200),
           e->begin, e->end);
    }
    if (e->begin > covered) {
      fail(ErrorKind::data, "{}: {} bytes before tensor \"{}\" (data offset {}) belong to no tensor", path(),
           e->begin - covered, printable(e->spec.name, 200), covered);
    }
    covered = e->end;
    before = e;
  }
  if (covered != data_bytes()) {
    fail(ErrorKind::data,
         "{}: the last {} bytes belong to no tensor: the file should have {} bytes and has {}", path(),
         data_bytes() - covered, data_begin_ + covered, file_.size());
  }
}

void SafetensorsFile::build_index() {
  by_name_.resize(entries_.size());
  std::iota(by_name_.begin(), by_name_.end(), std::int64_t{0});
  std::sort(by_name_.begin(), by_name_.end(), [this](std::int64_t a, std::int64_t b) {
    return entries_[static_cast<std::size_t>(a)].spec.name < entries_[static_cast<std::size_t>(b)].spec.name;
  });
}

const SafetensorsFile::Entry* SafetensorsFile::find(std::string_view name) const {
  const auto it =
      std::lower_bound(by_name_.begin(), by_name_.end(), name, [this](std::int64_t i, std::string_view n) {
        return entries_[static_cast<std::size_t>(i)].spec.name < n;
      });
  if (it == by_name_.end()) return nullptr;
  const Entry& entry = entries_[static_cast<std::size_t>(*it)];
  return entry.spec.name == name ? &entry : nullptr;
}

TensorView SafetensorsFile::tensor(std::string_view name) const {
  const Entry* entry = find(name);
  if (entry == nullptr) fail(ErrorKind::data, "{}: there is no tensor \"{}\"", path(), printable(name, 200));
  return tensor(*entry);
}

TensorView SafetensorsFile::tensor(const Entry& entry) const {
  ByteReader reader(file_.bytes(), path());
  reader.seek(data_begin_ + entry.begin, entry.spec.name);
  return {path(),           entry.spec.name,    entry.spec.dtype,
          entry.spec.shape, entry.num_elements, reader.take(entry.end - entry.begin, entry.spec.name)};
}

// --- reading elements -----------------------------------------------------------------------------------------------

namespace {

float from_f16(std::uint16_t h) {
  const std::uint32_t sign = static_cast<std::uint32_t>(h & 0x8000U) << 16;
  const std::uint32_t exponent = (h >> 10) & 0x1FU;
  const std::uint32_t mantissa = h & 0x3FFU;
  if (exponent == 0) {  // zero or subnormal: mantissa x 2^-24, exact in fp32
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24F;
    return sign != 0 ? -magnitude : magnitude;
  }
  const std::uint32_t wide = exponent == 0x1F ? 0xFFU : exponent + 112;
  return std::bit_cast<float>(sign | wide << 23 | mantissa << 13);
}

template <class T>
T element(std::span<const std::byte> bytes, std::size_t i) {
  T v;
  std::memcpy(&v, bytes.data() + i * sizeof(T), sizeof(T));
  return v;
}

template <class File, class Out, class Convert>
void convert(std::span<const std::byte> bytes, std::span<Out> out, Convert&& as_out) {
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<Out>(as_out(element<File>(bytes, i)));
}

template <class Out>
std::span<const std::byte> range_of(const TensorView& t, std::int64_t first, std::span<Out> out) {
  const auto count = static_cast<std::int64_t>(out.size());
  if (first < 0 || count > t.num_elements || first > t.num_elements - count) {
    fail(ErrorKind::data, "{}: tensor \"{}\" has {} elements, [{}, +{}] were asked for", t.file,
         printable(t.name, 200), t.num_elements, first, count);
  }
  const auto size = static_cast<std::size_t>(dtype_bytes(t.dtype));
  return t.bytes.subspan(static_cast<std::size_t>(first) * size, out.size() * size);
}

[[noreturn]] void wrong_dtype(const TensorView& t, const char* wanted) {
  fail(ErrorKind::data, "{}: tensor \"{}\" is {}, it cannot be read as {}", t.file, printable(t.name, 200),
       to_string(t.dtype), wanted);
}

template <class Out>
void read_floats(const TensorView& t, std::int64_t first, std::span<Out> out) {
  const auto bytes = range_of(t, first, out);
  switch (t.dtype) {
    case FileDType::f64:
      convert<double>(bytes, out, [](double v) { return v; });
      return;
    case FileDType::f32:
      convert<float>(bytes, out, [](float v) { return v; });
      return;
    case FileDType::f16:
      convert<std::uint16_t>(bytes, out, from_f16);
      return;
    case FileDType::bf16:
      convert<bf16>(bytes, out, [](bf16 v) { return to_float(v); });
      return;
    default:
      wrong_dtype(t, "floating point (F64, F32, F16 and BF16 can)");
  }
}

}  // namespace

void TensorView::read(std::int64_t first, std::span<float> out) const {
  read_floats(*this, first, out);
}
void TensorView::read(std::int64_t first, std::span<double> out) const {
  read_floats(*this, first, out);
}

void TensorView::read(std::int64_t first, std::span<std::int64_t> out) const {
  const auto part = range_of(*this, first, out);
  const auto same = [](auto v) { return v; };
  switch (dtype) {
    case FileDType::i64:
      convert<std::int64_t>(part, out, same);
      return;
    case FileDType::i32:
      convert<std::int32_t>(part, out, same);
      return;
    case FileDType::i16:
      convert<std::int16_t>(part, out, same);
      return;
    case FileDType::i8:
      convert<std::uint8_t>(part, out, [](std::uint8_t v) { return (v ^ 0x80) - 0x80; });
      return;
    case FileDType::u32:
      convert<std::uint32_t>(part, out, same);
      return;
    case FileDType::u16:
      convert<std::uint16_t>(part, out, same);
      return;
    case FileDType::u8:
    case FileDType::boolean:
      convert<std::uint8_t>(part, out, same);
      return;
    case FileDType::u64:
      convert<std::uint64_t>(part, out, [this](std::uint64_t v) {
        if (!std::in_range<std::int64_t>(v))
          fail(ErrorKind::data, "{}: tensor \"{}\" holds {}, more than 63 bits", file, name, v);
        return v;
      });
      return;
    default:
      wrong_dtype(*this, "integers");
  }
}

std::vector<float> TensorView::read_f32() const {
  std::vector<float> out(static_cast<std::size_t>(num_elements));
  read(0, std::span(out));
  return out;
}

std::vector<double> TensorView::read_f64() const {
  std::vector<double> out(static_cast<std::size_t>(num_elements));
  read(0, std::span(out));
  return out;
}

std::vector<std::int64_t> TensorView::read_i64() const {
  std::vector<std::int64_t> out(static_cast<std::size_t>(num_elements));
  read(0, std::span(out));
  return out;
}

// --- writing --------------------------------------------------------------------------------------------------------

namespace {

std::string header_text(const std::vector<TensorSpec>& tensors, const SafetensorsWriterOptions& options,
                        const std::string& path, std::int64_t* data_bytes) {
  JsonObject header;
  if (!options.metadata.empty()) {
    JsonObject metadata;
    for (const auto& [key, value] : options.metadata) metadata.set(key, JsonValue(value));
    header.set("__metadata__", std::move(metadata));
  }
  std::int64_t at = 0;
  for (const TensorSpec& spec : tensors) {
    const std::string where = fmt::format("{}: tensor \"{}\"", path, printable(spec.name, 200));
    if (header.find(spec.name) != nullptr || spec.name == "__metadata__") {
      fail(ErrorKind::data, "{}: the name is taken already", where);
    }
    std::int64_t end = 0;
    if (__builtin_add_overflow(at, num_bytes(spec, where), &end)) {
      fail(ErrorKind::data, "{}: the file would have more than 2^63-1 bytes", where);
    }
    JsonObject entry;
    entry.set("dtype", JsonValue(to_string(spec.dtype)));
    entry.set("shape", JsonArray(spec.shape.begin(), spec.shape.end()));
    entry.set("data_offsets", JsonArray{JsonValue(at), JsonValue(end)});
    header.set(spec.name, std::move(entry));
    at = end;
  }
  *data_bytes = at;
  std::string text = write_json(header);
  text.append((8 - text.size() % 8) % 8, ' ');
  return text;
}

}  // namespace

SafetensorsWriter::SafetensorsWriter(const std::string& path, std::vector<TensorSpec> tensors,
                                     const SafetensorsWriterOptions& options)
    : path_(path), tensors_(std::move(tensors)) {
  if (options.order == SafetensorsWriterOptions::Order::by_alignment) {
    std::sort(tensors_.begin(), tensors_.end(), [](const TensorSpec& a, const TensorSpec& b) {
      return std::pair(-dtype_bytes(a.dtype), std::string_view(a.name)) <
             std::pair(-dtype_bytes(b.dtype), std::string_view(b.name));
    });
  }
  std::int64_t data_bytes = 0;
  const std::string header = header_text(tensors_, options, path, &data_bytes);
  const auto length = static_cast<std::uint64_t>(header.size());
  if (header.size() > kMaxHeaderBytes) {
    fail(ErrorKind::data, "{}: a header of {} bytes, readers accept {}: use more files", path, length,
         kMaxHeaderBytes);
  }
  require_free_bytes(path, kLengthBytes + static_cast<std::int64_t>(length) + data_bytes);
  file_ = std::make_unique<AtomicFile>(path);
  file_->write(std::as_bytes(std::span(&length, 1)));
  file_->write(header);
  if (!tensors_.empty()) missing_ = num_bytes(tensors_[0], path);
  skip_full();
}

SafetensorsWriter::~SafetensorsWriter() = default;

void SafetensorsWriter::skip_full() {
  while (current_ < tensors_.size() && missing_ == 0) {
    ++current_;
    if (current_ < tensors_.size()) missing_ = num_bytes(tensors_[current_], path_);
  }
}

void SafetensorsWriter::write(std::string_view name, std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  PLANALTO_CHECK(!complete(), "{}: all tensors are written, then came \"{}\"", path_, name);
  PLANALTO_CHECK(tensors_[current_].name == name, "{}: it is the turn of \"{}\", not of \"{}\"", path_,
                 tensors_[current_].name, name);
  const auto count = static_cast<std::int64_t>(bytes.size());
  PLANALTO_CHECK(count <= missing_, "{}: \"{}\" takes {} bytes more, not {}", path_, name, missing_, count);
  file_->write(bytes);
  missing_ -= count;
  skip_full();
}

void SafetensorsWriter::write(std::string_view name, std::span<const float> values) {
  if (values.empty()) return;
  PLANALTO_CHECK(!complete(), "{}: all tensors are written, then came \"{}\"", path_, name);
  const FileDType dtype = tensors_[current_].dtype;
  PLANALTO_CHECK(dtype == FileDType::f32 || dtype == FileDType::bf16, "{}: \"{}\" is {}, not F32 or BF16",
                 path_, name, to_string(dtype));
  if (dtype == FileDType::f32) {
    write(name, std::as_bytes(values));
    return;
  }
  std::vector<bf16> rounded;
  constexpr std::size_t kPiece = 1 << 16;
  for (std::size_t at = 0; at < values.size(); at += kPiece) {
    rounded.clear();
    for (const float v : values.subspan(at, std::min(kPiece, values.size() - at)))
      rounded.push_back(to_bf16(v));
    write(name, std::as_bytes(std::span<const bf16>(rounded)));
  }
}

void SafetensorsWriter::commit() {
  PLANALTO_CHECK(complete(), "{}: \"{}\" still misses {} bytes", path_, tensors_[current_].name, missing_);
  file_->commit();
}

}  // namespace planalto
