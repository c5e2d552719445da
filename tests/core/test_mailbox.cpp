#include "tests/catch.hpp"
#include "tests/core/mailbox_fixture.hpp"

namespace pith::test {

TEST_CASE_METHOD(MailboxFixture, "an awaited message goes straight to its receiver", "[mailbox]") {
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

TEST_CASE_METHOD(MailboxFixture, "a short message is stored, a longer one stays in its slot",
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

TEST_CASE_METHOD(MailboxFixture, "a borrowed message keeps its slot until the lease ends",
                 "[mailbox]") {
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

TEST_CASE_METHOD(MailboxFixture, "a short stored message can be borrowed", "[mailbox]") {
  const Data data = message(10);
  mailbox.deliver(peer, header(1, 10), data.data(), &slots, 1);
  Receive operation = borrow(1, 10);
  Task<Error> task = start(operation);
  REQUIRE(task.done());
  CHECK(holds(operation.lease, data));
}

TEST_CASE_METHOD(MailboxFixture, "a stored message takes its size, rounded up to a power of two",
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

TEST_CASE_METHOD(MailboxFixture, "of a flood, little memory is kept", "[mailbox]") {
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

TEST_CASE_METHOD(MailboxFixture, "a peer far ahead is not accepted, unless it is awaited",
                 "[mailbox]") {
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

TEST_CASE_METHOD(MailboxFixture,
                 "many peers far ahead share a limit, and a message of each is taken",
                 "[mailbox]") {
  mailbox.limit_total_backlog(1000);
  const Data data = message(600);
  CHECK(mailbox.flow().backlog() == 0);
  mailbox.deliver(peer, header(1, 600), data.data(), nullptr, 0);
  CHECK(mailbox.accepts(peer));
  mailbox.deliver(peer + 1, header(1, 600), data.data(), nullptr, 0);
  CHECK(mailbox.flow().backlog() >= 1200);
  CHECK(!mailbox.accepts(peer));
  CHECK(!mailbox.accepts(peer + 1));
  CHECK(mailbox.accepts(peer + 2));

  Data into(600);
  Receive first = receive(1, into);
  REQUIRE(start(first).done());
  CHECK(mailbox.accepts(peer));
  CHECK(mailbox.accepts(peer + 1));
  mailbox.forget(header(1, 600).comm);
  CHECK(mailbox.flow().backlog() == 0);
}

TEST_CASE_METHOD(MailboxFixture, "a message arrives in pieces", "[mailbox]") {
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

TEST_CASE_METHOD(MailboxFixture, "other arguments are an error on every path", "[mailbox]") {
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

TEST_CASE_METHOD(MailboxFixture, "revoking ends every receive of its communicator only",
                 "[mailbox]") {
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

TEST_CASE_METHOD(MailboxFixture, "after revoking, a message that was arriving goes nowhere",
                 "[mailbox]") {
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
TEST_CASE_METHOD(MailboxFixture, "what a revoked communicator left makes room for others",
                 "[mailbox]") {
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

TEST_CASE_METHOD(MailboxFixture, "an abandoned message fails its receive", "[mailbox]") {
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

TEST_CASE_METHOD(MailboxFixture, "a forgotten communicator holds nothing", "[mailbox]") {
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

TEST_CASE_METHOD(MailboxFixture, "a mailbox may end with messages in it", "[mailbox]") {
  const Data data = message(500);
  mailbox.deliver(peer, header(1, 500), data.data(), nullptr, 0);
  mailbox.begin(peer, header(2, 500));
  CHECK(mailbox.buffers_out() == 2);
}

}  // namespace pith::test
