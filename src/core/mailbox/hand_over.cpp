#include "core/mailbox/hand_over.hpp"

#include <fmt/format.h>

#include "core/dtype.hpp"
#include "core/pair_message.hpp"
#include "core/run_together.hpp"

namespace pith {

namespace {

Error another_length(int peer, std::uint64_t sent, std::uint64_t expected) {
  const PairDigest theirs = PairDigest::decode(sent);
  const PairDigest ours = PairDigest::decode(expected);
  return {Code::invalid_usage,
          fmt::format("rank {} sent {} elements of type {} where {} of type {} were to be received",
                      peer, theirs.count, name_of(theirs.type), ours.count, name_of(ours.type)),
          peer};
}

}  // namespace

Error another_call(int peer, std::uint32_t call) {
  return without_throwing([&]() -> Error {
    return {Code::invalid_usage,
            fmt::format("rank {} called another collective, or this one with other arguments, as "
                        "call {} of this communicator",
                        peer, call),
            peer};
  });
}

Error mismatch(const Receive& receive, const Header& header) {
  return without_throwing([&]() -> Error {
    if (receive.digest != header.digest) {
      return header.lane == pair_lane ? another_length(receive.peer, header.digest, receive.digest)
                                      : another_call(receive.peer, header.call);
    }
    return {Code::invalid_usage,
            fmt::format("rank {} sent {} bytes where at most {} were expected (call {}, step {})",
                        receive.peer, header.length, receive.room, header.call, header.step),
            receive.peer};
  });
}

}  // namespace pith
