#include "tests/collectives/real_ranks.hpp"

#include <thread>

#include "core/clock.hpp"
#include "tests/collectives/registered_heap.hpp"
#if defined(PITH_FAKE_VERBS)
#include "tests/transport/fake_verbs.hpp"
#include "transport/verbs/verbs.hpp"
#include "transport/verbs/verbs_rail.hpp"
#endif

namespace pith::test {

namespace {

constexpr std::uint64_t patience_ns = 60'000'000'000;
constexpr Secret secret{std::byte{1}, std::byte{2}};

void expect(const Error& error) {
  if (error) throw std::runtime_error(error.message());
}

}  // namespace

RealRank::RealRank(RealKind kind, int rank, Meeting& meeting)
    : meeting_(meeting), engine_(meeting.ranks), model_(meeting.ranks) {
  engine_.set_oversubscribed(true);
  engine_.own();
  context_.rank = rank;
  context_.size = meeting.ranks;
  context_.views = kind == RealKind::local || kind == RealKind::shm || kind == RealKind::shm_copies;
  context_.all_views = context_.views;
  model_.set_views(context_.views);
  context_.chooser = &model_;
  comm_.id = 1;
  if (kind == RealKind::local) {
    transport_ =
        std::make_unique<LocalTransport>(engine_.scheduler(), engine_.mailbox(), rank, meeting.hub);
  }
  if (kind == RealKind::shm || kind == RealKind::shm_copies) {
    ShmOptions options;
    options.heap = &registered_heap();
    if (kind == RealKind::shm_copies) options.copy_bytes = 1;
    transport_ = connect_shm(options);
  }
  if (kind == RealKind::tcp) transport_ = connect_tcp(false);
  if (kind == RealKind::tcp_encrypted) transport_ = connect_tcp(true);
  if (kind == RealKind::ucx) transport_ = connect_ucx();
  if (kind == RealKind::verbs) transport_ = connect_verbs();
  engine_.add(*transport_);
  for (int peer = 0; peer < size(); ++peer) {
    routes_.push_back({peer == rank ? nullptr : transport_.get(), peer});
  }
  context_.scheduler = &engine_.scheduler();
  context_.arena = &engine_.arena();
  context_.mailbox = &engine_.mailbox();
  context_.compute = context_.host = &compute_;
  context_.comm = &comm_;
  context_.routes = routes_;
  context_.revoke = [](void* self, const Error& error) {
    static_cast<RealRank*>(self)->revoke(error);
  };
  context_.revoke_context = this;
}

std::unique_ptr<PeerTransport> RealRank::connect_shm(const ShmOptions& options) {
  auto shm = std::make_unique<ShmTransport>(engine_.scheduler(), engine_.mailbox(), rank(), size(),
                                            secret, options);
  Expected<std::string> name = shm->listen();
  expect(name.error());
  meeting_.names[static_cast<std::size_t>(rank())] = *name;
  meet();
  std::vector<std::string> names = meeting_.names;
  names[static_cast<std::size_t>(rank())].clear();
  std::vector<bool> attached;
  expect(shm->attach(names, attached, monotonic_ns() + patience_ns));
  for (int peer = 0; peer < size(); ++peer) {
    if (peer != rank() && !attached[static_cast<std::size_t>(peer)]) {
      throw std::runtime_error("a peer did not attach");
    }
  }
  return shm;
}

std::unique_ptr<PeerTransport> RealRank::connect_tcp(bool encrypt) {
  TcpOptions options;
  options.encrypt = encrypt;
  auto tcp = std::make_unique<TcpTransport>(engine_.scheduler(), engine_.mailbox(), rank(), size(),
                                            secret, options);
  Expected<std::string> name = tcp->listen();
  expect(name.error());
  meeting_.names[static_cast<std::size_t>(rank())] = *name;
  meet();
  std::vector<std::uint8_t> use(static_cast<std::size_t>(size()), 1);
  use[static_cast<std::size_t>(rank())] = 0;
  expect(tcp->connect(meeting_.names, use, monotonic_ns() + patience_ns));
  return tcp;
}

std::unique_ptr<PeerTransport> RealRank::connect_ucx() {
  UcxOptions options;
  options.host = "127.0.0.1";
  auto ucx =
      UcxTransport::create(engine_.scheduler(), engine_.mailbox(), rank(), size(), secret, options);
  expect(ucx.error());
  Expected<std::string> address = (*ucx)->listen();
  expect(address.error());
  meeting_.names[static_cast<std::size_t>(rank())] = *address;
  meet();
  std::vector<std::uint8_t> use(static_cast<std::size_t>(size()), 1);
  expect((*ucx)->connect(meeting_.names, use, monotonic_ns() + patience_ns));
  return std::move(*ucx);
}

std::unique_ptr<PeerTransport> RealRank::connect_verbs() {
#if defined(PITH_FAKE_VERBS)
  VerbsOptions options;
  options.watch = false;  // no memory of these tests is unmapped while it is used
  auto verbs = VerbsTransport::create(FakeVerbs::library(), {}, engine_.scheduler(),
                                      engine_.mailbox(), rank(), size(), options);
  expect(verbs.error());
  Expected<std::string> address = (*verbs)->listen();
  expect(address.error());
  meeting_.names[static_cast<std::size_t>(rank())] = *address;
  meet();
  std::vector<bool> attached;
  expect((*verbs)->attach(meeting_.names, attached, monotonic_ns() + patience_ns));
  meet();
  std::vector<std::uint8_t> use(static_cast<std::size_t>(size()), 1);
  expect((*verbs)->connect(meeting_.names, use, monotonic_ns() + patience_ns));
  return std::move(*verbs);
#else
  throw std::runtime_error("this build has no verbs");
#endif
}

void RealRank::leave() { transport_->close(monotonic_ns() + patience_ns); }

void RealRank::revoke(const Error& error) {
  if (comm_.revoked) return;
  comm_.revoked = error;
  meeting_.failed = true;
  engine_.mailbox().quiesce(comm_, error);
  transport_->quiesce(comm_, error);
}

void RealRank::meet() {
  const int target = ++meetings_ * meeting_.ranks;
  meeting_.arrived.fetch_add(1);
  engine_.drive_until([&] { return meeting_.arrived.load() >= target || meeting_.failed.load(); });
  if (meeting_.failed) throw std::runtime_error("another rank has failed");
}

void RealRank::run(const std::function<Task<Error>(Call&)>& start) {
  ++calls_;
  Call call(context_, calls_, calls_);
  Task<Error> task = start(call);
  engine_.scheduler().make_ready(task.handle());
  engine_.drive_until([&] { return task.done() || meeting_.failed.load(); });
  if (!task.done()) revoke(Error(Code::remote, "another rank has failed"));
  engine_.drive_until([&] { return task.done(); });
  expect(task.take());
}

std::string run_real(RealKind kind, int ranks, const std::function<void(RealRank&)>& body) {
  Meeting meeting(ranks);
  if (kind == RealKind::local) {
    Expected<std::shared_ptr<LocalHub>> hub = LocalHub::create(ranks);
    if (!hub) return hub.error().message();
    meeting.hub = *hub;
  }
  std::vector<std::string> failures(static_cast<std::size_t>(ranks));
  auto live = [&](int number) {
    try {
      RealRank rank(kind, number, meeting);
      rank.meet();
      body(rank);
      rank.meet();
      rank.leave();
    } catch (const std::exception& failure) {
      meeting.failed = true;
      failures[static_cast<std::size_t>(number)] = failure.what();
    }
  };
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) threads.emplace_back(live, rank);
  for (std::thread& thread : threads) thread.join();
  std::string all;
  for (int rank = 0; rank < ranks; ++rank) {
    const std::string& failure = failures[static_cast<std::size_t>(rank)];
    if (!failure.empty()) all += "rank " + std::to_string(rank) + ": " + failure + "\n";
  }
  return all;
}

}  // namespace pith::test
