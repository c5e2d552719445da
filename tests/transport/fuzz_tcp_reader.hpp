// Feeds arbitrary bytes to the frame parser of one connection with two streams. To fuzz: define
// LLVMFuzzerTestOneInput as a call of this function and link with -fsanitize=fuzzer.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>

#include "core/mailbox.hpp"
#include "transport/tcp/tcp_reader.hpp"

namespace pith::test {

// Null, or what the reader objected to. The first byte of each bite says how much and which stream.
inline const char* feed_tcp_reader(std::span<const std::uint8_t> input) {
  Scheduler scheduler;
  Mailbox mailbox(scheduler, 1);
  TcpInbox inbox(mailbox, 0, input.size() % 2 == 0 ? 2 : 1);
  TcpReader readers[2] = {TcpReader(inbox, 0, 0), TcpReader(inbox, 1, 0)};
  const char* fault = nullptr;
  while (input.size() > 1 && !fault) {
    TcpReader& reader = readers[input[0] & 1];
    const std::size_t bite = std::min<std::size_t>(input[0] / 2 + 1, input.size() - 1);
    input = input.subspan(1);
    std::size_t moved = 0;
    for (const iovec& target : reader.targets()) {
      const std::size_t part = std::min(bite - moved, target.iov_len);
      if (part != 0) std::memcpy(target.iov_base, input.data() + moved, part);
      moved += part;
    }
    input = input.subspan(moved);
    if (moved != 0) fault = reader.arrived(moved);
    for (TcpReader& other : readers) {
      if (!fault) fault = other.resume();
    }
  }
  inbox.abandon(Error(Code::remote, "the test has ended"));
  return fault;
}

}  // namespace pith::test
