// The objects of the software network behind FakeVerbs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <iterator>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "tests/transport/fake_verbs.hpp"

namespace pith::test {

struct Channel : ibv_comp_channel {
  std::deque<ibv_cq*> events;
};

struct Completion {
  ibv_wc entry{};
  std::uint32_t pair = 0;   // of which
  std::uint32_t sends = 0;  // so many requests leave its send queue when this has been polled
};

struct Queue : ibv_cq {
  std::deque<Completion> completions;
  bool armed = false;
};

struct Region : ibv_mr {
  int access = 0;
  bool holds(std::uint64_t at, std::size_t bytes) const {
    const auto begin = reinterpret_cast<std::uint64_t>(addr);
    return at >= begin && at + bytes <= begin + length;
  }
};

struct Request {
  ibv_send_wr work{};
  std::vector<std::byte> inlined;
  ibv_sge parts[2] = {};
  std::uint64_t lost_since = 0;
};

struct Pair : ibv_qp {
  ibv_qp_state is = IBV_QPS_RESET;
  std::uint32_t peer = 0;
  std::uint32_t send_packet = 0;
  std::uint32_t receive_packet = 0;
  int access = 0;
  std::uint32_t sends_max = 0;
  std::uint32_t sends_kept = 0;   // posted, and no completion that tells of them polled
  std::uint32_t unsignalled = 0;  // carried out since the last that was signalled
  std::uint32_t receives_max = 0;
  std::deque<Request> sends;
  std::deque<std::pair<std::uint64_t, ibv_sge>> receives;
};

struct Network {
  Network() {
    for (std::size_t d = 0; d < std::size(devices); ++d) {
      std::strcpy(devices[d].name, ("fake" + std::to_string(d)).c_str());
    }
  }

  std::recursive_mutex mutex;
  FakeVerbs settings;
  std::map<std::uint32_t, Pair*> pairs;
  std::map<std::uint32_t, Pair*> sending;  // of these, with requests that are not carried out
  std::map<std::uint32_t, Region*> regions;
  std::uint32_t next = 100;
  int objects = 0;
  ibv_device devices[4] = {};
  std::deque<ibv_async_event> events;  // of the first device
};

inline Network& network() {
  static Network one;
  return one;
}

}  // namespace pith::test
