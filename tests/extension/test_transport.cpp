// A transport that the library does not know, added to its table: transport/ADDING.md, followed.
#include <csignal>
#include <latch>
#include <thread>
#include <vector>

#include "catch.hpp"
#include "startup/connect.hpp"
#include "startup/rendezvous.hpp"

using namespace pith;

namespace pith {
extern const TransportFactory pipe_factory;
}

namespace {

constexpr int ranks = 3;

Settings by_pipe() {
  Settings settings;
  settings.transport = "pipe";
  settings.host = "127.0.0.1";
  return settings;
}

Error sum(Communicator& comm, std::size_t count, std::vector<float>& values) {
  values.assign(count, static_cast<float>(comm.rank() + 1));
  CollectiveArgs args;
  args.send.data = args.recv.data = reinterpret_cast<std::byte*>(values.data());
  args.count = count;
  return comm.calls().run(args);
}

std::string check_sum(Communicator& comm, std::size_t count) {
  std::vector<float> values;
  if (const Error error = sum(comm, count, values)) return error.message();
  const auto expected = static_cast<float>(comm.size() * (comm.size() + 1) / 2);
  return values == std::vector<float>(count, expected) ? "" : "a wrong sum";
}

// What the rank has to complain of.
std::string live(const UniqueId& id, int rank, TransportTable table, std::latch& left) {
  auto comm = make_communicator(by_pipe(), id, rank, ranks, nullptr, table);
  if (!comm) {
    left.count_down();
    return comm.error().message();
  }
  std::string wrong;
  for (const std::size_t count : {1, 1000, 1 << 20}) wrong += check_sum(**comm, count);
  {
    const auto child = (*comm)->children().split(by_pipe(), 0, 0);
    wrong += child ? check_sum(**child, 1000) : child.error().message();
  }
  if (rank == 2) comm->reset();
  left.arrive_and_wait();
  std::vector<float> values;
  if (rank != 2 && !sum(**comm, 1000, values)) wrong += "a sum with a rank that has left";
  return wrong;
}

}  // namespace

TEST_CASE("a transport from outside carries sums, splits and the news that a rank has left") {
  std::signal(SIGPIPE, SIG_IGN);
  std::vector<const TransportFactory*> table(transport_table().begin(), transport_table().end());
  table.push_back(&pipe_factory);
  const Expected<UniqueId> id = Rendezvous::open("127.0.0.1", 60);
  REQUIRE(id);
  std::latch left(ranks);
  std::vector<std::string> wrong(ranks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back(
        [&, rank] { wrong[static_cast<std::size_t>(rank)] = live(*id, rank, table, left); });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == std::vector<std::string>(ranks));
}

// Without it the library's own are all that can be named.
TEST_CASE("a transport that is in no table is refused") {
  const Expected<UniqueId> id = Rendezvous::open("127.0.0.1", 60);
  REQUIRE(id);
  std::vector<std::thread> threads;
  std::vector<std::string> said(2);
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      const auto comm = make_communicator(by_pipe(), *id, rank, 2, nullptr);
      said[static_cast<std::size_t>(rank)] = comm.error().message();
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& text : said) {
    CHECK(text.find(
              "have no transport in common; PITH_TRANSPORT is \"pipe\", known are local, shm") !=
          std::string::npos);
  }
}
