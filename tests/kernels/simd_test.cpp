// SPDX-License-Identifier: Apache-2.0
#include <bit>
#include <cmath>
#include <limits>

#include "support/kernel_testing.h"

namespace planalto::kernels {

#define PLANALTO_DECLARE_PROBES(isa)                                \
  namespace isa {                                                   \
  void probe_exp(const float* from, float* to, std::int64_t n);     \
  void probe_sigmoid(const float* from, float* to, std::int64_t n); \
  void probe_narrow(const float* from, bf16* to, std::int64_t n);   \
  void probe_rounded(const float* from, float* to, std::int64_t n); \
  void probe_widen(const bf16* from, float* to, std::int64_t n);    \
  void probe_copy(const float* from, float* to, std::int64_t n);    \
  float probe_sum(const float* from);                               \
  float probe_max(const float* from);                               \
  std::int64_t probe_lanes();                                       \
  }
PLANALTO_DECLARE_PROBES(avx2)
PLANALTO_DECLARE_PROBES(avx512)
PLANALTO_DECLARE_PROBES(avx512_bf16)
PLANALTO_DECLARE_PROBES(amx)

namespace {

struct Probes {
  Isa isa;
  void (*exp)(const float*, float*, std::int64_t);
  void (*sigmoid)(const float*, float*, std::int64_t);
  void (*narrow)(const float*, bf16*, std::int64_t);
  void (*rounded)(const float*, float*, std::int64_t);
  void (*widen)(const bf16*, float*, std::int64_t);
  void (*copy)(const float*, float*, std::int64_t);
  float (*sum)(const float*);
  float (*max)(const float*);
  std::int64_t (*lanes)();
};
#define PLANALTO_PROBES(isa)                                                                               \
  Probes {                                                                                                 \
    Isa::isa, isa::probe_exp, isa::probe_sigmoid, isa::probe_narrow, isa::probe_rounded, isa::probe_widen, \
        isa::probe_copy, isa::probe_sum, isa::probe_max, isa::probe_lanes                                  \
  }

void for_each_isa(const std::function<void(const Probes&)>& body) {
  for (const Probes& p :
       {PLANALTO_PROBES(avx2), PLANALTO_PROBES(avx512), PLANALTO_PROBES(avx512_bf16), PLANALTO_PROBES(amx)}) {
    for (const Isa isa : available_isas()) {
      SCOPED_TRACE(to_string(p.isa));
      if (isa == p.isa) body(p);
    }
  }
}

// Distance in representable floats; both finite or equal.
std::int64_t ulps(float a, float b) {
  const auto order = [](float v) {
    const auto bits = std::bit_cast<std::int32_t>(v);
    return std::int64_t{bits < 0 ? std::numeric_limits<std::int32_t>::min() - bits : bits};
  };
  return std::abs(order(a) - order(b));
}

TEST(Simd, ExpIsWithinTwoUlpOverTheWholeRange) {
  for_each_isa([](const Probes& p) {
    std::vector<float> x, y;
    for (std::uint64_t bits = 0; bits < (std::uint64_t{1} << 32);
         bits += 4001) {  // 4001 is prime: all low bits occur
      const float v = std::bit_cast<float>(static_cast<std::uint32_t>(bits));
      if (!std::isnan(v)) x.push_back(v);
    }
    test::Random random(1);
    for (int i = 0; i < 200000; ++i) x.push_back(static_cast<float>(random.uniform(-104.5, 89.5)));
    y.resize(x.size());
    p.exp(x.data(), y.data(), static_cast<std::int64_t>(x.size()));
    std::int64_t worst = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const float want = static_cast<float>(std::exp(static_cast<double>(x[i])));
      const std::int64_t distance = ulps(y[i], want);
      worst = std::max(worst, distance);
      if (distance > 2) {
        ADD_FAILURE() << "exp(" << x[i] << ") is " << y[i] << ", wanted " << want;
        return;
      }
    }
    EXPECT_GT(worst, 0);  // an exact result everywhere would mean that the reference was called
  });
}

TEST(Simd, ExpAndSigmoidAtTheEnds) {
  const float inf = std::numeric_limits<float>::infinity();
  const float x[] = {-inf, inf, 0.0F, -0.0F, 88.7F, 88.8F, -103.0F, -1e30F, NAN};
  for_each_isa([&](const Probes& p) {
    float y[9], s[9];
    p.exp(x, y, 9);
    p.sigmoid(x, s, 9);
    EXPECT_EQ(y[0], 0.0F);
    EXPECT_EQ(y[1], inf);
    EXPECT_EQ(y[2], 1.0F);
    EXPECT_EQ(y[3], 1.0F);
    EXPECT_TRUE(std::isfinite(y[4]));
    EXPECT_EQ(y[5], inf);
    EXPECT_EQ(y[6], 0x1p-149F);  // e^-103 = 1.4 10^-45 x 0.96
    EXPECT_EQ(y[7], 0.0F);
    EXPECT_TRUE(std::isnan(y[8]));
    EXPECT_EQ(s[0], 0.0F);
    EXPECT_EQ(s[1], 1.0F);
    EXPECT_EQ(s[2], 0.5F);
    EXPECT_TRUE(std::isnan(s[8]));
  });
}

TEST(Simd, SigmoidIsWithinFourUlp) {
  for_each_isa([](const Probes& p) {
    test::Random random(2);
    std::vector<float> x(100003), y(x.size());
    for (float& v : x) v = static_cast<float>(random.uniform(-80.0, 30.0));
    p.sigmoid(x.data(), y.data(), static_cast<std::int64_t>(x.size()));
    for (std::size_t i = 0; i < x.size(); ++i) {
      const float want = static_cast<float>(1.0 / (1.0 + std::exp(-static_cast<double>(x[i]))));
      ASSERT_LE(ulps(y[i], want), 4) << "sigmoid(" << x[i] << ")";
    }
  });
}

TEST(Simd, C104C105Bf16IsTheScalarConversionOnEveryIsa) {
  const float fixed[] = {0x1p-127F,
                         0x1p-133F,
                         1.0F + 0x1p-8F,
                         1.0F + 3 * 0x1p-8F,
                         std::bit_cast<float>(0x7F7FFFFFU),
                         std::bit_cast<float>(0x7F800001U),
                         -1.0F - 0x1p-8F};
  const std::uint16_t want[] = {0x0040, 0x0001, 0x3F80, 0x3F82, 0x7F80, 0x7FC0, 0xBF80};
  for_each_isa([&](const Probes& p) {
    bf16 y[7];
    p.narrow(fixed, y, 7);
    for (int i = 0; i < 7; ++i) EXPECT_EQ(y[i].bits, want[i]) << i;

    std::vector<float> x;
    for (std::uint64_t bits = 0; bits < (std::uint64_t{1} << 32); bits += 9973) {
      x.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
    }
    std::vector<bf16> z(x.size());
    p.narrow(x.data(), z.data(), static_cast<std::int64_t>(x.size()));
    for (std::size_t i = 0; i < x.size(); ++i) {
      ASSERT_EQ(z[i].bits, to_bf16(x[i]).bits) << std::hex << std::bit_cast<std::uint32_t>(x[i]);
    }
    std::vector<float> in_place(x.size());
    p.rounded(x.data(), in_place.data(), static_cast<std::int64_t>(x.size()));
    for (std::size_t i = 0; i < x.size(); ++i) {
      const auto got = std::bit_cast<std::uint32_t>(in_place[i]), want_bits = std::uint32_t{z[i].bits} << 16;
      if (std::isnan(x[i])) {
        ASSERT_TRUE(std::isnan(in_place[i]));
      } else {
        ASSERT_EQ(got, want_bits) << std::hex << std::bit_cast<std::uint32_t>(x[i]);
      }
    }
  });
}

TEST(Simd, Bf16WidensExactly) {
  for_each_isa([](const Probes& p) {
    std::vector<bf16> x(1 << 16);
    for (std::size_t i = 0; i < x.size(); ++i) x[i].bits = static_cast<std::uint16_t>(i);
    std::vector<float> y(x.size());
    p.widen(x.data(), y.data(), static_cast<std::int64_t>(x.size()));
    for (std::size_t i = 0; i < x.size(); ++i) {
      ASSERT_EQ(std::bit_cast<std::uint32_t>(y[i]), std::uint32_t{x[i].bits} << 16);
    }
  });
}

TEST(Simd, PartialVectorsTouchNothingPastTheirEnd) {
  for_each_isa([](const Probes& p) {
    const std::vector<float> x(40, 1.5F);
    for (std::int64_t n = 0; n <= 33; ++n) {
      std::vector<float> y(40, -7.0F),
          from(x.begin(), x.begin() + n);  // a read past n is seen by the sanitizer
      std::vector<bf16> z(40, bf16{0x1234}), narrow_from(static_cast<std::size_t>(n), to_bf16(1.5F));
      std::vector<float> w(40, -7.0F);
      p.copy(from.data(), y.data(), n);
      p.narrow(from.data(), z.data(), n);
      p.widen(narrow_from.data(), w.data(), n);
      for (std::int64_t i = 0; i < 40; ++i) {
        const auto k = static_cast<std::size_t>(i);
        ASSERT_EQ(y[k], i < n ? 1.5F : -7.0F) << n;
        ASSERT_EQ(w[k], i < n ? 1.5F : -7.0F) << n;
        ASSERT_EQ(z[k].bits, i < n ? to_bf16(1.5F).bits : 0x1234) << n;
      }
    }
  });
}

TEST(Simd, SumAndMaxSeeEveryLane) {
  for_each_isa([](const Probes& p) {
    for (std::int64_t lane = 0; lane < p.lanes(); ++lane) {
      std::vector<float> x(static_cast<std::size_t>(p.lanes()), 1.0F);
      x[static_cast<std::size_t>(lane)] = 100.0F;
      EXPECT_EQ(p.sum(x.data()), 99.0F + static_cast<float>(p.lanes()));
      EXPECT_EQ(p.max(x.data()), 100.0F);
    }
  });
}

}  // namespace
}  // namespace planalto::kernels
