// What other ranks say to the control plane: to a root, and to a rank between the root and others.
#include <array>
#include <atomic>
#include <deque>
#include <memory>

#include "control/control_plane.hpp"
#include "control/epoch_gate.hpp"
#include "fuzz_target.hpp"

namespace pith::fuzz {

namespace {

constexpr int ranks = 5;
constexpr CommKey comm = 7;
constexpr std::uint64_t turn_ns = 100'000'000;
// What one message may set off.
constexpr int answers_max = 1000;

class Wire final : public ControlWire {
 public:
  struct Sent {
    int to;
    std::string text;
  };
  void send(int to, std::string message) override { sent.push_back({to, std::move(message)}); }
  void probe(int) override {}
  void hang_up(int) override {}
  std::deque<Sent> sent;
};

class Watcher final : public CommWatcher {
 public:
  explicit Watcher(int rank) : rank_(rank), next_(5 + 100 * static_cast<std::uint32_t>(rank)) {}
  void on_revoked(const Error& error) override { expect(static_cast<bool>(error)); }
  void on_dead(const Error& error) override { expect(static_cast<bool>(error)); }
  std::optional<CallNote> find_call(std::uint32_t number) override {
    if (number != 1) return std::nullopt;
    return CallNote{1, 99, "pithAllReduce of 10 float32, sum"};
  }
  Error refusal_of(std::uint32_t) override { return {}; }
  std::optional<Stall> look(std::uint64_t) override { return Stall{*find_call(1), 0.5, 1 - rank_}; }
  void on_stalled(const Stall&) override {}
  EpochGate* epoch_gate() override { return rank_ == 2 ? nullptr : &gate_; }

 private:
  const int rank_;
  std::atomic<std::uint32_t> next_;
  EpochGate gate_{next_};
};

// One rank with a communicator, in the middle of an agreement.
struct Node {
  explicit Node(int own) : rank(own), watcher(own), plane({own, ranks, 2, 5, 0.25, 10}, wire) {
    plane.start(now_ns);
    plane.add(comm, {0, 1, 2, 3, 4}, watcher);
    plane.gather({comm, 0}, ControlPlane::Need::all, {0, 1, 2, 3, 4}, "blob",
                 [](const GatherResult&) {});
  }
  void turn() { plane.turn(now_ns += turn_ns); }

  const int rank;
  Wire wire;
  Watcher watcher;
  ControlPlane plane;
  std::uint64_t now_ns = 1;
};

constexpr unsigned from_bits = 7;
constexpr unsigned turn_bit = 8;

}  // namespace

// Each message: who it comes from, and whether time passes after it; its length in two bytes; its
// text. Both ranks hear them all.
void run(std::span<const std::uint8_t> input) {
  for (const int rank : {0, 1}) {
    Node node(rank);
    Bites bites(input);
    while (!bites.empty()) {
      const unsigned flags = bites.byte();
      const std::size_t low = bites.byte();
      const std::string_view message = bites.bytes(low + (std::size_t{bites.byte()} << 8));
      node.wire.sent.clear();
      node.plane.on_message(static_cast<int>(flags & from_bits), message);
      if (flags & turn_bit) node.turn();
      expect(node.wire.sent.size() < answers_max);
    }
    node.turn();
    for (const int dead : node.plane.dead()) expect(dead >= 0 && dead < ranks);
    node.plane.try_to_leave();
  }
}

namespace {

// Every kind of message, as five ranks send them.
class Conversation {
 public:
  Conversation() {
    for (int rank = 0; rank < ranks; ++rank) {
      nodes_[at(rank)] = std::make_unique<Node>(rank);
    }
    settle();
    for (int rank = 0; rank < ranks; ++rank) plane(rank).suspect(comm, {1, 99, "a call"});
    settle();
    for (int round = 1; round < 3; ++round) {
      for (int rank = 0; rank < ranks; ++rank) {
        plane(rank).gather({comm, static_cast<std::uint32_t>(round)}, ControlPlane::Need::live,
                           {0, 1, 2, 3, 4}, "live", [](const GatherResult&) {});
      }
    }
    settle();
    plane(0).propose(comm, "parameters");  // which rank 2 refuses
    settle();
    plane(4).revoke(comm, Error(Code::remote, "rank 4 gave up", 4));
    plane(3).remove(comm, {0, 1, 2, 3, 4});
    plane(2).try_to_leave();
    settle();
    plane(0).propose(comm, "others");
    pass_on(0);
    dead_ = 0;
    for (int rank = 1; rank < ranks; ++rank) plane(rank).on_lost(0, "its process has ended");
    settle();
  }

  std::vector<std::string> heard;

 private:
  static std::size_t at(int rank) { return static_cast<std::size_t>(rank); }
  ControlPlane& plane(int rank) { return nodes_[at(rank)]->plane; }

  void settle() {
    for (int turns = 0; turns < 12; ++turns) {
      for (int from = 0; from < ranks; ++from) pass_on(from);
      for (auto& node : nodes_) {
        if (node->rank != dead_) node->turn();
      }
    }
  }
  void pass_on(int from) {
    auto& sent = nodes_[at(from)]->wire.sent;
    while (!sent.empty()) {
      const Wire::Sent one = std::move(sent.front());
      sent.pop_front();
      if (from == dead_ || one.to == dead_) continue;
      plane(one.to).on_message(from, one.text);
      std::string packed{static_cast<char>(static_cast<unsigned>(from) | turn_bit)};
      packed += static_cast<char>(one.text.size() & 0xff);
      packed += static_cast<char>(one.text.size() >> 8);
      heard.push_back(packed + one.text);
    }
  }

  std::array<std::unique_ptr<Node>, ranks> nodes_;
  int dead_ = -1;
};

}  // namespace

std::vector<std::string> seeds() {
  const Conversation conversation;
  std::vector<std::string> seeds;
  std::string several;
  for (const std::string& message : conversation.heard) {
    seeds.push_back(message);
    several += message;
    if (several.size() < 600) continue;
    seeds.push_back(several);
    several.clear();
  }
  return seeds;
}

}  // namespace pith::fuzz
