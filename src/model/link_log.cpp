#include "model/link_log.hpp"

#include <fmt/format.h>

#include <unistd.h>

#include <utility>

#include "core/log.hpp"
#include "model/replaced_file.hpp"

namespace pith {

void LinkLog::learn(const Tuner* tuner) {
  if (!tuner) return;
  const std::optional<LinkTable::OfCalls> calls = tuner->learnt_link();
  if (!calls) return;
  table_.set_calls(*calls);
  has_learnt_ = true;
}

void LinkLog::look(const Tuner* tuner, std::uint64_t now_ns) {
  constexpr std::uint64_t rest_ns = 30'000'000'000;
  if (looked_ns_ == 0) looked_ns_ = now_ns;
  if (now_ns - looked_ns_ < rest_ns) return;
  looked_ns_ = now_ns;
  learn(tuner);
  const std::string text = table_.save();
  if (text != written_) write(text);
}

void LinkLog::end(const Tuner* tuner) {
  learn(tuner);
  if (has_learnt_ || ::access(path_.c_str(), F_OK) != 0) write(table_.save());
}

void LinkLog::write(const std::string& text) {
  written_ = text;
  const Error error = replace_file(path_, text);
  if (!error || std::exchange(failed_, true)) return;
  log(LogLevel::warn, fmt::format("PITH_SAVE_LINKS: {}", error.message()));
}

}  // namespace pith
