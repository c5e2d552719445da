// Messages of which the mailbox hears before they come, from a transport that fetches them.
#include "tests/catch.hpp"
#include "tests/core/mailbox_fixture.hpp"
#include "tests/core/network_compute.hpp"

namespace pith::test {

namespace {

// Remembers what it is asked for.
struct Source final : MessageSource {
  void fetch(Mailbox::Incoming& incoming) override { wanted.push_back(&incoming); }
  void drop(std::uint64_t message) override { dropped.push_back(message); }
  std::vector<Mailbox::Incoming*> wanted;
  std::vector<std::uint64_t> dropped;
};

}  // namespace

TEST_CASE_METHOD(MailboxFixture, "an announced message is fetched to where it is wanted",
                 "[mailbox]") {
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

TEST_CASE_METHOD(MailboxFixture,
                 "an announced message that is none of the receiver's does not land", "[mailbox]") {
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

TEST_CASE_METHOD(MailboxFixture, "revoking leaves scratch to what is still fetched", "[mailbox]") {
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
  CHECK(mailbox.flow().backlog() == 0);
}

TEST_CASE_METHOD(MailboxFixture, "an announced message may never come", "[mailbox]") {
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
  CHECK(mailbox.flow().backlog() == 0);
  CHECK(source.dropped.empty());
}

}  // namespace pith::test
