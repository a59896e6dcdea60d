// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>
#include <omp.h>

#include <cstring>
#include <map>
#include <oneapi/dnnl/dnnl.hpp>
#include <tuple>
#include <vector>

#include "base/error.h"
#include "bench/peers/products.h"

namespace planalto::bench {

namespace {

using dnnl::memory;
using kernels::Segments;

memory::data_type type_of(DType dtype) {
  return dtype == DType::bf16 ? memory::data_type::bf16 : memory::data_type::f32;
}

// A row-major matrix [rows, cols], or its transpose.
memory::desc plain(std::int64_t rows, std::int64_t cols, DType dtype, bool transposed = false) {
  if (transposed) return memory::desc({cols, rows}, type_of(dtype), memory::dims{1, cols});
  return memory::desc({rows, cols}, type_of(dtype), memory::dims{cols, 1});
}

class OneDnnProducts final : public Products {
 public:
  OneDnnProducts(int threads, bool packed) : packed_(packed) { omp_set_num_threads(threads); }
  std::string name() const override {
    const dnnl_version_t* v = dnnl_version();
    return fmt::format("oneDNN {}.{}{}", v->major, v->minor, packed_ ? ", packed" : "");
  }

  void forward(const kernels::GroupedGemmForward& a) override {
    PLANALTO_CHECK(!a.accumulate && a.bias == nullptr, "this peer neither accumulates nor adds a bias");
    const std::int64_t n = a.y.cols, k = a.x.cols;
    for_each(a.segments, a.rows, [&](std::int64_t e, std::int64_t first, std::int64_t rows) {
      if (rows == 0) return;
      const Weight w = weight(a.w, e * n, n, k, true);
      multiply({plain(rows, k, a.x.dtype), w.desc, plain(rows, n, a.y.dtype)}, row(a.x, first), w.data,
               a.y.row<char>(0) + first * n * dtype_bytes(a.y.dtype));
    });
  }
  void grad_input(const kernels::GroupedGemmGradInput& a) override {
    PLANALTO_CHECK(!a.accumulate, "this peer does not accumulate");
    const std::int64_t n = a.dy.cols, k = a.dx.cols;
    for_each(a.segments, a.rows, [&](std::int64_t e, std::int64_t first, std::int64_t rows) {
      if (rows == 0) return;
      const Weight w = weight(a.w, e * n, n, k, false);
      multiply({plain(rows, n, a.dy.dtype), w.desc, plain(rows, k, a.dx.dtype)}, row(a.dy, first), w.data,
               a.dx.row<char>(0) + first * k * dtype_bytes(a.dx.dtype));
    });
  }
  void grad_weight(const kernels::GroupedGemmGradWeight& a) override {
    PLANALTO_CHECK(!a.accumulate, "this peer does not accumulate");
    const std::int64_t n = a.dy.cols, k = a.x.cols;
    for_each(a.segments, a.rows, [&](std::int64_t e, std::int64_t first, std::int64_t rows) {
      float* dw = a.dw.row<float>(e * n);
      if (rows == 0) {
        std::memset(dw, 0, static_cast<std::size_t>(n * k) * sizeof(float));
        return;
      }
      multiply({plain(rows, n, a.dy.dtype, true), plain(rows, k, a.x.dtype), plain(n, k, DType::f32)},
               row(a.dy, first), row(a.x, first), dw);
    });
  }

 private:
  struct Descs {
    memory::desc left, right, out;
  };
  struct Weight {
    memory::desc desc;
    const void* data = nullptr;
  };
  // What tells one product from another here: extents, types, which operand is transposed, whether the right one is packed.
  using Key = std::tuple<std::int64_t, std::int64_t, std::int64_t, int, int, bool, bool, bool>;

  static const void* row(const ConstMatrix& m, std::int64_t r) {
    return m.row<char>(0) + r * m.row_stride * dtype_bytes(m.dtype);
  }

  template <class Body>
  static void for_each(const Segments& s, const RowCount& rows, const Body& body) {
    if (s.offsets == nullptr) return body(0, 0, rows.get());
    for (std::int64_t e = 0; e < s.num; ++e) body(e, s.offsets[e], s.offsets[e + 1] - s.offsets[e]);
  }

  // The right operand of expert e: w^T forward, w for dx.
  Weight weight(const ConstMatrix& w, std::int64_t first_row, std::int64_t n, std::int64_t k, bool forward) {
    const memory::desc lies = plain(n, k, w.dtype, forward);
    const void* data = row(w, first_row);
    if (!packed_) return {lies, data};
    memory& packed = packed_weights_[{data, forward}];
    if (!packed) {
      const std::int64_t inner = forward ? k : n, outer = forward ? n : k;
      const memory::desc any({inner, outer}, type_of(w.dtype), memory::format_tag::any);
      const dnnl::matmul::primitive_desc wanted(
          {plain(kTypicalRows, inner, w.dtype), any, plain(kTypicalRows, outer, w.dtype)}, engine_);
      packed = memory(wanted.weights_desc(), engine_);
      memory source(lies, engine_, const_cast<void*>(data));
      dnnl::reorder(source, packed).execute(stream_, source, packed);
      stream_.wait();
    }
    return {packed.get_desc(), packed.get_data_handle()};
  }

  void multiply(const Descs& d, const void* left, const void* right, void* out) {
    const memory::dims l = d.left.dims(), o = d.out.dims();
    const bool transposed = d.left.data.format_desc.blocking.strides[0] == 1 && l[1] > 1;
    const bool right_transposed = d.right.data.format_desc.blocking.strides[0] == 1 && o[1] > 1;
    const bool blocked = d.right.data.format_desc.blocking.inner_nblks > 0;
    const Key key{l[0],
                  l[1],
                  o[1],
                  static_cast<int>(d.left.data_type()),
                  static_cast<int>(d.out.data_type()),
                  transposed,
                  right_transposed,
                  blocked};
    auto it = primitives_.find(key);
    if (it == primitives_.end()) {
      const dnnl::matmul::primitive_desc desc({d.left, d.right, d.out}, engine_);
      it = primitives_.emplace(key, dnnl::matmul(desc)).first;
    }
    it->second.execute(stream_, {{DNNL_ARG_SRC, memory(d.left, engine_, const_cast<void*>(left))},
                                 {DNNL_ARG_WEIGHTS, memory(d.right, engine_, const_cast<void*>(right))},
                                 {DNNL_ARG_DST, memory(d.out, engine_, out)}});
    stream_.wait();
  }

  static constexpr std::int64_t kTypicalRows = 128;
  bool packed_;
  dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream_{engine_};
  std::map<std::pair<const void*, bool>, memory> packed_weights_;
  std::map<Key, dnnl::matmul> primitives_;
};

}  // namespace

std::unique_ptr<Products> onednn_products(int threads, bool packed) {
  return std::make_unique<OneDnnProducts>(threads, packed);
}

}  // namespace planalto::bench
