#include "api/last_error.hpp"

namespace pith::api {

namespace {

thread_local std::string message;

}  // namespace

pithResult_t report(Code code, std::string text) {
  message = std::move(text);
  return static_cast<pithResult_t>(code);
}

pithResult_t report(const Error& error) {
  if (!error) return pithSuccess;
  if (error.code() == Code::in_progress) return pithInProgress;  // no failure
  return report(error.code(), error.message());
}

const char* last_error() { return message.c_str(); }

}  // namespace pith::api
