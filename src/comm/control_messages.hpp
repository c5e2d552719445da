// What the control planes of two ranks say to each other, and how it is packed. Of the control
// plane alone.
#pragma once

#include <fmt/format.h>

#include "comm/control_plane.hpp"
#include "comm/members.hpp"

namespace pith {

inline void pack(Packer& packer, const CallNote& call) {
  packer.value(call.number).value(call.digest).text(call.text);
  packer.value(call.round).numbers(call.without);
  packer.value(static_cast<std::uint32_t>(call.facts.size()));
  for (const CallFact& fact : call.facts) packer.text(fact.name).text(fact.value);
}

inline CallNote unpack_call(Unpacker& in) {
  CallNote call;
  call.number = in.value<std::uint32_t>();
  call.digest = in.value<std::uint64_t>();
  call.text = in.text();
  call.round = in.value<std::uint32_t>();
  call.without = in.numbers();
  const auto facts = in.value<std::uint32_t>();
  for (std::uint32_t i = 0; i < facts && in.whole(); ++i) {
    CallFact& fact = call.facts.emplace_back();
    fact.name = in.text();
    fact.value = in.text();
  }
  return call;
}

inline void pack(Packer& packer, const Error& error) {
  packer.value(static_cast<int>(error.code())).value(error.rank()).text(error.message());
}

inline Error unpack_error(Unpacker& in) {
  const int number = in.value<int>();
  const bool known = number >= 0 && number <= static_cast<int>(Code::in_progress);
  const Code code = known ? static_cast<Code>(number) : Code::internal;
  const int rank = in.value<int>();
  const std::string_view text = in.text();
  return code == Code::success ? Error() : Error(code, std::string(text), rank);
}

inline std::optional<GatherResult> unpack_result(Unpacker& in) {
  GatherResult result;
  result.error = unpack_error(in);
  result.dead = in.numbers();
  const auto count = in.value<std::uint32_t>();
  for (std::uint32_t i = 0; i < count && in.whole(); ++i) {
    const int rank = in.value<int>();
    result.blobs.emplace(rank, in.text());
  }
  if (!in.whole()) return std::nullopt;
  return result;
}

inline std::string list(const std::vector<int>& ranks) {
  std::string text;
  for (const int rank : ranks) text += fmt::format("{}rank {}", text.empty() ? "" : ", ", rank);
  return text;
}

// Of a rank that has said so itself; what breaks a connection says the same.
inline constexpr const char* process_ended = "its process has ended";

// A neighbour that has not answered for so long has stopped.
inline constexpr double silent_s = 0.9;

enum class ControlPlane::Kind : std::uint8_t {
  hello,  // all facts, from a rank to its new parent
  facts,  // all facts, the answer
  dead,
  left,
  farewell,  // the answer to it
  gone,
  over,
  revoked,
  contribution,  // these go up to the root
  stall,
  answer,
  result,  // these go down from the root
  question,
  roll,
  present,  // the answer to it, up
  ping,     // from a rank that waits, to its parent
  pong,     // the answer to it, and to a stall or a question
  missing,  // down from the root: who has not come to an agreement that lasts
};

inline bool ControlPlane::wants_answer(Kind kind) {
  return kind == Kind::ping || kind == Kind::stall || kind == Kind::question;
}

}  // namespace pith
