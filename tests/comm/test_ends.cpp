// Random programs in virtual time whose ranks die or leave right after their last call, of which
// nobody has heard yet whether others have ended it: every call ends well on every rank.
//
// PITH_TEST_SEEDS=n runs n seeds; PITH_TEST_SEED=s runs that one, as a failure prints.
#include <fmt/format.h>

#include <memory>
#include <numeric>
#include <vector>

#include "many_seeds.hpp"
#include "sim_job.hpp"
#include "tests/catch.hpp"
#include "tests/collectives/random_calls.hpp"

namespace pith::test {

namespace {

constexpr CommKey job_key = 1;

class EndingJob {
 public:
  explicit EndingJob(std::uint64_t seed)
      : dice_(seed), job_(config(seed), dice_.one_in(3) ? 32 : 2), ranks_(job_.size()) {
    for (int rank = 0; rank < ranks_; ++rank) {
      job_.world().mailbox(rank).backlog_limit = dice_.one_in(2) ? 1 + dice_.below(2000) : 1 << 20;
    }
    for (std::size_t n = dice_.below(4); n > 0; --n) {
      calls_.push_back(random_call(dice_, ranks_, counts_));
    }
    calls_.push_back(std::make_unique<Scheduled>(of_all()));
    for (int rank = 0; rank < ranks_; ++rank) {
      dies_.push_back(dice_.one_in(2));
      after_s_.push_back(dice_.one_in(2) ? 0 : 1e-4 * dice_.uniform());
    }
  }

  // Empty, or what went wrong.
  std::string run() {
    const std::string wrong =
        job_.run([this](Call& frames, int rank) { return live(frames, *this, rank); });
    if (!wrong.empty()) return wrong;
    for (const auto& call : calls_) {
      if (call->succeeded != ranks_) {
        return fmt::format("{} of {} ranks have ended {}", call->succeeded, ranks_, call->name);
      }
      if (const std::string bad = call->check(); !bad.empty()) return bad + " in " + call->name;
    }
    return {};
  }

 private:
  static std::size_t at(int rank) { return static_cast<std::size_t>(rank); }

  SimConfig config(std::uint64_t seed) {
    SimConfig config;
    config.ranks = static_cast<int>(2 + dice_.below(8));
    config.seed = seed;
    // Mostly so slow that the news of a death comes long before what the dead had sent.
    config.jitter_s = (dice_.one_in(3) ? 1e-5 : 2e-1) * dice_.uniform();
    config.wire_bytes = dice_.one_in(2) ? 1 + dice_.below(500) : std::size_t{1} << 20;
    config.slot_bytes = dice_.one_in(2) ? 16 + dice_.below(200) : std::size_t{64} << 10;
    config.kernel_s = 1e-6 * dice_.uniform();
    config.late_kernels = dice_.one_in(2);
    config.detection_s = dice_.one_in(2) ? 1e-7 : 1e-4 * dice_.uniform();
    return config;
  }

  // The last call: it ends nowhere before it has begun everywhere, and so nobody begins it after a
  // death.
  DenseCase of_all() {
    DenseCase c = random_case(dice_, ranks_);
    while (c.algorithm->collective != Collective::allreduce &&
           c.algorithm->collective != Collective::barrier) {
      c = random_case(dice_, ranks_);
    }
    c.count += 1;
    return c;
  }

  // A process that ends has everything behind it that its calls have sent.
  void end(int rank, SimComm& comm) {
    if (!dies_[at(rank)]) return job_.let_go(comm);
    if (after_s_[at(rank)] == 0) return job_.kill(rank);
    job_.world().sim().after(after_s_[at(rank)], [this, rank] { job_.kill(rank); });
  }

  static Task<Error> live(Call& frames, EndingJob& ending, int rank) {
    std::vector<int> all(at(ending.ranks_));
    std::iota(all.begin(), all.end(), 0);
    SimComm& comm = ending.job_.add(rank, job_key, all);
    for (const auto& call : ending.calls_) {
      if (Error refused = comm.refuses_calls()) co_return refused;
      const std::uint32_t number = call->dense ? comm.begin_call(call->name) : comm.calls();
      Task<Error> calling = make_call(frames, comm.context, *call, number);
      Error error = co_await std::move(calling);
      if (call->dense) comm.end_call(number);
      if (error) co_return error;
    }
    ending.end(rank, comm);
    co_return Error();
  }

  Dice dice_;
  SimJob job_;
  const int ranks_;
  MessageCounts counts_;
  std::vector<std::unique_ptr<Scheduled>> calls_;
  std::vector<bool> dies_;
  std::vector<double> after_s_;
};

}  // namespace

TEST_CASE("ranks that end after their last call fail nobody's", "[survival]") {
  try_seeds({.daily = 3'000, .full = 50'000}, "test_survival \"ranks that end*\"",
            [](std::uint64_t seed) { return EndingJob(seed).run(); });
}

}  // namespace pith::test
