// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "comm/communicator.h"

namespace planalto {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Run run_of(std::vector<float>& v) {
  return {v.data(), DType::f32, static_cast<std::int64_t>(v.size())};
}

template <class Call>
std::string complaint(ErrorKind kind, Call call) {
  try {
    call();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), kind);
    return e.what();
  }
  return "";
}

TEST(SelfCommunicator, IsAGroupOfOne) {
  const auto self = self_communicator();
  EXPECT_EQ(self->size(), 1);
  EXPECT_EQ(self->rank(), 0);
  self->barrier();
}

TEST(SelfCommunicator, ReductionsAndGathersKeepWhatTheOneRankHas) {
  const auto self = self_communicator();
  std::vector<float> in{1.5F, -2.0F, 3.0F}, out(3);
  for (const Reduction r : {Reduction::sum, Reduction::max, Reduction::min}) {
    self->all_reduce(run_of(in), r);
    EXPECT_THAT(in, ElementsAre(1.5F, -2.0F, 3.0F));
    out.assign(3, 0.0F);
    self->reduce_scatter(run_of(in), run_of(out), r);
    EXPECT_EQ(out, in);
  }
  out.assign(3, 0.0F);
  self->all_gather(run_of(in), run_of(out));
  EXPECT_EQ(out, in);
  self->all_gather(run_of(in), run_of(in));  // in place
  EXPECT_EQ(out, in);
}

TEST(SelfCommunicator, AllToAllVMovesTheOwnPart) {
  const auto self = self_communicator();
  std::vector<float> in{1, 2, 3, 4}, out{9, 9, 9, 9, 9};
  const std::int64_t send[] = {1, 3}, receive[] = {2, 4}, none[] = {0, 0};
  self->all_to_all_v(run_of(in), send, run_of(out), receive);
  EXPECT_THAT(out, ElementsAre(9, 9, 2, 3, 9));
  self->all_to_all_v({}, none, {}, none);
}

TEST(SelfCommunicator, RefusesWhatDoesNotFit) {
  const auto self = self_communicator();
  std::vector<float> in{1, 2, 3}, out(2);
  EXPECT_THAT(complaint(ErrorKind::internal, [&] { self->all_gather(run_of(in), run_of(out)); }),
              HasSubstr("3 elements of f32 into 2 of f32"));
  const std::int64_t fits[] = {0, 2}, beyond[] = {1, 3};
  EXPECT_THAT(
      complaint(ErrorKind::internal, [&] { self->all_to_all_v(run_of(in), fits, run_of(out), beyond); }),
      HasSubstr("elements 1 to 3 of 2"));
  EXPECT_THAT(complaint(ErrorKind::internal, [&] { self->send(run_of(in), 1); }),
              HasSubstr("send to rank 1: the group has one rank"));
  EXPECT_THAT(complaint(ErrorKind::internal, [&] { self->receive(run_of(in), 0); }),
              HasSubstr("receive from rank 0: the group has one rank"));
}

TEST(SelfCommunicator, AfterAnAbortEveryCallFailsWithItsReason) {
  const auto self = self_communicator();
  self->abort("rank 0 ran out of disk");
  std::vector<float> v{1};
  EXPECT_THAT(complaint(ErrorKind::comm, [&] { self->all_reduce(run_of(v), Reduction::sum); }),
              HasSubstr("all_reduce after an abort: rank 0 ran out of disk"));
  EXPECT_THAT(complaint(ErrorKind::comm, [&] { self->barrier(); }), HasSubstr("barrier after an abort"));
}

}  // namespace
}  // namespace planalto
