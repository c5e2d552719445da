#include "api/last_error.hpp"

#include <algorithm>
#include <array>

namespace pith::api {

namespace {

thread_local std::string message;
thread_local const void* message_of = nullptr;

constexpr std::size_t errors_kept = 8;
thread_local std::array<Error, errors_kept> kept;
thread_local std::size_t keep_next = 0;

}  // namespace

pithResult_t report(Code code, std::string text) {
  message = std::move(text);
  message_of = nullptr;
  return static_cast<pithResult_t>(code);
}

pithResult_t report_failure(const Error& error) {
  if (error.code() == Code::in_progress) return pithInProgress;  // not a failure
  return report(error.code(), error.message());
}

const char* last_error() { return message.c_str(); }

void last_error_is_of(const void* comm) { message_of = comm; }

const char* last_error_of(const void* comm) { return message_of == comm ? message.c_str() : ""; }

void begin_errors_of(const void* comm) {
  if (message_of == comm) message_of = nullptr;
}

const char* keep_for_this_thread(const Error& error) {
  if (!error) return "";
  const auto same = [&](const Error& one) { return one.message() == error.message(); };
  if (std::any_of(kept.begin(), kept.end(), same)) return error.message();
  kept[keep_next] = error;
  keep_next = (keep_next + 1) % errors_kept;
  return error.message();
}

}  // namespace pith::api
