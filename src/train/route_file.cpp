// SPDX-License-Identifier: Apache-2.0
#include "train/route_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "moe/forced_routes.h"

namespace planalto {

namespace {

constexpr std::string_view kMagic = "PLROUTES";
constexpr std::int64_t kVersion = 1, kHeaderBytes = 8 + 6 * 8;

std::array<std::int64_t, 6> header_of(const RouteShape& s) {
  return {kVersion, s.moe_blocks, s.microbatches, s.tokens, s.top_k, s.num_experts};
}

std::int64_t step_bytes(const RouteShape& s) {
  return 8 + s.ids() * 4;
}

std::string text_of(const std::array<std::int64_t, 6>& h) {
  return fmt::format("version {}, {} MoE blocks, {} microbatches of {} tokens, {} of {} experts", h[0], h[1],
                     h[2], h[3], h[4], h[5]);
}

// The part of a recording that ends with this step; 0: the file is no recording of this shape that holds it.
std::int64_t bytes_until(const std::string& path, const RouteShape& shape, std::int64_t step) {
  if (!is_regular_file(path)) return 0;
  try {
    const RouteReplay before(path, shape);
    const std::int64_t steps = step - before.first_step() + 1;
    return steps >= 1 && steps <= before.num_steps() ? kHeaderBytes + steps * step_bytes(shape) : 0;
  } catch (const Error&) {
    return 0;
  }
}

}  // namespace

RouteRecorder::RouteRecorder(const std::string& path, const RouteShape& shape, std::int64_t steps_done)
    : path_(path) {
  const std::int64_t kept = steps_done > 0 ? bytes_until(path, shape, steps_done) : 0;
  fd_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
  if (fd_ < 0 || ::ftruncate(fd_, kept) != 0 || ::lseek(fd_, kept, SEEK_SET) != kept) {
    const int why = errno;
    if (fd_ >= 0) ::close(fd_);
    fail(ErrorKind::io, "debug.router: cannot write {}: {}", path, std::strerror(why));
  }
  if (kept > 0) return;
  write_all(fd_, std::as_bytes(std::span(kMagic)), path_);
  const auto header = header_of(shape);
  write_all(fd_, std::as_bytes(std::span(header)), path_);
}

RouteRecorder::~RouteRecorder() {
  ::close(fd_);
}

void RouteRecorder::add(std::int64_t step, std::span<const std::int32_t> ids) {
  write_all(fd_, std::as_bytes(std::span(&step, 1)), path_);
  write_all(fd_, std::as_bytes(ids), path_);
}

RouteReplay::RouteReplay(const std::string& path, const RouteShape& shape) : file_(path), shape_(shape) {
  ByteReader reader(file_.bytes(), path);
  const auto magic = reader.take(static_cast<std::int64_t>(kMagic.size()), "the file type");
  if (std::memcmp(magic.data(), kMagic.data(), kMagic.size()) != 0) {
    fail(ErrorKind::data, "{}: not a recording of routes (debug.router = \"record:FILE\" makes one)", path);
  }
  std::array<std::int64_t, 6> header{};
  for (std::int64_t& value : header) value = static_cast<std::int64_t>(reader.u64("the header"));
  const auto wanted = header_of(shape);
  if (header != wanted) {
    fail(ErrorKind::data, "{}: recorded with {}; this run has {}", path, text_of(header), text_of(wanted));
  }
  const std::int64_t left = reader.left();
  num_steps_ = left / step_bytes(shape);
  cut_off_ = left % step_bytes(shape) != 0;
  if (num_steps_ == 0) {
    fail(ErrorKind::data, "{}: {} bytes behind the header are not one whole step of {}", path, left,
         step_bytes(shape));
  }
  for (std::int64_t i = 0; i < num_steps_; ++i) {
    reader.seek(kHeaderBytes + i * step_bytes(shape), "a step");
    const auto step = static_cast<std::int64_t>(reader.u64("the number of a step"));
    if (i == 0) first_step_ = step;
    if (first_step_ < 1 || step != first_step_ + i) {
      fail(ErrorKind::data, "{}: step {} stands at place {} behind step {}", path, step, i, first_step_);
    }
  }
}

void RouteReplay::read(std::int64_t step, std::span<std::int32_t> ids) const {
  PLANALTO_CHECK(static_cast<std::int64_t>(ids.size()) == shape_.ids(), "{} ids for {}", ids.size(),
                 shape_.ids());
  const std::int64_t place = step - first_step_;
  if (place < 0 || place >= num_steps_) {
    fail(ErrorKind::config, "debug.router: {} holds steps {} to {}{}, not step {}", file_.path(), first_step_,
         first_step_ + num_steps_ - 1, cut_off_ ? " (and a part of another, cut off)" : "", step);
  }
  std::memcpy(ids.data(), file_.bytes().data() + kHeaderBytes + place * step_bytes(shape_) + 8,
              ids.size_bytes());
  // Runs of real tokens are checked and ordered; rows of -1 had no token.
  const auto k = static_cast<std::size_t>(shape_.top_k);
  for (std::size_t at = 0; at < ids.size(); at += k) {
    const auto token = ids.subspan(at, k);
    bool unused = true;
    for (const std::int32_t id : token) unused = unused && id == -1;
    if (unused) continue;
    try {
      moe::order_recorded_ids(shape_.num_experts, shape_.top_k, file_.path(), token);
    } catch (const Error& e) {
      fail(e.kind(), "step {}, row {} of all its tokens: {}", step, at / k, e.what());
    }
  }
}

}  // namespace planalto
