// The demo's verdict on training that went well, and on the same training with one fault between
// the ranks and Pith: a verdict that always says yes proves nothing.
#include "tools/demo/verdict.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "tests/catch.hpp"
#include "tools/demo/dataset.hpp"
#include "tools/demo/session.hpp"

namespace {

using namespace pith::demo;

constexpr int ranks = 4;

enum class What {
  nothing,
  lost,     // all ranks send zeros for their gradients
  doubled,  // all ranks send twice their gradients
  late,     // all ranks send their gradients of the step before
  missing,  // rank 2 alone sends zeros
  other     // rank 2 begins with one parameter that is a rounding away from the others'
};

// One bucket of the step with this number, from 0.
struct Fault {
  What what = What::nothing;
  std::size_t step = 0;
};

Fault fault;
std::size_t buckets_a_step = 0;

// Of the rank that this thread is.
thread_local int own_rank = 0;
thread_local std::size_t averages = 0;  // begun so far
thread_local std::vector<float> before;

void spoil(std::span<float> gradient) {
  constexpr std::size_t bucket = 2;
  const std::size_t call = averages++;
  if (call % buckets_a_step != bucket) return;
  const std::size_t step = call / buckets_a_step;
  if (step + 1 == fault.step) before.assign(gradient.begin(), gradient.end());
  if (step != fault.step) return;
  const bool zeros = fault.what == What::lost || (fault.what == What::missing && own_rank == 2);
  const float factor = zeros ? 0.0F : fault.what == What::doubled ? 2.0F : 1.0F;
  if (fault.what == What::late) std::ranges::copy(before, gradient.begin());
  for (float& value : gradient) value *= factor;
}

}  // namespace

// What the demo calls (ld --wrap).
extern "C" {
pithResult_t __real_pithAllReduce(const void* send, void* recv, std::size_t count,
                                  pithDataType_t type, pithRedOp_t op, pithComm_t comm,
                                  pithStream_t stream);
pithResult_t __wrap_pithAllReduce(const void* send, void* recv, std::size_t count,
                                  pithDataType_t type, pithRedOp_t op, pithComm_t comm,
                                  pithStream_t stream) {
  if (op == pithAvg) spoil({static_cast<float*>(recv), count});  // in place
  return __real_pithAllReduce(send, recv, count, type, op, comm, stream);
}

pithResult_t __real_pithBroadcast(const void* send, void* recv, std::size_t count,
                                  pithDataType_t type, int root, pithComm_t comm,
                                  pithStream_t stream);
pithResult_t __wrap_pithBroadcast(const void* send, void* recv, std::size_t count,
                                  pithDataType_t type, int root, pithComm_t comm,
                                  pithStream_t stream) {
  const pithResult_t result = __real_pithBroadcast(send, recv, count, type, root, comm, stream);
  auto* const parameters = static_cast<float*>(recv);
  if (fault.what == What::other && own_rank == 2) *parameters = std::nextafter(*parameters, 1.0F);
  return result;
}
}

namespace {

Options two_epochs() {
  Options options;
  options.ranks = ranks;
  options.epochs = 2;
  return options;
}

const Dataset& digits() {
  static const Dataset data = split_digits(read_digits(PITH_DIGITS), two_epochs().seed);
  return data;
}

const SingleProcess& single() {
  static const SingleProcess alone = train_single(two_epochs(), digits(), [](std::size_t) {});
  return alone;
}

void train_as(int rank, const pithUniqueId& id, const Board& board) {
  own_rank = rank;
  averages = 0;
  Session session(id, ranks, rank);
  Progress silent(two_epochs(), 1, false);
  train_rank(two_epochs(), digits(), session, board, silent);
  session.close();
}

std::size_t count_buckets() {
  Model model = demo_model();
  std::vector<float> gradient(model.parameter_count());
  std::size_t buckets = 0;
  const Samples one = gather(digits().train, std::vector<std::size_t>{0});
  model.differentiate(single().first_parameters, one, gradient,
                      [&](std::size_t, std::size_t) { ++buckets; });
  return buckets;
}

// Fills the board as the demo's rank processes do, here in threads.
void train(const Board& board, const Fault& with) {
  setenv("PITH_IFNAME", "lo", 1);
  digits();
  buckets_a_step = count_buckets();
  fault = with;
  pithUniqueId id{};
  check(pithGetUniqueId(&id), "pithGetUniqueId");
  std::mutex mutex;
  std::exception_ptr failure;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        train_as(rank, id, board);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!failure) failure = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (failure) std::rethrow_exception(failure);
}

Board new_board() { return Board::create(ranks, demo_model().parameter_count()); }

Verdict verdict_with(const Fault& with) {
  const Board board = new_board();
  train(board, with);
  return judge(board, single());
}

bool is_near(const Verdict& verdict, std::size_t checkpoint) {
  return verdict.errors[checkpoint] <= checkpoints[checkpoint].error_max;
}

}  // namespace

TEST_CASE("what the ranks learn together is what one process learns") {
  const Board board = new_board();
  train(board, {});
  const Verdict verdict = judge(board, single());
  INFO(fmt::format("{:e} and {:e}", verdict.errors[0], verdict.errors[1]));
  REQUIRE(verdict.equal());
  REQUIRE(verdict.final_error < 0.1);

  // Each rank's word counts, not rank 0's alone.
  RankReport& report = board.reports()[3];
  report.hash ^= 1U;
  REQUIRE_FALSE(judge(board, single()).equal());
  report.hash ^= 1U;
  REQUIRE(judge(board, single()).equal());
  report.identical = 0;
  REQUIRE_FALSE(judge(board, single()).equal());
}

TEST_CASE("one fault in one bucket of one step is seen at the next checkpoint") {
  for (const What what : {What::lost, What::doubled, What::late, What::missing}) {
    for (const std::size_t step : {std::size_t{3}, std::size_t{12}}) {
      const Verdict verdict = verdict_with({what, step});
      INFO(fmt::format("fault {} in step {}: {:e} and {:e}", static_cast<int>(what), step,
                       verdict.errors[0], verdict.errors[1]));
      CHECK_FALSE(verdict.equal());
      CHECK(verdict.identical);  // all ranks were told the same wrong thing
      CHECK(is_near(verdict, 0) == (step >= checkpoints[0].steps));
      CHECK_FALSE(is_near(verdict, 1));
    }
  }
}

TEST_CASE("a rank that holds other bits is seen, however near they are") {
  const Verdict verdict = verdict_with({What::other});
  INFO(fmt::format("{:e} and {:e}", verdict.errors[0], verdict.errors[1]));
  CHECK(is_near(verdict, 0));
  CHECK_FALSE(verdict.identical);
  CHECK_FALSE(verdict.equal());
}
