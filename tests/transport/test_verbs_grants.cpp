// Grants that come late or twice, as a peer that is wrong may send them: the memory that they name
// is not written, and the messages on their way arrive.
#include <algorithm>
#include <cstring>
#include <functional>
#include <utility>

#include "catch.hpp"
#include "tests/transport/verbs_rank.hpp"
#include "transport/verbs/verbs_frames.hpp"
#include "transport/verbs/verbs_names.hpp"

namespace {

using namespace pith_test;
using pith::VerbsHead;
using pith::VerbsKeys;
using pith::VerbsKind;
using pith::VerbsName;

constexpr std::size_t bytes = std::size_t{1} << 20;
constexpr std::byte untouched{7};

struct Grant {
  VerbsHead head;
  VerbsKeys keys;

  // Of the same message, with the place of another one.
  Grant at(const Grant& other) const {
    Grant changed = *this;
    changed.head.place = other.head.place;
    changed.keys = other.keys;
    return changed;
  }
  Grant in_epoch(std::uint32_t epoch) const {
    Grant changed = *this;
    changed.head.epoch = epoch;
    return changed;
  }
};

// The library of rank 0, which keeps the grants that it sends, and sends others over the same
// connection.
class Forger {
 public:
  using Made = std::function<std::vector<Grant>(const Grant&)>;

  static Forger& instance() {
    static Forger one;
    return one;
  }
  static pith::VerbsLibrary library() {
    pith::VerbsLibrary changed = FakeVerbs::library();
    changed.post_send = post;
    return changed;
  }

  void send(Grant grant) const {
    ibv_sge parts[2] = {{reinterpret_cast<std::uint64_t>(&grant.head), sizeof grant.head, 0},
                        {reinterpret_cast<std::uint64_t>(&grant.keys), sizeof grant.keys, 0}};
    ibv_send_wr work{};
    work.opcode = IBV_WR_SEND;
    work.send_flags = IBV_SEND_INLINE;
    work.sg_list = parts;
    work.num_sge = 2;
    must(FakeVerbs::library().post_send(control_, &work, nullptr) == 0, "post");
  }

  std::vector<Grant> sent;
  // What goes before and after each grant from now on.
  Made ahead;
  Made behind;

 private:
  static bool is_grant(const ibv_send_wr& work, Grant& grant) {
    if (work.opcode != IBV_WR_SEND || !(work.send_flags & IBV_SEND_INLINE)) return false;
    if (work.num_sge != 2 || work.sg_list[1].length != sizeof grant.keys) return false;
    std::memcpy(&grant.head, reinterpret_cast<void*>(work.sg_list[0].addr), sizeof grant.head);
    std::memcpy(&grant.keys, reinterpret_cast<void*>(work.sg_list[1].addr), sizeof grant.keys);
    return grant.head.kind == VerbsKind::grant && grant.head.place != 0;
  }

  static int post(ibv_qp* pair, ibv_send_wr* work, ibv_send_wr** bad) {
    Forger& self = instance();
    Grant grant;
    if (!is_grant(*work, grant)) return FakeVerbs::library().post_send(pair, work, bad);
    self.control_ = pair;
    self.sent.push_back(grant);
    self.send_all(self.ahead, grant);
    const int error = FakeVerbs::library().post_send(pair, work, bad);
    self.send_all(self.behind, grant);
    return error;
  }

  void send_all(const Made& made, const Grant& grant) const {
    if (!made) return;
    for (const Grant& one : made(grant)) send(one);
  }

  ibv_qp* control_ = nullptr;
};

// Rank 0 receives, grants and forges; rank 1 sends.
std::string run(const std::function<void(VerbsRank&, Forger&)>& forges,
                const std::function<void(VerbsRank&)>& sends) {
  FakeVerbs::instance() = FakeVerbs();
  // So that a message is being written while further frames come.
  FakeVerbs::instance().request_bytes = 64 << 10;
  FakeVerbs::instance().requests_a_look = 2;
  Forger::instance() = Forger();
  const pith::VerbsLibrary forging = Forger::library();
  const std::string failure = run_threads([&](int rank, const Names& names) {
    VerbsOptions options;
    options.watch = false;
    options.window = 256;  // forged frames are in no account of credits
    VerbsRank self(rank, names, options, {}, rank == 0 ? forging : FakeVerbs::library());
    if (rank == 0) {
      forges(self, Forger::instance());
    } else {
      sends(self);
    }
    self.leave();
  });
  const int left = FakeVerbs::objects();
  return failure.empty() && left != 0 ? "objects are left" : failure;
}

// A whole message, whose memory is the caller's again and stays registered. Its grant is the late
// one.
ReceiveOp& receive_first(VerbsRank& self, const Forger& forger) {
  ReceiveOp& first = self.receive(1, 10, bytes);
  self.wait(first);
  must(same(first.data, pattern(bytes, 10)), "contents differ");
  must(forger.sent.size() == 1, "not granted once");
  must(FakeVerbs::registered(first.data.data()) != 0, "a late grant would have no valid key");
  std::ranges::fill(first.data, untouched);
  return first;
}

void must_be_untouched(const std::vector<std::byte>& data) {
  const auto is = [](std::byte one) { return one == untouched; };
  must(std::ranges::all_of(data, is), "the memory of a call that is over was written");
}

void receive_second(VerbsRank& self) {
  ReceiveOp& second = self.receive(1, 12, bytes);
  self.wait(second);
  must(same(second.data, pattern(bytes, 12)), "contents of the message after it differ");
}

// The second message is announced when rank 0 has come to call 11.
void send_both(VerbsRank& self) {
  self.wait(self.send(0, 10, pattern(bytes, 10)));
  SendOp& second = self.send(0, 12, pattern(bytes, 12));
  self.meet(0, 11);
  self.wait(second);
}

}  // namespace

TEST_CASE("verbs: for a grant of a message that has arrived nothing is written", "[verbs]") {
  const auto forges = [](VerbsRank& self, Forger& forger) {
    const ReceiveOp& first = receive_first(self, forger);
    const Grant late = forger.sent[0];
    forger.send(late);
    self.meet(1, 11);
    // Now its place among the sender's messages is that of the second one.
    forger.send(late);
    receive_second(self);
    forger.send(late);
    must_be_untouched(first.data);
    self.meet(1, 13);
    must_be_untouched(first.data);
  };
  CHECK(run(forges, [](VerbsRank& self) {
          send_both(self);
          self.meet(0, 13);
        }) == "");
}

TEST_CASE("verbs: a second grant of a message is not heeded", "[verbs]") {
  const auto forges = [](VerbsRank& self, Forger& forger) {
    const ReceiveOp& first = receive_first(self, forger);
    forger.behind = [late = forger.sent[0]](const Grant& grant) {
      return std::vector<Grant>{grant.at(late), grant};
    };
    self.meet(1, 11);
    receive_second(self);
    must_be_untouched(first.data);
  };
  CHECK(run(forges, send_both) == "");
}

TEST_CASE("verbs: a grant of another epoch is not heeded", "[verbs]") {
  const auto forges = [](VerbsRank& self, Forger& forger) {
    const ReceiveOp& first = receive_first(self, forger);
    forger.ahead = [late = forger.sent[0]](const Grant& grant) {
      const std::uint32_t epoch = grant.head.epoch;
      return std::vector<Grant>{grant.at(late).in_epoch(epoch - 1),
                                grant.at(late).in_epoch(epoch + 1)};
    };
    FakeVerbs::break_pairs();
    self.meet(1, 11);
    receive_second(self);
    must(forger.sent.back().head.epoch == 1, "the connections have not started anew");
    must_be_untouched(first.data);
  };
  CHECK(run(forges, send_both) == "");
}

TEST_CASE("verbs: a place of an aborted call is not written, whatever grants it", "[verbs]") {
  const auto forges = [](VerbsRank& self, Forger& forger) {
    Doomed doomed(bytes);
    doomed.prepare(doomed.receive, 1);
    doomed.receive.tag = {doomed.comm.id, 0, 0, 0};
    doomed.receive.into = doomed.data.data();
    doomed.receive.room = bytes;
    must(!self.mailbox.start(doomed.receive), "it was there");
    self.until([&] { return !forger.sent.empty(); }, "a grant");
    doomed.revoke(self);
    std::ranges::fill(doomed.data, untouched);
    const Grant late = forger.sent[0];
    self.meet(1, 11);
    forger.send(late);
    // The sender cannot tell this one from a true one; the device can.
    forger.ahead = [late, sent = false](const Grant& grant) mutable {
      if (std::exchange(sent, true)) return std::vector<Grant>();
      return std::vector<Grant>{grant.at(late)};
    };
    receive_second(self);
    must_be_untouched(doomed.data);
  };
  const auto sends = [](VerbsRank& self) {
    Doomed doomed(bytes);
    doomed.prepare(doomed.send, 0);
    doomed.send.header.comm = doomed.comm.id;
    doomed.send.header.length = bytes;
    doomed.send.data = doomed.data.data();
    must(!self.transport->start(doomed.send), "it was gone at once");
    self.until([&] { return doomed.remaining == 0; }, "the end of a send that nobody wants");
    SendOp& second = self.send(0, 12, pattern(bytes, 12));
    self.meet(0, 11);
    self.wait(second);
  };
  CHECK(run(forges, sends) == "");
}

TEST_CASE("verbs: a grant of a message whose sender has given up has nothing written", "[verbs]") {
  const auto forges = [](VerbsRank& self, Forger& forger) {
    const ReceiveOp& first = receive_first(self, forger);
    Grant late = forger.sent[0];
    late.head.transfer = VerbsName(late.head.transfer).next().value();
    self.meet(1, 11);
    forger.send(late);
    forger.send(late);
    receive_second(self);
    must_be_untouched(first.data);
    const Doomed unwanted(0);
    self.mailbox.forget(unwanted.comm.id);
  };
  const auto sends = [](VerbsRank& self) {
    self.wait(self.send(0, 10, pattern(bytes, 10)));
    Doomed doomed(bytes);
    doomed.prepare(doomed.send, 0);
    doomed.send.header.comm = doomed.comm.id;
    doomed.send.header.length = bytes;
    doomed.send.data = doomed.data.data();
    must(!self.transport->start(doomed.send), "it was gone at once");
    doomed.revoke(self);
    self.meet(0, 11);
    self.wait(self.send(0, 12, pattern(bytes, 12)));
  };
  CHECK(run(forges, sends) == "");
}
