// Calls drawn at random, of any kind: a collective of any algorithm, type and operation, or
// messages between pairs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "tests/collectives/dense_program.hpp"
#include "tests/collectives/message_program.hpp"

namespace pith::test {

// Random numbers of one seed.
class Dice {
 public:
  explicit Dice(std::uint64_t seed) : seed_(seed) {}
  std::size_t below(std::size_t n) { return random_bits(seed_, 77, ++count_) % n; }
  bool one_in(std::size_t n) { return below(n) == 0; }
  double uniform() { return static_cast<double>(below(1 << 20)) / (1 << 20); }

 private:
  std::uint64_t seed_;
  std::uint64_t count_ = 0;
};

inline DenseCase random_case(Dice& dice, int ranks) {
  DenseCase c;
  c.algorithm = &algorithms()[dice.below(algorithms().size())];
  c.ranks = ranks;
  c.type = static_cast<DType>(dice.below(dtype_count));
  c.op = possible_op(c.algorithm->collective, c.type, static_cast<Op>(dice.below(op_count)));
  c.tuning = {std::size_t{32} << dice.below(4), static_cast<int>(1 + dice.below(4))};
  c.count = dice.below(120);
  c.root = static_cast<int>(dice.below(static_cast<std::size_t>(ranks)));
  c.in_place = dice.one_in(2);
  c.shift = dice.one_in(3) ? dice.below(16) : 0;
  c.premultiplied = c.op == Op::sum && reduces(c.algorithm->collective) && dice.one_in(4);
  c.seed = dice.below(1'000'000);
  return c;
}

inline MessageCase random_messages(Dice& dice, int ranks) {
  MessageCase c;
  c.ranks = ranks;
  c.messages = dice.below(12);
  c.most_bytes = dice.one_in(2) ? 100 : 2000;
  c.chunk_bytes = std::size_t{32} << dice.below(4);
  c.seed = dice.below(1'000'000);
  return c;
}

// One of them, with the memory of all ranks.
struct Scheduled {
  explicit Scheduled(const DenseCase& c)
      : name(describe(c)), dense(std::make_unique<DenseProgram>(c)) {}
  Scheduled(const MessageCase& c, MessageCounts& counts)
      : name(describe(c)), messages(std::make_unique<MessageProgram>(c, counts)) {}
  Task<Error> start(Call& call, int rank) {
    return dense ? dense->start(call, rank) : messages->start(call, rank);
  }
  std::string check() const { return dense ? dense->check() : messages->check(); }

  std::string name;
  std::unique_ptr<DenseProgram> dense;
  std::unique_ptr<MessageProgram> messages;
  int succeeded = 0;  // ranks
};

// Every third one messages. `counts`: those of the communicator.
inline std::unique_ptr<Scheduled> random_call(Dice& dice, int ranks, MessageCounts& counts) {
  if (dice.one_in(3)) return std::make_unique<Scheduled>(random_messages(dice, ranks), counts);
  return std::make_unique<Scheduled>(random_case(dice, ranks));
}

// The frames come from `frames`. Messages do not count among the calls: theirs is the last number.
inline Task<Error> make_call(Call&, const CallContext& context, Scheduled& scheduled,
                             std::uint32_t number) {
  Call call(context, number, number);
  Task<Error> task = scheduled.start(call, context.rank);
  Error error = co_await std::move(task);
  if (!error) ++scheduled.succeeded;
  co_return error;
}

}  // namespace pith::test
