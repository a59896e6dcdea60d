// SPDX-License-Identifier: Apache-2.0
#include "train/weights.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <set>

#include "base/error.h"
#include "base/random.h"

namespace planalto {

namespace {

constexpr std::int64_t kChunkElements = std::int64_t{1} << 16;

// Writes elements of a parameter, given in fp32, to its master and its compute copy.
class ParameterWriter {
 public:
  ParameterWriter(const Parameter& p, const AddressOf& address, const BufferTable& table)
      : weight_(p.weight.valid() ? static_cast<char*>(address(p.weight)) : nullptr),
        master_(p.master.valid() && !(p.master == p.weight) ? static_cast<float*>(address(p.master))
                                                            : nullptr),
        dtype_(p.weight.valid() ? table[p.weight].dtype : DType::bf16) {}

  void write(std::int64_t first, std::span<const float> values) const {
    if (master_ != nullptr) std::copy(values.begin(), values.end(), master_ + first);
    if (weight_ == nullptr) return;  // packed from the master later
    if (dtype_ == DType::f32) {
      std::copy(values.begin(), values.end(), reinterpret_cast<float*>(weight_) + first);
      return;
    }
    auto* out = reinterpret_cast<bf16*>(weight_) + first;
    for (std::size_t i = 0; i < values.size(); ++i) out[i] = to_bf16(values[i]);
  }

 private:
  char* weight_;
  float* master_;
  DType dtype_;
};

// Walks the runs of our rows that a tensor's elements fill, in the tensor's order: body(our first element, tensor element, n).
template <class Body>
void for_each_run(const TensorPiece& piece, std::int64_t cols, const Body& body) {
  for (std::int64_t g = 0; g < piece.groups; ++g) {
    body((piece.first_row + g * piece.group_stride) * cols, g * piece.rows * cols, piece.rows * cols);
  }
}

const float* master_of(const Parameter& p, const AddressOf& address) {
  return static_cast<const float*>(address(p.master.valid() ? p.master : p.weight));
}

class Loader {
 public:
  Loader(const HfFolder& folder, const ModelConfig& config, const ParameterSet& parameters,
         const BufferTable& table, const AddressOf& address)
      : folder_(folder), config_(config), parameters_(parameters), table_(table), address_(address) {
    for (const std::string_view name : folder.names()) by_bare_name_.emplace(bare_tensor_name(name), name);
  }

  LoadReport run() {
    for (const Parameter& p : parameters_.all()) load(p);
    check_left_over();
    if (!faults_.empty()) {
      std::string all;
      for (const std::string& f : faults_) all += "\n  " + f;
      fail(ErrorKind::data, "{}: the weights do not fill this model:{}", folder_.path(), all);
    }
    return std::move(report_);
  }

 private:
  const std::string* find(const std::string& name) const {
    const auto it = by_bare_name_.find(bare_tensor_name(name));
    return it == by_bare_name_.end() ? nullptr : &it->second;
  }
  void fault(std::string text) {
    if (faults_.size() == kMaxFaults) faults_.push_back("... and more");
    if (faults_.size() < kMaxFaults) faults_.push_back(std::move(text));
  }
  bool complete(const std::vector<TensorPiece>& layout) const {
    return std::all_of(layout.begin(), layout.end(), [&](const TensorPiece& t) {
      return t.use != PieceUse::primary || find(t.name) != nullptr;
    });
  }
  void load(const Parameter& p);
  void load_piece(const Parameter& p, const TensorPiece& piece, const TensorView& tensor);
  void compare_piece(const Parameter& p, const TensorPiece& piece, const TensorView& tensor);
  void check_left_over();

  static constexpr std::size_t kMaxFaults = 20;
  const HfFolder& folder_;
  const ModelConfig& config_;
  const ParameterSet& parameters_;
  const BufferTable& table_;
  const AddressOf& address_;
  std::map<std::string, std::string, std::less<>> by_bare_name_;
  std::set<std::string> used_;
  std::vector<std::string> faults_;
  LoadReport report_;
};

void Loader::load(const Parameter& p) {
  const std::vector<TensorPiece>* layout = complete(p.spec.pieces) ? &p.spec.pieces : nullptr;
  for (const auto& other : p.spec.other_layouts) {
    if (layout == nullptr && complete(other)) layout = &other;
  }
  if (layout == nullptr) {
    for (const TensorPiece& t : p.spec.pieces) {
      if (t.use == PieceUse::primary && find(t.name) == nullptr) fault("tensor " + t.name + " is missing");
    }
    return;
  }
  for (const PieceUse use : {PieceUse::primary, PieceUse::copy, PieceUse::tied}) {
    for (const TensorPiece& piece : *layout) {
      const std::string* name = piece.use == use ? find(piece.name) : nullptr;
      if (name == nullptr) continue;
      used_.insert(*name);
      const TensorView tensor = folder_.tensor(*name);
      if (!std::equal(tensor.shape.begin(), tensor.shape.end(), piece.shape.begin(), piece.shape.end())) {
        fault(fmt::format("tensor {} has shape {}, the model needs {}", *name, shape_text(tensor.shape),
                          shape_text(piece.shape)));
      } else if (use == PieceUse::primary) {
        load_piece(p, piece, tensor);
      } else {
        compare_piece(p, piece, tensor);
      }
    }
  }
}

void Loader::load_piece(const Parameter& p, const TensorPiece& piece, const TensorView& tensor) {
  const ParameterWriter writer(p, address_, table_);
  std::vector<float> chunk;
  for_each_run(piece, p.spec.cols, [&](std::int64_t ours, std::int64_t theirs, std::int64_t n) {
    for (std::int64_t done = 0; done < n; done += kChunkElements) {
      chunk.resize(static_cast<std::size_t>(std::min(kChunkElements, n - done)));
      tensor.read(theirs + done, std::span<float>(chunk));
      for (std::size_t i = 0; i < chunk.size(); ++i) {
        if (std::isfinite(chunk[i])) continue;
        fault(fmt::format("tensor {} holds {} at element {}", tensor.name, chunk[i],
                          theirs + done + static_cast<std::int64_t>(i)));
        return;
      }
      writer.write(ours + done, chunk);
    }
  });
}

void Loader::compare_piece(const Parameter& p, const TensorPiece& piece, const TensorView& tensor) {
  const TensorPiece* primary = &p.spec.pieces.front();
  const TensorView other = folder_.tensor(*find(primary->name));
  if (tensor.bytes.size() == other.bytes.size() && tensor.dtype == other.dtype &&
      std::memcmp(tensor.bytes.data(), other.bytes.data(), tensor.bytes.size()) == 0) {
    return;
  }
  fault(fmt::format("tensor {} differs from {}, which it must equal ({})", tensor.name, primary->name,
                    piece.use == PieceUse::tied ? "tie_word_embeddings is true" : "they are one parameter"));
}

void Loader::check_left_over() {
  for (const std::string_view view : folder_.names()) {
    const std::string name(view);
    if (used_.contains(name)) continue;
    if (may_ignore_tensor(config_, name)) {
      report_.notices.push_back("tensor " + name + " is not used by this model");
    } else {
      fault("tensor " + name + " has no place in this model");
    }
  }
}

}  // namespace

void initialize_weights(const ParameterSet& parameters, const BufferTable& table, const AddressOf& address,
                        double initializer_range, std::uint64_t seed) {
  std::vector<float> chunk;
  for (const Parameter& p : parameters.all()) {
    const ParameterWriter writer(p, address, table);
    const Random random(seed, p.spec.name);
    for (std::int64_t first = 0; first < p.spec.elements(); first += kChunkElements) {
      chunk.resize(static_cast<std::size_t>(std::min(kChunkElements, p.spec.elements() - first)));
      for (std::size_t i = 0; i < chunk.size(); ++i) {
        switch (p.spec.init) {
          case ParameterInit::normal:
            chunk[i] =
                static_cast<float>(initializer_range * random.normal(static_cast<std::uint64_t>(first) + i));
            break;
          case ParameterInit::ones:
            chunk[i] = 1.0F;
            break;
          case ParameterInit::zeros:
            chunk[i] = 0.0F;
            break;
        }
      }
      writer.write(first, chunk);
    }
  }
}

void reset_moments(const ParameterSet& parameters, const BufferTable& table, const AddressOf& address) {
  for (const Parameter& p : parameters.all()) {
    for (const Buffer state : {p.m, p.v}) {
      if (state.valid()) std::memset(address(state), 0, static_cast<std::size_t>(table[state].bytes()));
    }
  }
}

LoadReport load_hf_weights(const HfFolder& folder, const ModelConfig& config, const ParameterSet& parameters,
                           const BufferTable& table, const AddressOf& address) {
  return Loader(folder, config, parameters, table, address).run();
}

ModelConfig model_for_weights(const ModelConfig& config, const HfFolder& folder) {
  std::int64_t present = 0;
  const std::string prefix = "layers.";
  for (const std::string_view name : folder.names()) {
    const std::string_view bare = bare_tensor_name(name);
    if (!bare.starts_with(prefix)) continue;
    std::int64_t block = 0;
    for (const char c : bare.substr(prefix.size())) {
      if (c < '0' || c > '9' || block > config.num_blocks()) break;
      block = block * 10 + (c - '0');
    }
    present = std::max(present, block - config.num_layers + 1);
  }
  return with_mtp(config, std::min(config.num_mtp, present));
}

std::vector<TensorSpec> export_tensors(const ParameterSet& parameters, FileDType dtype) {
  std::vector<TensorSpec> specs;
  for (const Parameter& p : parameters.all()) {
    const FileDType kept = p.spec.role == ParameterRole::router_bias ? FileDType::f32 : dtype;
    for (const TensorPiece& t : p.spec.pieces) {
      if (t.use != PieceUse::tied) specs.push_back({t.name, kept, t.shape});
    }
  }
  return specs;
}

void stream_export(const ParameterSet& parameters, const AddressOf& address,
                   const std::function<void(const std::string&, std::span<const float>)>& write) {
  for (const Parameter& p : parameters.all()) {
    const float* master = master_of(p, address);
    for (const TensorPiece& t : p.spec.pieces) {
      if (t.use == PieceUse::tied) continue;
      for_each_run(t, p.spec.cols, [&](std::int64_t ours, std::int64_t, std::int64_t n) {
        write(t.name, {master + ours, static_cast<std::size_t>(n)});
      });
    }
  }
}

}  // namespace planalto
