// SPDX-License-Identifier: Apache-2.0
#include <cstring>
#include <string>

#include "base/error.h"
#include "comm/communicator.h"

namespace planalto {

namespace {

class SelfCommunicator final : public Communicator {
 public:
  int size() const override { return 1; }
  int rank() const override { return 0; }

  void all_reduce(const Run& values, Reduction) override {
    require_alive("all_reduce");
    PLANALTO_CHECK(values.count >= 0, "all_reduce of {} elements", values.count);
  }
  void reduce_scatter(const ConstRun& in, const Run& out, Reduction) override {
    copy("reduce_scatter", in, out);
  }
  void all_gather(const ConstRun& in, const Run& out) override { copy("all_gather", in, out); }

  void all_to_all_v(const ConstRun& in, std::span<const std::int64_t> send_offsets, const Run& out,
                    std::span<const std::int64_t> receive_offsets) override {
    PLANALTO_CHECK(send_offsets.size() == 2 && receive_offsets.size() == 2,
                   "all_to_all_v with {} and {} offsets in a group of one", send_offsets.size(),
                   receive_offsets.size());
    const ConstRun from{static_cast<const char*>(in.data) + first_byte(in, send_offsets), in.dtype,
                        send_offsets[1] - send_offsets[0]};
    const Run to{static_cast<char*>(out.data) + first_byte(out, receive_offsets), out.dtype,
                 receive_offsets[1] - receive_offsets[0]};
    copy("all_to_all_v", from, to);
  }

  void send(const ConstRun&, int peer) override { no_peer("send to", peer); }
  void receive(const Run&, int peer) override { no_peer("receive from", peer); }
  void barrier() override { require_alive("barrier"); }
  void abort(const char* reason) noexcept override {
    try {
      reason_ = reason;
    } catch (...) {
      reason_.clear();  // without memory the reason is lost, not the abort
    }
    aborted_ = true;
  }

 private:
  void require_alive(const char* call) const {
    if (aborted_) fail(ErrorKind::comm, "{} after an abort: {}", call, reason_);
  }

  [[noreturn]] static void no_peer(const char* call, int peer) {
    fail(ErrorKind::internal, "{} rank {}: the group has one rank", call, peer);
  }

  // What goes from this rank to itself: elements [offsets[0], offsets[1]).
  static std::int64_t first_byte(const ConstRun& run, std::span<const std::int64_t> offsets) {
    PLANALTO_CHECK(0 <= offsets[0] && offsets[0] <= offsets[1] && offsets[1] <= run.count,
                   "all_to_all_v of elements {} to {} of {}", offsets[0], offsets[1], run.count);
    return offsets[0] * dtype_bytes(run.dtype);
  }

  void copy(const char* call, const ConstRun& in, const Run& out) const {
    require_alive(call);
    PLANALTO_CHECK(in.dtype == out.dtype && in.count == out.count && in.count >= 0,
                   "{} of {} elements of {} into {} of {}", call, in.count, to_string(in.dtype), out.count,
                   to_string(out.dtype));
    if (in.count > 0 && in.data != out.data)
      std::memcpy(out.data, in.data, static_cast<std::size_t>(in.count * dtype_bytes(in.dtype)));
  }

  bool aborted_ = false;
  std::string reason_;
};

}  // namespace

std::unique_ptr<Communicator> self_communicator() {
  return std::make_unique<SelfCommunicator>();
}

}  // namespace planalto
