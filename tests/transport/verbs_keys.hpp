// The life of remote keys, over any library of verbs: two communicators of a rank are two
// protection domains, and what one has registered ends with it.
#pragma once

#include <memory>
#include <vector>

#include "tests/transport/verbs_rank.hpp"
#include "transport/verbs/verbs_memory.hpp"
#include "transport/verbs/verbs_queue_pair.hpp"

namespace pith_test {

// A connection within this process, between a domain that writes and one that is written to.
class KeyTrial {
 public:
  using Rails = std::vector<std::unique_ptr<pith::VerbsRail>>;

  KeyTrial(const pith::VerbsRail& from, const pith::VerbsRail& to) : from_(from) {
    writer_ = made(from);
    reader_ = made(to);
    must(!reader_.meet(from.place(), writer_.end()), "meet");
    must(!writer_.meet(to.place(), reader_.end()), "meet");
    must(!reader_.open() && !writer_.open(), "open");
  }

  // How a write of 8 bytes from `data`, registered by `source`, to a place with this key ends.
  ibv_wc_status write(const std::byte* data, const pith::VerbsRegion& source, std::byte* place,
                      std::uint32_t key) {
    ibv_sge part{reinterpret_cast<std::uint64_t>(data), 8, source.local_key(0)};
    ibv_send_wr work{};
    work.opcode = IBV_WR_RDMA_WRITE;
    work.send_flags = IBV_SEND_SIGNALED;
    work.sg_list = &part;
    work.num_sge = 1;
    work.wr.rdma.remote_addr = reinterpret_cast<std::uint64_t>(place);
    work.wr.rdma.rkey = key;
    must(writer_.post(work) == 0, "post");
    const std::uint64_t limit = monotonic_ns() + 20 * second_ns;
    for (;;) {
      ibv_wc one{};
      const int count = from_.verbs().poll_cq(from_.queue(), 1, &one);
      must(count >= 0 && monotonic_ns() < limit, "no completion");
      if (count == 1) return one.status;
    }
  }

  static Rails domain(const pith::VerbsLibrary& library) {
    auto rails = pith::VerbsRail::open_all(library, {});
    must(static_cast<bool>(rails), rails.error().message());
    must(!(*rails)[0]->make_queue(16), "queue");
    return std::move(*rails);
  }

 private:
  static pith::VerbsQueuePair made(const pith::VerbsRail& rail) {
    pith::VerbsDepth depth{4, 4, 0};
    auto pair = pith::VerbsQueuePair::make(rail, depth);
    must(static_cast<bool>(pair), pair.error().message());
    return std::move(*pair);
  }

  const pith::VerbsRail& from_;
  pith::VerbsQueuePair writer_;
  pith::VerbsQueuePair reader_;
};

// Keys of a call that is over are refused by the connections of other communicators, by its own one
// once they are revoked, and by the device once the communicator has ended.
inline void check_keys(const pith::VerbsLibrary& library) {
  const KeyTrial::Rails sender = KeyTrial::domain(library);
  const KeyTrial::Rails first = KeyTrial::domain(library);
  const KeyTrial::Rails second = KeyTrial::domain(library);
  std::vector<std::byte> data(16384, std::byte{5});
  std::vector<std::byte> place(16384, std::byte{0});
  pith::VerbsMemory sent(library, sender, 1 << 20);
  auto received = std::make_unique<pith::VerbsMemory>(library, first, 1 << 20);
  const pith::VerbsRegion* source = sent.acquire(data.data(), data.size(), false);
  pith::VerbsRegion* granted = received->acquire(place.data(), place.size(), true);
  must(source && granted, "register");
  const std::uint32_t key = granted->remote_key(0);
  const auto write = [&](const KeyTrial::Rails& to) {
    return KeyTrial(*sender[0], *to[0]).write(data.data(), *source, place.data() + 8, key);
  };
  must(write(first) == IBV_WC_SUCCESS && place[8] == std::byte{5}, "a write with a valid key");
  place[8] = std::byte{0};
  must(write(second) != IBV_WC_SUCCESS, "another communicator's connection took the key");
  received->revoke(*granted);
  must(received->regions() == 0, "it is still registered");
  must(write(first) != IBV_WC_SUCCESS, "a revoked key is taken");
  granted = received->acquire(place.data(), place.size(), true);
  must(granted && granted->remote_key(0) != key, "the old key is valid again");
  received->release(*granted);
  received.reset();
  must(write(first) != IBV_WC_SUCCESS, "a key outlives its communicator");
  must(place[8] == std::byte{0}, "something was written with a stale key");
}

}  // namespace pith_test
