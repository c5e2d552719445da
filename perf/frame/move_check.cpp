#include "frame/move_check.hpp"

#include <cmath>
#include <vector>

#include "frame/coded_check.hpp"

namespace pith_perf {

// By the plain call.
MoveCheck::Doubles MoveCheck::moved(const Doubles& sent, CallArgs args, const Team& team) const {
  Doubles received(sent.size(), std::vector<double>(counts_.recv));
  args.type = pithFloat64;
  args.op = pithSum;
  args.count = counts_.call;
  team.each(collective_.program.data(), [&](int local) {
    const auto index = static_cast<std::size_t>(local);
    args.send = sent[index].data();
    args.recv = received[index].data();
    args.place.rank = team.first_rank() + local;
    args.comm = team.comm(local);
    return collective_.call(args);
  });
  return received;
}

Errors MoveCheck::check(const Vectors& given, const Vectors& results, const CallArgs& args,
                        const Team& team) const {
  Doubles values;
  Doubles losses;
  for (const std::vector<float>& own : given) {
    values.emplace_back(own.begin(), own.end());
    std::vector<double>& lost = losses.emplace_back(own.size(), 0);
    for (std::size_t begin = 0; begin < own.size(); begin += counts_.call) {
      add_coding_error(coding_, std::span(values.back()).subspan(begin, counts_.call),
                       std::span(lost).subspan(begin, counts_.call));
    }
  }
  const Doubles expected = moved(values, args, team);
  const Doubles allowed = moved(losses, args, team);
  const double parts = collective_.has_op && args.op == pithAvg ? team.ranks() : 1;
  Errors errors;
  for (std::size_t local = 0; local < results.size(); ++local) {
    for (std::size_t i = 0; i < counts_.recv; ++i) {
      const double value = expected[local][i] / parts;
      const double off = allowed[local][i] / parts;
      errors.add(double(results[local][i]) - value,
                 off + allowed_of_result(args.type, std::abs(value) + off));
    }
  }
  return errors;
}

}  // namespace pith_perf
