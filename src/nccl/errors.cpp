#include "nccl/errors.hpp"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <mutex>
#include <optional>

#include "api/comm_handle.hpp"
#include "nccl/environment.hpp"
#include "nccl/log_lines.hpp"

namespace pith::nccl {

namespace {

// One message per process, as in NCCL.
struct LastError {
  std::mutex mutex;
  char text[1024] = "";
};

LastError& the_last() {
  static auto* const instance = new LastError;  // threads may outlive the end of main
  return *instance;
}

// Messages such as "pithAllReduce: count is ..." name functions that the caller does not know.
std::string in_nccl_names(std::string text) {
  constexpr std::string_view ours = "pith";
  for (std::size_t at = text.find(ours); at != std::string::npos; at = text.find(ours, at + 1)) {
    const char before = at == 0 ? ' ' : text[at - 1];
    const char after = at + ours.size() < text.size() ? text[at + ours.size()] : ' ';
    const bool is_name = std::isalnum(static_cast<unsigned char>(before)) == 0 &&
                         std::isupper(static_cast<unsigned char>(after)) != 0;
    if (is_name) text.replace(at, ours.size(), "nccl");
  }
  return text;
}

bool has_failed(pithResult_t result) { return result != pithSuccess && result != pithInProgress; }

// `line`: level at which the message is logged; empty: not logged.
void keep(const char* message, std::optional<LogLevel> line) noexcept {
  try {
    read_debug_once();
    const std::string text = in_nccl_names(message);
    if (line) log(log_is_open() ? *line : LogLevel::info, text, LogTopic::all);
    const std::lock_guard lock(the_last().mutex);
    const std::size_t length = std::min(text.size(), sizeof the_last().text - 1);
    std::memcpy(the_last().text, text.data(), length);
    the_last().text[length] = '\0';
  } catch (const std::exception&) {
    // Out of memory for the message; the code has to suffice.
  }
}

}  // namespace

void remember(const char* message, LogLevel level) noexcept { keep(message, level); }

// Copied per thread, so that no other thread writes while the caller reads.
const char* last_error() {
  thread_local char copy[sizeof(LastError::text)];
  const std::lock_guard lock(the_last().mutex);
  std::memcpy(copy, the_last().text, sizeof copy);
  return copy;
}

ncclResult_t answer(pithResult_t result) {
  if (has_failed(result)) {
    // Failures of other ranks are logged when they happen.
    remember(api::last_error(), result == pithRemoteError ? LogLevel::info : LogLevel::warn);
  }
  return static_cast<ncclResult_t>(result);
}

ncclResult_t answer_again(pithResult_t result) {
  if (has_failed(result)) keep(api::last_error(), {});
  return static_cast<ncclResult_t>(result);
}

ncclResult_t fail_group(ncclResult_t result) {
  Group& group = Group::of_this_thread();
  if (has_failed(static_cast<pithResult_t>(result)) && group.open())
    group.fail(Error(static_cast<Code>(result), api::last_error()));
  return result;
}

}  // namespace pith::nccl
