// SPDX-License-Identifier: Apache-2.0
#include "formats/tokenizer/pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "base/error.h"
#include "base/utf8.h"
#include "formats/tokenizer/pattern_syntax.h"

namespace planalto::tokenizer {

namespace {

// Steps a search may take: enough for every linear pattern on every text, an end for those that explode.
constexpr std::uint64_t kBaseSteps = 20'000'000;
constexpr std::uint64_t kStepsPerByte = 32;
constexpr std::size_t kJitStackMin = 32 << 10;
constexpr std::size_t kJitStackMax = 4 << 20;

std::string message_of(int code) {
  std::array<PCRE2_UCHAR, 256> buffer{};
  pcre2_get_error_message(code, buffer.data(), buffer.size());
  return reinterpret_cast<const char*>(buffer.data());
}

}  // namespace

struct MatchScratch::State {
  pcre2_match_data* data = pcre2_match_data_create(1, nullptr);
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  pcre2_jit_stack* stack = pcre2_jit_stack_create(kJitStackMin, kJitStackMax, nullptr);

  State() {
    if (data == nullptr || context == nullptr) {
      release();
      fail(ErrorKind::memory, "no memory for a pattern's match block");
    }
    // Without a stack of its own the compiled code uses 32 KiB of the thread's.
    if (stack != nullptr) pcre2_jit_stack_assign(context, nullptr, stack);
  }
  ~State() { release(); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  void release() {
    pcre2_match_context_free(context);
    pcre2_match_data_free(data);
    pcre2_jit_stack_free(stack);
  }
};

MatchScratch::MatchScratch() : state_(std::make_unique<State>()) {}
MatchScratch::~MatchScratch() = default;
MatchScratch::MatchScratch(MatchScratch&&) noexcept = default;
MatchScratch& MatchScratch::operator=(MatchScratch&&) noexcept = default;

struct Pattern::Code {
  pcre2_code* code = nullptr;
  std::string where;

  Code(pcre2_code* compiled, std::string_view place) : code(compiled), where(place) {}
  ~Code() { pcre2_code_free(code); }
  Code(const Code&) = delete;
  Code& operator=(const Code&) = delete;
};

Pattern::Pattern(std::unique_ptr<Code> code) : code_(std::move(code)) {}
Pattern::~Pattern() = default;
Pattern::Pattern(Pattern&&) noexcept = default;
Pattern& Pattern::operator=(Pattern&&) noexcept = default;

Pattern Pattern::from_regex(std::string_view oniguruma, std::string_view where) {
  return compile(rewrite_pattern(oniguruma, where), where);
}

Pattern Pattern::from_literal(std::string_view text, std::string_view where) {
  return compile(quote_pattern(text), where);
}

Pattern Pattern::compile(const std::string& rewritten, std::string_view where) {
  int error = 0;
  PCRE2_SIZE error_at = 0;
  pcre2_compile_context* context = pcre2_compile_context_create(nullptr);
  if (context == nullptr) fail(ErrorKind::memory, "{}: no memory to compile the pattern", where);
  pcre2_set_newline(context, PCRE2_NEWLINE_LF);  // what "." leaves out
  pcre2_code* compiled =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(rewritten.data()), rewritten.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error, &error_at, context);
  pcre2_compile_context_free(context);
  if (compiled == nullptr) {
    fail(ErrorKind::data, "{}: the pattern does not compile ({} at byte {} of \"{}\")", where,
         message_of(error), error_at, printable(rewritten, 400));
  }
  auto code = std::make_unique<Code>(compiled, where);
  std::uint32_t matches_empty = 0;
  pcre2_pattern_info(compiled, PCRE2_INFO_MATCHEMPTY, &matches_empty);
  if (matches_empty != 0) {
    fail(ErrorKind::data, "{}: the pattern matches the empty text, which is not supported: \"{}\"", where,
         printable(rewritten, 400));
  }
  // Where the compiler is missing or refused by the system, the interpreter gives the same matches.
  pcre2_jit_compile(compiled, PCRE2_JIT_COMPLETE);
  return Pattern(std::move(code));
}

void Pattern::find_all(std::string_view text, Span within, MatchScratch& scratch,
                       std::vector<Span>* matches) const {
  const std::string_view subject = slice(text, within);
  MatchScratch::State& state = *scratch.state_;
  const std::uint64_t steps = kBaseSteps + kStepsPerByte * subject.size();
  pcre2_set_match_limit(state.context, static_cast<std::uint32_t>(std::min<std::uint64_t>(
                                           steps, std::numeric_limits<std::uint32_t>::max())));
  const auto* begin = reinterpret_cast<PCRE2_SPTR>(subject.data());
  const PCRE2_SIZE* found = pcre2_get_ovector_pointer(state.data);
  PCRE2_SIZE at = 0;
  while (at < subject.size()) {
    int rc =
        pcre2_match(code_->code, begin, subject.size(), at, PCRE2_NO_UTF_CHECK, state.data, state.context);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT) {
      rc = pcre2_match(code_->code, begin, subject.size(), at, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, state.data,
                       state.context);
    }
    if (rc == PCRE2_ERROR_NOMATCH) return;
    if (rc < 0) {
      fail(ErrorKind::data, "{}: the pattern failed on a text of {} bytes, at byte {} ({})", code_->where,
           subject.size(), at, message_of(rc));
    }
    if (found[1] <= at) {  // a look-behind that found nothing to take: as empty matches, refused
      fail(ErrorKind::data, "{}: the pattern matched the empty text at byte {}", code_->where, at);
    }
    matches->push_back({within.begin + static_cast<std::int64_t>(found[0]),
                        within.begin + static_cast<std::int64_t>(found[1])});
    at = found[1];
  }
}

}  // namespace planalto::tokenizer
