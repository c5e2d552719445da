#include <cstring>

#include "core/mailbox.hpp"
#include "tests/catch.hpp"
#include "tests/core/network_compute.hpp"
#include "tests/core/operations.hpp"

namespace pith::test {

namespace {

using Data = std::vector<std::byte>;

class Started {
 public:
  Started(Mailbox& mailbox, Receive& receive) : mailbox_(mailbox), receive_(receive) {}
  bool await_ready() const { return false; }
  bool await_suspend(std::coroutine_handle<> waiter) {
    receive_.waiter = waiter;
    return !mailbox_.start(receive_);
  }
  void await_resume() const {}

 private:
  Mailbox& mailbox_;
  Receive& receive_;
};

Task<Error> receives(Strand&, Mailbox& mailbox, Receive& receive) {
  co_await Started(mailbox, receive);
  co_return receive.error;
}

struct Fixture {
  static constexpr int peer = 130;  // on a page of its own
  static constexpr std::uint64_t digest = 77;

  Fixture() { comm.id = 1; }

  Header header(std::uint32_t step, std::size_t length) const {
    Header result;
    result.comm = comm.id;
    result.call = 4;
    result.step = step;
    result.length = static_cast<std::uint32_t>(length);
    result.digest = digest;
    return result;
  }
  Data message(std::size_t length) const {
    Data data(length);
    for (std::size_t i = 0; i < length; ++i) data[i] = static_cast<std::byte>(i * 7 + 1);
    return data;
  }
  Receive receive(std::uint32_t step, Data& into) {
    Receive result;
    result.comm = &comm;
    result.peer = peer;
    result.tag = {comm.id, 4, step, 0};
    result.digest = digest;
    result.into = into.data();
    result.room = into.size();
    return result;
  }
  Receive borrow(std::uint32_t step, std::size_t room) {
    Data none;
    Receive result = receive(step, none);
    result.borrow = true;
    result.room = room;
    return result;
  }
  Task<Error> start(Receive& operation) {
    Task<Error> task = receives(strand, mailbox, operation);
    task.handle().resume();
    return task;
  }
  void revoke() {
    comm.revoked = Error(Code::remote, "revoked");
    mailbox.quiesce(comm, comm.revoked);
    strand.run();
  }
  void arrive(Mailbox::Incoming& incoming, const Data& data, std::size_t from, std::size_t to) {
    if (incoming.data) std::memcpy(incoming.data + from, data.data() + from, to - from);
  }

  Strand strand;
  Mailbox mailbox{strand.scheduler, 200};
  Slots slots;
  CommState comm;
};

// Remembers what it is asked for.
struct Source final : MessageSource {
  void fetch(Mailbox::Incoming& incoming) override { wanted.push_back(&incoming); }
  void drop(std::uint64_t message) override { dropped.push_back(message); }
  std::vector<Mailbox::Incoming*> wanted;
  std::vector<std::uint64_t> dropped;
};

bool holds(const Lease& lease, const Data& data) {
  return lease.size() == data.size() && std::memcmp(lease.data(), data.data(), data.size()) == 0;
}

}  // namespace

TEST_CASE_METHOD(Fixture, "an awaited message goes straight to its receiver", "[mailbox]") {
  for (const std::size_t length : {std::size_t{0}, std::size_t{64}, std::size_t{5000}}) {
    Data into(length);
    Receive operation = receive(1, into);
    Task<Error> task = start(operation);
    CHECK(mailbox.waiting() == 1);
    CHECK(mailbox.awaited(peer));
    const Data data = message(length);
    CHECK(mailbox.deliver(peer, header(1, length), data.data(), &slots, 9) ==
          Mailbox::Taken::copied);
    strand.run();
    REQUIRE(task.done());
    CHECK(!task.result());
    CHECK(into == data);
    CHECK(!mailbox.awaited(peer));
    CHECK(slots.released.empty());
  }
}

TEST_CASE_METHOD(Fixture, "a short message is stored, a longer one stays in its slot",
                 "[mailbox]") {
  const Data little = message(64);
  const Data large = message(65);
  CHECK(mailbox.deliver(peer, header(1, 64), little.data(), &slots, 1) == Mailbox::Taken::copied);
  CHECK(mailbox.deliver(peer, header(2, 65), large.data(), &slots, 2) == Mailbox::Taken::kept);
  for (const bool first : {false, true}) {
    Data into(100);
    Receive operation = receive(first ? 1 : 2, into);
    Task<Error> task = start(operation);
    REQUIRE(task.done());
    CHECK(operation.length == (first ? 64 : 65));
    into.resize(operation.length);
    CHECK(into == (first ? little : large));
    CHECK(slots.released == std::vector<std::uint64_t>{2});
  }
}

TEST_CASE_METHOD(Fixture, "a borrowed message keeps its slot until the lease ends", "[mailbox]") {
  const Data data = message(300);
  const bool awaited = GENERATE(false, true);
  const bool has_owner = GENERATE(false, true);
  Receive operation = borrow(1, 300);
  Task<Error> task;
  if (awaited) task = start(operation);
  SlotOwner* owner = has_owner ? &slots : nullptr;
  const Mailbox::Taken taken = mailbox.deliver(peer, header(1, 300), data.data(), owner, 6);
  CHECK((taken == Mailbox::Taken::kept) == has_owner);
  if (!awaited) task = start(operation);
  strand.run();
  REQUIRE(task.done());
  CHECK(holds(operation.lease, data));
  CHECK((operation.lease.data() == data.data()) == has_owner);
  CHECK(slots.released.empty());
  CHECK(mailbox.buffers_out() == (has_owner ? 0 : 1));
  operation.lease.release();
  operation.lease.release();
  CHECK(slots.released.size() == (has_owner ? 1 : 0));
  CHECK(mailbox.buffers_out() == 0);
}

TEST_CASE_METHOD(Fixture, "a short stored message can be borrowed", "[mailbox]") {
  const Data data = message(10);
  mailbox.deliver(peer, header(1, 10), data.data(), &slots, 1);
  Receive operation = borrow(1, 10);
  Task<Error> task = start(operation);
  REQUIRE(task.done());
  CHECK(holds(operation.lease, data));
}

TEST_CASE_METHOD(Fixture, "a stored message takes its size, rounded up to a power of two",
                 "[mailbox]") {
  struct Case {
    std::size_t message, buffer, kept;
  };
  constexpr std::size_t mib = std::size_t{1} << 20;
  const auto [length, buffer, kept] =
      GENERATE(Case{65, 128, 128}, Case{128, 128, 128}, Case{129, 256, 256}, Case{mib, mib, mib},
               Case{4 * mib, 4 * mib, 4 * mib}, Case{4 * mib + 1, 8 * mib, 0});
  const Data data = message(length);
  for (std::uint32_t round = 0; round < 3; ++round) {
    mailbox.deliver(peer, header(round, length), data.data(), nullptr, 0);
    CHECK(mailbox.buffer_bytes() == buffer);
    Data into(length);
    Receive operation = receive(round, into);
    REQUIRE(start(operation).done());
    CHECK(into == data);
    CHECK(mailbox.buffers_out() == 0);
    CHECK(mailbox.buffer_bytes() == kept);
  }
}

TEST_CASE_METHOD(Fixture, "of a flood, little memory is kept", "[mailbox]") {
  constexpr std::size_t mib = std::size_t{1} << 20;
  constexpr std::uint32_t messages = 160;
  const Data data = message(mib / 16);
  for (std::uint32_t step = 0; step < messages; ++step) {
    mailbox.deliver(peer, header(step, data.size()), data.data(), nullptr, 0);
  }
  CHECK(mailbox.buffer_bytes() == 10 * mib);
  Data into(data.size());
  for (std::uint32_t step = 0; step < messages; ++step) {
    Receive operation = receive(step, into);
    REQUIRE(start(operation).done());
  }
  CHECK(into == data);
  CHECK(mailbox.buffers_out() == 0);
  CHECK(mailbox.buffer_bytes() == 4 * mib);
}

TEST_CASE_METHOD(Fixture, "a peer far ahead is not accepted, unless it is awaited", "[mailbox]") {
  mailbox.backlog_limit = 1000;
  const Data data = message(600);
  CHECK(mailbox.accepts(peer));
  mailbox.deliver(peer, header(1, 600), data.data(), nullptr, 0);
  CHECK(mailbox.accepts(peer));
  mailbox.deliver(peer, header(2, 600), data.data(), nullptr, 0);
  CHECK(!mailbox.accepts(peer));
  CHECK(mailbox.accepts(peer + 1));

  Data into(600);
  Receive awaited = receive(3, into);
  Task<Error> task = start(awaited);
  CHECK(mailbox.accepts(peer));
  mailbox.deliver(peer, header(3, 600), data.data(), nullptr, 0);
  strand.run();
  CHECK(!mailbox.accepts(peer));
  Receive first = receive(1, into);
  REQUIRE(start(first).done());
  CHECK(mailbox.accepts(peer));
}

TEST_CASE_METHOD(Fixture, "many peers far ahead share a limit, and a message of each is taken",
                 "[mailbox]") {
  mailbox.limit_total_backlog(1000);
  const Data data = message(600);
  CHECK(mailbox.backlog() == 0);
  mailbox.deliver(peer, header(1, 600), data.data(), nullptr, 0);
  CHECK(mailbox.accepts(peer));
  mailbox.deliver(peer + 1, header(1, 600), data.data(), nullptr, 0);
  CHECK(mailbox.backlog() >= 1200);
  CHECK(!mailbox.accepts(peer));
  CHECK(!mailbox.accepts(peer + 1));
  CHECK(mailbox.accepts(peer + 2));

  Data into(600);
  Receive first = receive(1, into);
  REQUIRE(start(first).done());
  CHECK(mailbox.accepts(peer));
  CHECK(mailbox.accepts(peer + 1));
  mailbox.forget(header(1, 600).comm);
  CHECK(mailbox.backlog() == 0);
}

TEST_CASE_METHOD(Fixture, "a message arrives in pieces", "[mailbox]") {
  const Data data = message(1000);
  Data into(1000);
  const bool borrowed = GENERATE(false, true);
  const int awaited_at = GENERATE(0, 1, 2);  // before it, during it, after it
  Receive operation = borrowed ? borrow(1, 1000) : receive(1, into);
  Task<Error> task;
  if (awaited_at == 0) task = start(operation);
  Mailbox::Incoming& incoming = mailbox.begin(peer, header(1, 1000));
  CHECK((incoming.data == into.data()) == (awaited_at == 0 && !borrowed));
  arrive(incoming, data, 0, 400);
  if (awaited_at == 1) {
    task = start(operation);
    CHECK(!task.done());
    CHECK(mailbox.accepts(peer));
    CHECK(mailbox.awaited(peer));
  }
  int reported = 0;
  mailbox.for_each_waiting([&](int, const Tag& tag) { reported += tag.step == 1 ? 1 : 0; });
  CHECK(reported == (awaited_at == 2 ? 0 : 1));
  arrive(incoming, data, 400, 1000);
  mailbox.finish(incoming);
  if (awaited_at == 2) task = start(operation);
  strand.run();
  REQUIRE(task.done());
  CHECK(!task.result());
  CHECK((borrowed ? holds(operation.lease, data) : into == data));
  operation.lease.release();
  CHECK(mailbox.buffers_out() == 0);
  CHECK(mailbox.waiting() == 0);
}

TEST_CASE_METHOD(Fixture, "other arguments are an error on every path", "[mailbox]") {
  const int path = GENERATE(0, 1, 2, 3);
  const bool too_long = GENERATE(false, true);
  const Data data = message(200);
  Header h = header(1, 200);
  if (!too_long) h.digest = 5;
  Data into(too_long ? 199 : 200);
  Receive operation = receive(1, into);
  Task<Error> task;
  if (path == 0 || path == 2) task = start(operation);
  if (path < 2) {
    const Mailbox::Taken taken = mailbox.deliver(peer, h, data.data(), &slots, 3);
    CHECK((taken == Mailbox::Taken::kept) == (path == 1));
  } else {
    Mailbox::Incoming& incoming = mailbox.begin(peer, h);
    CHECK(incoming.data != into.data());
    arrive(incoming, data, 0, 200);
    mailbox.finish(incoming);
  }
  if (path == 1 || path == 3) task = start(operation);
  strand.run();
  REQUIRE(task.done());
  CHECK(task.result().code() == Code::invalid_usage);
  CHECK(task.result().rank() == peer);
  CHECK(into == Data(into.size()));
  CHECK(slots.released.size() == (path == 1 ? 1 : 0));
  CHECK(mailbox.buffers_out() == 0);
}

TEST_CASE_METHOD(Fixture, "revoking ends every receive of its communicator only", "[mailbox]") {
  Data into(100);
  Data others_into(100);
  CommState other;
  other.id = 2;
  Receive mine = receive(1, into);
  Receive theirs = receive(1, others_into);
  theirs.comm = &other;
  theirs.tag.comm = 2;
  Task<Error> task = start(mine);
  Task<Error> others_task = start(theirs);
  revoke();
  REQUIRE(task.done());
  CHECK(task.result().code() == Code::remote);
  CHECK(!others_task.done());
  CHECK(mailbox.waiting() == 1);

  Receive late = receive(2, into);
  Task<Error> late_task = start(late);
  REQUIRE(late_task.done());
  CHECK(late_task.result().code() == Code::remote);

  const Data data = message(100);
  Header h = header(1, 100);
  h.comm = 2;
  mailbox.deliver(peer, h, data.data(), nullptr, 0);
  strand.run();
  CHECK(others_task.done());
  CHECK(others_into == data);
}

TEST_CASE_METHOD(Fixture, "after revoking, a message that was arriving goes nowhere", "[mailbox]") {
  const bool borrowed = GENERATE(false, true);
  const bool abandoned = GENERATE(false, true);
  const Data data = message(1000);
  Data into(1000);
  Receive operation = borrowed ? borrow(1, 1000) : receive(1, into);
  Task<Error> task = start(operation);
  Mailbox::Incoming& incoming = mailbox.begin(peer, header(1, 1000));
  revoke();
  REQUIRE(task.done());
  CHECK(task.result());
  CHECK((incoming.data == nullptr) == !borrowed);  // nobody wants it; a borrower's is the mailbox's
  arrive(incoming, data, 0, 1000);
  if (abandoned) {
    mailbox.abandon(incoming, Error(Code::remote, "lost"));
  } else {
    mailbox.finish(incoming);
  }
  CHECK(into == Data(1000));
  CHECK(mailbox.buffers_out() == 0);
  CHECK(mailbox.waiting() == 0);
}

// Or what nobody takes any more would hold back the survivors' next communicator.
TEST_CASE_METHOD(Fixture, "what a revoked communicator left makes room for others", "[mailbox]") {
  const Data data = message(500);
  mailbox.backlog_limit = 1;
  mailbox.deliver(peer, header(1, 500), data.data(), &slots, 1);
  mailbox.deliver(peer, header(2, 500), data.data(), nullptr, 0);
  CHECK_FALSE(mailbox.accepts(peer));
  revoke();
  CHECK(mailbox.accepts(peer));
  CHECK(slots.released == std::vector<std::uint64_t>{1});
  CHECK(mailbox.deliver(peer, header(3, 500), data.data(), &slots, 3) == Mailbox::Taken::copied);
  CHECK(mailbox.accepts(peer));
  CHECK(mailbox.buffers_out() == 0);
}

TEST_CASE_METHOD(Fixture, "an abandoned message fails its receive", "[mailbox]") {
  Data into(1000);
  Receive operation = receive(1, into);
  Task<Error> task = start(operation);
  mailbox.abandon(mailbox.begin(peer, header(1, 1000)), Error(Code::remote, "lost"));
  mailbox.abandon(mailbox.begin(peer, header(2, 1000)), Error(Code::remote, "lost"));
  strand.run();
  REQUIRE(task.done());
  CHECK(std::string(task.result().message()) == "lost");
  CHECK(mailbox.buffers_out() == 0);
  CHECK(mailbox.waiting() == 0);
}

TEST_CASE_METHOD(Fixture, "a forgotten communicator holds nothing", "[mailbox]") {
  const Data data = message(500);
  mailbox.deliver(peer, header(1, 10), data.data(), &slots, 1);
  mailbox.deliver(peer, header(2, 500), data.data(), &slots, 2);
  mailbox.deliver(peer, header(3, 500), data.data(), nullptr, 0);
  mailbox.backlog_limit = 1;
  CHECK(!mailbox.accepts(peer));
  Mailbox::Incoming& incoming = mailbox.begin(peer, header(4, 500));
  mailbox.forget(comm.id);
  CHECK(slots.released == std::vector<std::uint64_t>{2});
  CHECK(mailbox.accepts(peer));
  arrive(incoming, data, 0, 500);
  mailbox.finish(incoming);
  CHECK(mailbox.buffers_out() == 0);

  CHECK(mailbox.deliver(peer, header(5, 500), data.data(), &slots, 5) == Mailbox::Taken::copied);
  Mailbox::Incoming& late = mailbox.begin(peer, header(6, 500));
  mailbox.finish(late);
  CHECK(mailbox.buffers_out() == 0);
  CHECK(mailbox.accepts(peer));
}

TEST_CASE_METHOD(Fixture, "a mailbox may end with messages in it", "[mailbox]") {
  const Data data = message(500);
  mailbox.deliver(peer, header(1, 500), data.data(), nullptr, 0);
  mailbox.begin(peer, header(2, 500));
  CHECK(mailbox.buffers_out() == 2);
}

TEST_CASE_METHOD(Fixture, "an announced message is fetched to where it is wanted", "[mailbox]") {
  const bool early = GENERATE(false, true);
  const int way = GENERATE(0, 1, 2);
  NetworkCompute device;
  Source source;
  Scratch scratch(device, 1000);
  const Data data = message(900);
  Data into(1000);
  Receive operation = way == 2 ? borrow(1, 1000) : receive(1, into);
  if (way == 0) operation.direct = &scratch;
  Task<Error> task;
  if (!early) task = start(operation);
  REQUIRE(mailbox.announce(peer, header(1, 900), source, 5));
  CHECK(mailbox.buffers_out() == (early || way == 0 ? 0 : 1));
  CHECK(source.wanted.size() == (early ? 0 : 1));
  if (early) task = start(operation);
  REQUIRE(source.wanted.size() == 1);
  CHECK_FALSE(task.done());
  Mailbox::Incoming& incoming = *source.wanted[0];
  CHECK(incoming.message == 5);
  CHECK(incoming.memory == (way == 0 ? 7 : 0));
  CHECK((incoming.data == scratch.bytes().data) == (way == 0));
  arrive(incoming, data, 0, 900);
  mailbox.finish(incoming);
  strand.run();
  REQUIRE(task.done());
  REQUIRE_FALSE(task.result());
  CHECK(operation.length == 900);
  CHECK(operation.landed == (way == 0));
  if (way == 0) CHECK(std::memcmp(scratch.bytes().data, data.data(), 900) == 0);
  if (way == 1) CHECK(std::memcmp(into.data(), data.data(), 900) == 0);
  if (way == 2) CHECK(holds(operation.lease, data));
  operation.lease.release();
  CHECK(mailbox.buffers_out() == 0);
  CHECK(mailbox.waiting() == 0);
  CHECK(source.dropped.empty());
}

TEST_CASE_METHOD(Fixture, "an announced message that is none of the receiver's does not land",
                 "[mailbox]") {
  NetworkCompute device;
  Source source;
  Scratch scratch(device, 500);
  Data into(500);
  Receive operation = receive(1, into);
  operation.direct = &scratch;
  Task<Error> task = start(operation);
  Header head = header(1, 500);
  const bool longer = GENERATE(false, true);
  if (longer) {
    head.length = 501;
  } else {
    head.digest = 78;
  }
  REQUIRE(mailbox.announce(peer, head, source, 5));
  REQUIRE(source.wanted.size() == 1);
  CHECK(source.wanted[0]->memory == 0);
  mailbox.finish(*source.wanted[0]);
  strand.run();
  REQUIRE(task.done());
  CHECK(task.result().code() == Code::invalid_usage);
  CHECK_FALSE(operation.landed);
  CHECK(mailbox.buffers_out() == 0);
}

TEST_CASE_METHOD(Fixture, "revoking leaves scratch to what is still fetched", "[mailbox]") {
  const bool good = GENERATE(false, true);
  NetworkCompute device;
  Source source;
  auto scratch = std::make_unique<Scratch>(device, 500);
  Data into(500);
  Receive operation = receive(1, into);
  operation.direct = scratch.get();
  Task<Error> task = start(operation);
  REQUIRE(mailbox.announce(peer, header(1, 500), source, 5));
  REQUIRE(mailbox.announce(peer, header(2, 500), source, 6));
  REQUIRE(source.wanted.size() == 1);
  revoke();
  REQUIRE(task.done());
  CHECK(task.result().code() == Code::remote);
  CHECK(source.dropped == std::vector<std::uint64_t>{6});
  CHECK(mailbox.announce(peer, header(3, 500), source, 7) == nullptr);
  scratch.reset();
  CHECK(device.withheld == 1);
  arrive(*source.wanted[0], message(500), 0, 500);
  if (good) {
    mailbox.finish(*source.wanted[0]);
  } else {
    mailbox.abandon(*source.wanted[0], Error(Code::remote, "lost"));
  }
  CHECK(device.withheld == 0);
  CHECK(device.out == 0);
  CHECK(mailbox.waiting() == 0);
  CHECK(mailbox.backlog() == 0);
}

TEST_CASE_METHOD(Fixture, "an announced message may never come", "[mailbox]") {
  Source source;
  Data into(500);
  Receive operation = receive(1, into);
  Task<Error> task = start(operation);
  Mailbox::Incoming* wanted = mailbox.announce(peer, header(1, 500), source, 5);
  Mailbox::Incoming* unwanted = mailbox.announce(peer, header(2, 500), source, 6);
  mailbox.abandon(*wanted, Error(Code::remote, "lost"));
  mailbox.abandon(*unwanted, Error(Code::remote, "lost"));
  strand.run();
  REQUIRE(task.done());
  CHECK(std::string(task.result().message()) == "lost");
  CHECK(mailbox.buffers_out() == 0);
  CHECK(mailbox.backlog() == 0);
  CHECK(source.dropped.empty());
}

}  // namespace pith::test
