// SPDX-License-Identifier: Apache-2.0
#include "support/kernel_testing.h"

#include <cmath>
#include <cstring>

#include "base/error.h"
#include "kernels/table.h"

namespace planalto::test {

std::uint64_t Random::next() {
  state_ += 0x9e3779b97f4a7c15U;
  std::uint64_t z = state_;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
  return z ^ (z >> 31);
}

double Random::uniform(double low, double high) {
  return low + (high - low) * static_cast<double>(next() >> 11) * 0x1p-53;
}

std::int64_t Random::below(std::int64_t n) {
  return static_cast<std::int64_t>(next() % static_cast<std::uint64_t>(n));
}

HostMatrix::HostMatrix(DType dtype, std::int64_t rows, std::int64_t cols, std::int64_t row_stride)
    : dtype_(dtype),
      rows_(rows),
      cols_(cols),
      row_stride_(row_stride == 0 ? cols : row_stride),
      bytes_(rows * row_stride_ * dtype_bytes(dtype)) {
  PLANALTO_CHECK(row_stride_ >= cols, "row stride {} of {} columns", row_stride_, cols);
  storage_.resize(static_cast<std::size_t>(bytes_) + 64);
  const auto address = reinterpret_cast<std::uintptr_t>(storage_.data());
  data_ = storage_.data() + (64 - address % 64) % 64;
  poison();
}

HostMatrix::HostMatrix(const HostMatrix& other)
    : HostMatrix(other.dtype_, other.rows_, other.cols_, other.row_stride_) {
  std::memcpy(data_, other.data_, static_cast<std::size_t>(bytes_));
}

HostMatrix& HostMatrix::operator=(const HostMatrix& other) {
  if (this == &other) return *this;
  HostMatrix copy(other);
  dtype_ = copy.dtype_;
  rows_ = copy.rows_;
  cols_ = copy.cols_;
  row_stride_ = copy.row_stride_;
  bytes_ = copy.bytes_;
  storage_.swap(copy.storage_);  // keeps the allocation, so the aligned address stays right
  data_ = copy.data_;
  return *this;
}

void HostMatrix::poison() {
  std::memset(data_, 0xff, static_cast<std::size_t>(bytes_));
}

Matrix HostMatrix::view() {
  return {data_, dtype_, rows_, cols_, row_stride_};
}
ConstMatrix HostMatrix::view() const {
  return {data_, dtype_, rows_, cols_, row_stride_};
}

double HostMatrix::at(std::int64_t r, std::int64_t c) const {
  const std::int64_t i = r * row_stride_ + c;
  switch (dtype_) {
    case DType::f32:
      return static_cast<double>(data<float>()[i]);
    case DType::bf16:
      return static_cast<double>(to_float(data<bf16>()[i]));
    case DType::f64:
      return data<double>()[i];
    case DType::i32:
      return data<std::int32_t>()[i];
    case DType::i64:
      return static_cast<double>(data<std::int64_t>()[i]);
    case DType::u8:
      return data<std::uint8_t>()[i];
  }
  return 0.0;
}

void HostMatrix::set(std::int64_t r, std::int64_t c, double value) {
  const std::int64_t i = r * row_stride_ + c;
  switch (dtype_) {
    case DType::f32:
      data<float>()[i] = static_cast<float>(value);
      return;
    case DType::bf16:
      data<bf16>()[i] = to_bf16(static_cast<float>(value));
      return;
    case DType::f64:
      data<double>()[i] = value;
      return;
    case DType::i32:
      data<std::int32_t>()[i] = static_cast<std::int32_t>(value);
      return;
    case DType::i64:
      data<std::int64_t>()[i] = static_cast<std::int64_t>(value);
      return;
    case DType::u8:
      data<std::uint8_t>()[i] = static_cast<std::uint8_t>(value);
      return;
  }
}

namespace {

template <class Value>
void fill(HostMatrix& m, const Value& value) {
  for (std::int64_t r = 0; r < m.rows(); ++r) {
    for (std::int64_t c = 0; c < m.cols(); ++c) m.set(r, c, value());
  }
}

}  // namespace

void fill_zero(HostMatrix& m) {
  fill(m, [] { return 0.0; });
}

void fill_integers(HostMatrix& m, std::uint64_t seed, std::int64_t low, std::int64_t high) {
  Random random(seed);
  fill(m, [&] { return static_cast<double>(low + random.below(high - low + 1)); });
}

void fill_random(HostMatrix& m, std::uint64_t seed, double low, double high) {
  Random random(seed);
  fill(m, [&] { return random.uniform(low, high); });
}

HostMatrix converted(const HostMatrix& m, DType dtype) {
  HostMatrix result(dtype, m.rows(), m.cols());
  for (std::int64_t r = 0; r < m.rows(); ++r) {
    for (std::int64_t c = 0; c < m.cols(); ++c) result.set(r, c, m.at(r, c));
  }
  return result;
}

HostMatrix scratch(std::int64_t bytes) {
  return HostMatrix(DType::u8, 1, bytes);
}

Workspace workspace(HostMatrix& scratch) {
  return {scratch.data<void>(), scratch.size() * dtype_bytes(scratch.dtype())};
}

Bound bound_for(DType dtype, std::int64_t length, double magnitude) {
  const double unit =
      dtype == DType::bf16 ? 0x1p-8 : 0x1p-23;  // one unit: half an ulp of bf16, an ulp of fp32
  // Errors of a sum in fp32 grow at most with its length; the square root is what random signs give, times 8
  // for safety.
  const double sum = magnitude * 8.0 * std::sqrt(static_cast<double>(length)) * 0x1p-24;
  return {.absolute = sum, .relative = 2.0 * unit};
}

::testing::AssertionResult close(const HostMatrix& got, const HostMatrix& want, Bound bound,
                                 std::int64_t rows) {
  if (rows < 0) rows = want.rows();
  if (got.cols() != want.cols() || got.rows() < rows || want.rows() < rows) {
    return ::testing::AssertionFailure() << "shapes: got [" << got.rows() << ", " << got.cols() << "], want ["
                                         << want.rows() << ", " << want.cols() << "]";
  }
  std::int64_t wrong = 0, nans = 0, zeros = 0, want_zeros = 0;
  double worst = -1.0;
  std::string first;
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < want.cols(); ++c) {
      const double g = got.at(r, c), w = want.at(r, c);
      want_zeros += w == 0.0;
      if (g == w || (std::isnan(g) && std::isnan(w))) continue;
      const double difference = std::abs(g - w);
      if (difference <= bound.absolute + bound.relative * std::abs(w) && !std::isinf(w)) continue;
      ++wrong;
      nans += std::isnan(g);
      zeros += g == 0.0;
      worst = std::max(worst, difference);
      if (first.empty()) first = fmt::format("[{}, {}] is {:.9g}, wanted {:.9g}", r, c, g, w);
    }
  }
  const std::int64_t n = rows * want.cols();
  if (wrong > 0) {
    return ::testing::AssertionFailure() << fmt::format(
               "{} of {} elements differ ({} NaN, {} zero), largest difference {:.3g}, allowed {:.3g} + "
               "{:.3g} |want|; {}",
               wrong, n, nans, zeros, worst, bound.absolute, bound.relative, first);
  }
  if (!bound.may_be_zero && n > 8 && want_zeros * 4 > n * 3) {
    return ::testing::AssertionFailure()
           << fmt::format("{} of {} wanted elements are zero: suspicious", want_zeros, n);
  }
  return ::testing::AssertionSuccess();
}

::testing::AssertionResult same_bits(const HostMatrix& got, const HostMatrix& want) {
  if (got.bytes().size() != want.bytes().size()) return ::testing::AssertionFailure() << "sizes differ";
  for (std::size_t i = 0; i < got.bytes().size(); ++i) {
    if (got.bytes()[i] != want.bytes()[i]) {
      return ::testing::AssertionFailure() << "byte " << i << " of " << got.bytes().size() << " differs";
    }
  }
  return ::testing::AssertionSuccess();
}

::testing::AssertionResult untouched(const HostMatrix& m, std::int64_t first_row) {
  const std::int64_t element = dtype_bytes(m.dtype());
  const ConstMatrix v = m.view();
  for (std::int64_t i = 0; i < v.rows * v.row_stride; ++i) {
    const std::int64_t r = i / v.row_stride, c = i % v.row_stride;
    if (r < first_row && c < v.cols) continue;
    for (std::int64_t b = i * element; b < (i + 1) * element; ++b) {
      if (m.bytes()[static_cast<std::size_t>(b)] != std::byte{0xff}) {
        return ::testing::AssertionFailure() << "element " << c << " of row " << r << " was written";
      }
    }
  }
  return ::testing::AssertionSuccess();
}

void poison_rows(HostMatrix& m, std::int64_t first_row) {
  const auto row_bytes = m.view().row_stride * dtype_bytes(m.dtype());
  for (std::int64_t r = first_row; r < m.rows(); ++r) {
    std::memset(m.data<std::byte>() + r * row_bytes, 0xff, static_cast<std::size_t>(row_bytes));
  }
}

::testing::AssertionResult SameBitsPerIsa::operator()(const ExecContext& ctx, const HostMatrix& result) {
  const auto [first, is_new] = first_.try_emplace(ctx.kernels->isa, result);
  return is_new ? ::testing::AssertionSuccess() : same_bits(result, first->second);
}

void for_each_context(const std::function<void(const ExecContext&)>& body) {
  for (const int threads : {1, 2, 3}) {
    ThreadPool pool(threads);
    for (const kernels::Isa isa : kernels::available_isas()) {
      SCOPED_TRACE(fmt::format("{}, {} threads", kernels::to_string(isa), threads));
      body(ExecContext{&pool, &kernels::kernel_table(isa)});
    }
  }
}

HostMatrix numeric_gradient(HostMatrix& x, const std::function<double()>& loss, double step) {
  HostMatrix gradient(DType::f64, x.rows(), x.cols());
  for (std::int64_t r = 0; r < x.rows(); ++r) {
    for (std::int64_t c = 0; c < x.cols(); ++c) {
      const double value = x.at(r, c);
      x.set(r, c, value + step);
      const double above = loss(), high = x.at(r, c);
      x.set(r, c, value - step);
      const double below = loss(), low = x.at(r, c);
      x.set(r, c, value);
      gradient.set(r, c, (above - below) / (high - low));
    }
  }
  return gradient;
}

double weighted_sum(const HostMatrix& y, const HostMatrix& dy, std::int64_t rows) {
  if (rows < 0) rows = y.rows();
  double sum = 0.0;
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < y.cols(); ++c) sum += y.at(r, c) * dy.at(r, c);
  }
  return sum;
}

}  // namespace planalto::test
