// What a peer sends over UCX, after its token was found right: pieces of messages, in any order
// and of any contents. And addresses.
#include <cstring>
#include <memory>
#include <set>
#include <vector>

#include "core/mailbox.hpp"
#include "core/scheduler.hpp"
#include "fuzz_target.hpp"
#include "transport/ucx/ucx_inbox.hpp"

namespace pith::fuzz {

namespace {

struct Data final : UcxData {
  void release_data(void* message) override { expect(kept.erase(message) == 1); }
  std::set<void*> kept;
};

constexpr std::size_t most_messages = 64;
constexpr std::size_t most_bytes = 3000;  // of one; beyond 2048 they are not copied

// Bytes of a message that UCX holds until it is released.
using Payload = std::unique_ptr<std::byte[]>;

enum Way : std::uint8_t { copied, kept, fetched };

// A head, how it comes, and how many bytes come with it. The token is not the inbox's to check.
struct Piece {
  UcxHead head;
  std::uint16_t bytes = 0;
  Way way = copied;
  std::uint8_t zero = 0;
};

Piece next_piece(Bites& bites) {
  Piece piece;
  const std::string_view taken = bites.bytes(sizeof piece);
  std::memcpy(static_cast<void*>(&piece), taken.data(), taken.size());
  return piece;
}

class Peer {
 public:
  ~Peer() {
    inbox_.abandon(Error(Code::remote, "the test has ended"));
    for (const std::uint32_t comm : comms_) mailbox_.forget(comm);
    expect(data_.kept.empty() && slots_.out() == 0);
  }

  // Whether the link lives on.
  bool arrive(const Piece& piece) {
    const std::size_t bytes = piece.bytes % most_bytes;
    if (fault_of(piece.head, bytes) || !is_sequenced(piece.head.kind)) return false;
    comms_.insert(piece.head.header.comm);
    payloads_.push_back(std::make_unique<std::byte[]>(bytes + 1));
    const bool is_fetched = piece.way % 3 == fetched && bytes != 0;
    UcxArrival arrival;
    arrival.head = piece.head;
    arrival.bytes = bytes;
    arrival.rendezvous = is_fetched;
    arrival.may_keep = piece.way % 3 == kept;
    arrival.message = payloads_.back().get();
    arrival.data = is_fetched ? nullptr : payloads_.back().get();
    const UcxInbox::Outcome outcome = inbox_.arrive(arrival);
    expect(!outcome.kept || arrival.may_keep || is_fetched);
    if (outcome.kept) data_.kept.insert(arrival.message);
    // Bytes that may not stay are overwritten.
    if (!outcome.kept) std::memset(payloads_.back().get(), 0xEE, bytes);
    return outcome.fault == nullptr;
  }

  bool go_on(bool good) {
    void* message = nullptr;
    while (UcxInbox::Held* held = inbox_.next_fetch(message)) {
      std::memcpy(held->slot->data.get(), message, held->bytes);
      data_.kept.erase(message);
      UcxInbox::fetched(*held, good);
    }
    const char* fault = nullptr;
    while (!fault && inbox_.pump(fault)) {
    }
    return !fault;
  }

 private:
  Scheduler scheduler_;
  Mailbox mailbox_{scheduler_, 2};
  UcxSlots slots_;
  Data data_;
  UcxInbox inbox_{mailbox_, slots_, data_, 1};
  std::vector<Payload> payloads_;
  std::set<std::uint32_t> comms_;
};

std::string message(std::uint32_t sequence, std::size_t length, std::size_t offset,
                    std::uint16_t bytes, Way way) {
  Piece piece;
  piece.head.sequence = sequence;
  piece.head.offset = static_cast<std::uint32_t>(offset);
  piece.head.header.comm = 1;
  piece.head.header.call = sequence;
  piece.head.header.length = static_cast<std::uint32_t>(length);
  piece.bytes = bytes;
  piece.way = way;
  return {reinterpret_cast<const char*>(&piece), sizeof piece};
}

}  // namespace

void run(std::span<const std::uint8_t> input) {
  const Expected<UcxAddress> address = UcxAddress::unpack(text_of(input));
  if (address) expect(address->pack() == text_of(input));
  Bites bites(input);
  const bool good = bites.byte() % 8 != 0;
  Peer peer;
  for (std::size_t i = 0; i < most_messages && !bites.empty(); ++i) {
    if (!peer.arrive(next_piece(bites)) || !peer.go_on(good)) return;
  }
}

std::vector<std::string> seeds() {
  std::string in_order = "\1";
  for (const Way way : {copied, kept, fetched}) in_order += message(way, 1000, 0, 1000, way);
  in_order += message(3, 0, 0, 0, copied);
  std::string cut = "\1";
  cut += message(1, 5000, 2500, 2500, fetched) + message(2, 7, 0, 7, copied);
  cut += message(0, 5000, 0, 2500, kept);
  return {in_order, cut, UcxAddress{{}, "a worker"}.pack()};
}

}  // namespace pith::fuzz
