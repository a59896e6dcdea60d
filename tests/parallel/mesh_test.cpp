// SPDX-License-Identifier: Apache-2.0
#include "parallel/mesh.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "ops/collective.h"

namespace planalto {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Mesh, OneRankIsAloneOnEveryAxis) {
  const Mesh mesh;
  for (const MeshAxis axis : {MeshAxis::world, MeshAxis::data, MeshAxis::expert}) {
    EXPECT_THAT(mesh.group(axis).ranks, ElementsAre(0));
    EXPECT_EQ(mesh.coordinate(axis), 0);
  }
}

// 2 copies over 3 ranks each: copy 0 is ranks 0 1 2, copy 1 ranks 3 4 5.
TEST(Mesh, ExpertRanksAreNeighbours) {
  const Mesh mesh({.data = 2, .expert = 3}, 4);
  EXPECT_EQ(mesh.coordinate(MeshAxis::data), 1);
  EXPECT_EQ(mesh.coordinate(MeshAxis::expert), 1);
  EXPECT_THAT(mesh.group(MeshAxis::expert).ranks, ElementsAre(3, 4, 5));
  EXPECT_EQ(mesh.group(MeshAxis::expert).rank, 1);
  EXPECT_THAT(mesh.group(MeshAxis::data).ranks, ElementsAre(1, 4));
  EXPECT_EQ(mesh.group(MeshAxis::data).rank, 1);
  EXPECT_THAT(mesh.group(MeshAxis::world).ranks, ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_EQ(mesh.group(MeshAxis::world).rank, 4);
}

TEST(Mesh, RefusesAGridWithoutRanks) {
  try {
    const Mesh mesh({.data = 0, .expert = 2}, 0);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::config);
    EXPECT_THAT(e.what(), HasSubstr("0 data parallel and 2 expert parallel ranks"));
  }
}

// A ring sends (P - 1) / P of the buffer twice: 3/4 of 80 bytes, twice.
TEST(Collective, WireBytesOfAnAllReduce) {
  BufferTable table;
  Builder b(table, {}, "step", 0);
  const Buffer x =
      b.persistent({.name = "x", .dtype = DType::f32, .rows = 5, .cols = 4, .role = Role::statistic});
  ops::all_reduce(b, "alone", Mesh().group(MeshAxis::data), x, Reduction::sum);
  ops::all_reduce(b, "four", Mesh({.data = 1, .expert = 4}, 2).group(MeshAxis::expert), x, Reduction::sum);
  const Program p = b.finish();
  ASSERT_EQ(p.ops.size(), 2U);
  EXPECT_EQ(p.ops[0].cost({}).wire_bytes, 0.0);
  EXPECT_EQ(p.ops[1].cost({}).wire_bytes, 120.0);
  EXPECT_EQ(p.ops[1].group, 1);
  EXPECT_EQ(p.groups[1].name, "expert");
}

}  // namespace
}  // namespace planalto
